#include "server/net/stream_limit.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "server/net/connection_watch.h"

namespace tlm {
namespace {

using nlohmann::json;

// Returns the answer to a channelz call; null for an id that is gone.
json Take(char* text) {
  if (text == nullptr) return nullptr;
  json answer = json::parse(text, nullptr, /*allow_exceptions=*/false);
  gpr_free(text);
  return answer;
}

// In this JSON, 64-bit numbers are strings, and a member that is 0 is left out.
int64_t Number(const json& object, const char* member) {
  const auto at = object.find(member);
  int64_t number = 0;
  if (at == object.end() || !at->is_string()) return 0;
  return absl::SimpleAtoi(at->get_ref<const std::string&>().c_str(), &number) ? number : 0;
}

// Converts "chttp2 ipv4:127.0.0.1:50051" or "chttp2 ipv6:%5B::1%5D:50051" to the form of
// Peer::Name.
std::string PeerOfSocket(std::string_view name) {
  const size_t scheme = name.find(":");
  const std::string address(scheme == name.npos ? "" : name.substr(scheme + 1));
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace

std::optional<int64_t> ChannelzCounter::Find(const std::string& peer) {
  if (!sockets_.contains(peer)) FindNewSockets();
  const auto socket = sockets_.find(peer);
  if (socket == sockets_.end()) return std::nullopt;
  const int64_t id = socket->second;
  sockets_.erase(socket);
  return id;
}

std::optional<StreamCounts> ChannelzCounter::Count(int64_t id) {
  const json answer = Take(grpc_channelz_get_socket(id));
  if (!answer.is_object()) return std::nullopt;
  const json& data = answer.at("socket").at("data");
  StreamCounts counts;
  counts.started = Number(data, "streamsStarted");
  counts.messages = Number(data, "messagesReceived");
  counts.open = counts.started - Number(data, "streamsSucceeded") - Number(data, "streamsFailed");
  return counts;
}

void ChannelzCounter::FindNewSockets() {
  if (sockets_.size() > kMaxKnown) {  // most of them are closed
    sockets_.clear();
    next_socket_.clear();
  }
  const json servers = Take(grpc_channelz_get_servers(0));
  for (const json& server : servers.value("server", json::array())) {
    const int64_t id = Number(server.at("ref"), "serverId");
    int64_t& next = next_socket_[id];
    for (bool end = false; !end;) {
      const json page = Take(grpc_channelz_get_server_sockets(id, next, 0));
      end = !page.is_object() || page.value("end", false);
      if (!page.is_object()) break;
      for (const json& socket : page.value("socketRef", json::array())) {
        const int64_t socket_id = Number(socket, "socketId");
        sockets_[PeerOfSocket(socket.at("name").get_ref<const std::string&>())] = socket_id;
        next = socket_id + 1;
      }
    }
  }
}

void StreamLimit::Add(int descriptor, int64_t max_streams) {
  Connection connection;
  connection.cookie = SocketCookie(descriptor);
  connection.max_streams = max_streams;
  connection.peer = PeerOf(descriptor).Name();
  MutexLock lock(&mutex_);
  if (const auto old = connections_.find(descriptor); old != connections_.end()) Remove(old);
  connections_[descriptor] = std::move(connection);
}

void StreamLimit::NoteRead(int descriptor, size_t bytes) {
  MutexLock lock(&mutex_);
  const auto connection = connections_.find(descriptor);
  if (connection == connections_.end()) return;
  connection->second.uncounted_bytes += static_cast<int64_t>(bytes);
  uncounted_bytes_ += static_cast<int64_t>(bytes);
}

std::vector<std::pair<int, uint64_t>> StreamLimit::Enforce() {
  std::vector<std::pair<int, uint64_t>> cut;
  if (!MayExceed(kMaxStreams)) return cut;
  for (auto& [descriptor, connection] : Candidates()) {
    const bool is_bad = CountOne(descriptor, connection);
    MutexLock lock(&mutex_);
    const auto at = connections_.find(descriptor);
    if (at == connections_.end() || at->second.cookie != connection.cookie) continue;
    Take(at->second, connection);
    if (is_bad) cut.push_back(Remove(at));
    if (AtMost() <= kMaxStreams / 2) break;
  }
  MutexLock lock(&mutex_);
  if (streams_ <= kMaxStreams) return cut;
  while (streams_ > kMaxStreams * 3 / 4) cut.push_back(Remove(WithMostStreams()));
  return cut;
}

bool StreamLimit::CountOne(int descriptor, Connection& seen) {
  if (!seen.id.has_value()) seen.id = counter_->Find(seen.peer);
  const StreamCounts now =
      seen.id.has_value() ? counter_->Count(*seen.id).value_or(StreamCounts()) : StreamCounts();
  const bool is_idle = now.started == seen.streams.started && now.messages == seen.streams.messages;
  seen.idle_bytes = is_idle ? seen.idle_bytes + seen.uncounted_bytes : 0;
  seen.streams = now;
  return SocketCookie(descriptor) != seen.cookie || IsClosedByPeer(descriptor) ||
         now.open > seen.max_streams + kSpareStreams || seen.idle_bytes > kMaxIdleBytes;
}

void StreamLimit::Take(Connection& connection, const Connection& seen) {
  uncounted_bytes_ -= seen.uncounted_bytes;
  streams_ += seen.streams.open - connection.streams.open;
  connection.uncounted_bytes -= seen.uncounted_bytes;
  connection.idle_bytes = seen.idle_bytes;
  connection.id = seen.id;
  connection.streams = seen.streams;
}

void StreamLimit::CountEnding() {
  MutexLock lock(&mutex_);
  for (auto& [id, open] : ending_) open = counter_->Count(id).value_or(StreamCounts()).open;
  std::erase_if(ending_, [](auto& entry) { return entry.second == 0; });
}

size_t StreamLimit::RoomBytes() {
  CountEnding();
  MutexLock lock(&mutex_);
  const int64_t streams =
      std::accumulate(ending_.begin(), ending_.end(), streams_,
                      [](int64_t sum, const auto& entry) { return sum + entry.second; });
  return static_cast<size_t>(std::max<int64_t>(kMaxStreams - streams, 0) * kMinBytes);
}

bool StreamLimit::MayExceed(int64_t streams) {
  MutexLock lock(&mutex_);
  return AtMost() > streams;
}

std::vector<std::pair<int, StreamLimit::Connection>> StreamLimit::Candidates() {
  std::vector<std::pair<int, Connection>> candidates;
  {
    MutexLock lock(&mutex_);
    std::copy_if(connections_.begin(), connections_.end(), std::back_inserter(candidates),
                 [](auto& entry) { return entry.second.AtMost() > 0; });
  }
  std::sort(candidates.begin(), candidates.end(),
            [](auto& a, auto& b) { return a.second.AtMost() > b.second.AtMost(); });
  return candidates;
}

StreamLimit::Connections::iterator StreamLimit::WithMostStreams() {
  // Calls that were started and abandoned go first: they cost their client nothing.
  const auto order = [](const StreamCounts& streams) {
    return std::tuple(streams.half_open(), streams.open);
  };
  return std::max_element(connections_.begin(), connections_.end(), [order](auto& a, auto& b) {
    return order(a.second.streams) < order(b.second.streams);
  });
}

std::pair<int, uint64_t> StreamLimit::Remove(Connections::iterator connection) {
  const auto& [descriptor, removed] = *connection;
  const std::pair<int, uint64_t> socket(descriptor, removed.cookie);
  if (removed.streams.open > 0) ending_[*removed.id] = removed.streams.open;
  streams_ -= removed.streams.open;
  uncounted_bytes_ -= removed.uncounted_bytes;
  connections_.erase(connection);
  return socket;
}

}  // namespace tlm
