#include "server/net/read_throttle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string_view>

#include "model/base/thread_name.h"
#include "server/net/connection_watch.h"

namespace tlm {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kLookInterval(500);
// A round ends after this time at the latest: streams that are written may leave no thread idle for
// long.
constexpr std::chrono::milliseconds kLongestRound(100);
// The longest wait for the calls of cut connections to end.
constexpr std::chrono::seconds kLongestWait(5);
constexpr std::chrono::seconds kReportInterval(1);
constexpr size_t kMaxPieces = 64;  // per read

// Null until ReadThrottle::OfProcess() was called; set once.
std::atomic<ReadThrottle*> throttle_of_process = nullptr;

// The threads that read connections: gRPC's own.
class Readers {
 public:
  // Adds the calling thread, once.
  void AddThisThread() {
    thread_local bool added = false;
    if (std::exchange(added, true)) return;
    MutexLock lock(&mutex_);
    states_.push_back(fmt::format("/proc/self/task/{}/stat", gettid()));
  }

  // Returns whether none of them runs or is about to run.
  bool AllIdle() {
    MutexLock lock(&mutex_);
    return std::none_of(states_.begin(), states_.end(), IsRunning);
  }

 private:
  // Returns false for a thread that has ended.
  static bool IsRunning(const std::string& state) {
    const int file = open(state.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    char text[64];  // "ID (NAME) STATE ...", a name of at most 15 bytes
    const ssize_t size = read(file, text, sizeof(text));
    close(file);
    const std::string_view stat(text, size > 0 ? static_cast<size_t>(size) : 0);
    return stat.find(") R ") != std::string_view::npos;
  }

  Mutex mutex_;
  std::vector<std::string> states_ TLM_GUARDED_BY(mutex_);  // names of their state files
};

Readers readers;

// Makes edge-triggered epoll report again that there is something to read: the kernel's
// tcp_set_rcvlowat() does that.
void Wake(int descriptor) {
  const int bytes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

ssize_t ReceiveNow(int descriptor, msghdr* message, int flags) {
  return syscall(SYS_recvmsg, descriptor, message, flags);
}

// Calls recvmsg() for at most `most` bytes.
ssize_t ReceiveAtMost(int descriptor, msghdr* message, int flags, size_t most) {
  iovec pieces[kMaxPieces];
  msghdr part = *message;
  part.msg_iov = pieces;
  part.msg_iovlen = 0;
  for (size_t i = 0; i < message->msg_iovlen && i < kMaxPieces && most > 0; ++i) {
    iovec& piece = pieces[part.msg_iovlen++] = message->msg_iov[i];
    piece.iov_len = std::min(piece.iov_len, most);
    most -= piece.iov_len;
  }
  const ssize_t received = ReceiveNow(descriptor, &part, flags);
  message->msg_controllen = part.msg_controllen;
  message->msg_flags = part.msg_flags;
  return received;
}

}  // namespace

void ReadBudget::Add(int descriptor, const std::string& peer) {
  MutexLock lock(&mutex_);
  const auto at = static_cast<size_t>(descriptor);
  if (connections_.size() <= at) connections_.resize(at + 1);
  Connection& connection = connections_[at];
  Reset(descriptor, connection, State::kUnread);
  connection.cookie = cookie_of_(descriptor);
  connection.peer = peer;
}

void ReadBudget::Cut(int descriptor, uint64_t cookie) {
  MutexLock lock(&mutex_);
  Connection* const connection = Find(descriptor);
  if (connection == nullptr || connection->cookie != cookie) return;
  Reset(descriptor, *connection, State::kCut);
}

void ReadBudget::Reset(int descriptor, Connection& connection, State state) {
  if (connection.waits) {
    const auto waiting = waiting_.find(connection.peer);
    std::erase(waiting->second, descriptor);
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  if (connection.state == State::kUnread) --unread_;
  if (state == State::kUnread) ++unread_;
  const uint64_t cookie = connection.cookie;
  connection = {};
  connection.state = state;
  connection.cookie = cookie;
}

ReadBudget::Connection* ReadBudget::Find(int descriptor) {
  const auto at = static_cast<size_t>(descriptor);
  if (at >= connections_.size()) return nullptr;
  Connection& connection = connections_[at];
  const bool is_open = connection.state == State::kUnread || connection.state == State::kRead;
  return is_open ? &connection : nullptr;
}

size_t ReadBudget::Allowance(int descriptor) {
  MutexLock lock(&mutex_);
  Connection* const connection = Find(descriptor);
  if (connection == nullptr) return HasEnded(descriptor) ? kEnded : kUnbounded;
  if (std::exchange(connection->state, State::kRead) == State::kUnread) --unread_;
  if (connection->waits) return 0;
  if (connection->round != round_) {
    connection->round = round_;
    connection->read = 0;
    connection->chosen = false;
  }
  const bool has_room = connection->chosen || read_ < budget_;
  if (has_room && connection->read < share_) return share_ - connection->read;
  connection->waits = true;
  waiting_[connection->peer].push_back(descriptor);
  changed_.NotifyOne();
  return 0;
}

void ReadBudget::NoteRead(int descriptor, size_t bytes) {
  MutexLock lock(&mutex_);
  Connection* const connection = Find(descriptor);
  if (connection == nullptr) return;
  connection->read += bytes;
  read_ += bytes;
}

bool ReadBudget::HasEnded(int descriptor) const {
  const auto at = static_cast<size_t>(descriptor);
  return at < connections_.size() && connections_[at].state == State::kCut &&
         connections_[at].cookie == cookie_of_(descriptor);
}

size_t ReadBudget::Unread() {
  MutexLock lock(&mutex_);
  return unread_;
}

bool ReadBudget::AwaitWaiting(Duration timeout) {
  MutexLock lock(&mutex_);
  if (waiting_.empty()) changed_.WaitFor(&mutex_, timeout);
  return !waiting_.empty();
}

std::vector<int> ReadBudget::EndRound(Duration round, size_t most_bytes,
                                      const std::function<bool(int)>& is_over,
                                      std::vector<std::pair<int, uint64_t>>& over) {
  MutexLock lock(&mutex_);
  if (round > kSlowRound) next_budget_ = std::max(next_budget_ / 2, kMinBytes);
  if (round < kFastRound) next_budget_ = std::min(next_budget_ * 2, kMaxBytes);
  budget_ = std::min(next_budget_, std::max(most_bytes, kMinBytes));
  ++round_;
  read_ = 0;
  std::vector<int> chosen;
  while (!waiting_.empty() && chosen.size() < budget_ / kMinShare) {
    const int descriptor = TakeWaiting();
    Connection& connection = connections_[static_cast<size_t>(descriptor)];
    connection.waits = false;
    if (is_over(descriptor)) {
      over.emplace_back(descriptor, connection.cookie);
      Reset(descriptor, connection, State::kCut);
      continue;
    }
    connection.chosen = true;
    connection.round = round_;
    connection.read = 0;
    chosen.push_back(descriptor);
  }
  share_ = budget_ / std::max<size_t>(chosen.size(), 1);
  return chosen;
}

int ReadBudget::TakeWaiting() {
  auto turn = waiting_.upper_bound(last_peer_);
  if (turn == waiting_.end()) turn = waiting_.begin();
  last_peer_ = turn->first;
  const int descriptor = turn->second.front();
  turn->second.pop_front();
  if (turn->second.empty()) waiting_.erase(turn);
  return descriptor;
}

ReadThrottle& ReadThrottle::OfProcess() {
  static ReadThrottle* const throttle = new ReadThrottle;
  return *throttle;
}

ReadThrottle::ReadThrottle()
    : budget_(SocketCookie),
      streams_(std::make_unique<ChannelzCounter>()),
      thread_([this] { Run(); }) {
  throttle_of_process = this;
}

void ReadThrottle::Add(int descriptor, int64_t max_streams) {
  budget_.Add(descriptor, PeerOf(descriptor).Network());
  streams_.Add(descriptor, max_streams);
}

ssize_t ReadThrottle::Receive(int descriptor, msghdr* message, int flags) {
  readers.AddThisThread();
  const size_t most = budget_.Allowance(descriptor);
  if (most == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (most == ReadBudget::kUnbounded) return ReceiveNow(descriptor, message, flags);
  if (most == ReadBudget::kEnded) return 0;
  const ssize_t received = ReceiveAtMost(descriptor, message, flags, most);
  if (received <= 0) return received;
  budget_.NoteRead(descriptor, static_cast<size_t>(received));
  streams_.NoteRead(descriptor, static_cast<size_t>(received));
  return received;
}

void ReadThrottle::Run() {
  NameThisThread("read-throttle");
  for (;;) {
    if (!budget_.AwaitWaiting(std::chrono::hours(1))) continue;
    const steady_clock::time_point begin = steady_clock::now();
    const auto lasts = [begin] { return steady_clock::now() - begin; };
    do {
      std::this_thread::sleep_for(kLookInterval);
    } while (!readers.AllIdle() && lasts() < kLongestRound);
    CutConnections();
    while (streams_.RoomBytes() == 0 && lasts() < kLongestWait) {
      std::this_thread::sleep_for(kLongestRound / 10);
      CutConnections();
    }
    BeginRound(lasts());
  }
}

void ReadThrottle::BeginRound(ReadBudget::Duration last_round) {
  std::vector<std::pair<int, uint64_t>> over;  // closed by their peers
  const std::vector<int> chosen =
      budget_.EndRound(last_round, streams_.RoomBytes(), IsClosedByPeer, over);
  for (const auto& [descriptor, cookie] : over) CutConnection(descriptor, cookie);
  for (const int descriptor : chosen) Wake(descriptor);
}

void ReadThrottle::CutConnections() {
  for (const auto& [descriptor, cookie] : streams_.Enforce()) {
    budget_.Cut(descriptor, cookie);  // first: gRPC looks only once whether the connection is over
    cut_ += CutConnection(descriptor, cookie) ? 1 : 0;
  }
  if (cut_ == 0 || steady_clock::now() < next_report_) return;
  spdlog::warn("{} connections cut that had too many calls open, or none for all they sent",
               std::exchange(cut_, 0));
  next_report_ = steady_clock::now() + kReportInterval;
}

}  // namespace tlm

// Replaces the C library's function for gRPC, which calls it for every read of a connection.
extern "C" ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  tlm::ReadThrottle* const throttle = tlm::throttle_of_process;
  return throttle == nullptr || (flags & MSG_ERRQUEUE) != 0
             ? tlm::ReceiveNow(descriptor, message, flags)
             : throttle->Receive(descriptor, message, flags);
}
