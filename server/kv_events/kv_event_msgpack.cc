#include "server/kv_events/kv_event_msgpack.h"

#include <nlohmann/json.hpp>

#include "absl/time/time.h"

namespace tlm {
namespace {

using Json = nlohmann::json;

constexpr char kMedium[] = "GPU";

Json HashesOf(const KvEvent& event) {
  Json hashes = Json::array();
  for (const auto& block : event.blocks) hashes.push_back(block->hash);
  return hashes;
}

Json Stored(const KvEvent& event) {
  const KvBlock& first = *event.blocks.front();
  Json tokens = Json::array();
  for (const auto& block : event.blocks) {
    for (const int32_t token : block->tokens) tokens.push_back(token);
  }
  Json stored = Json::array({"BlockStored", HashesOf(event), nullptr, std::move(tokens),
                             kBlockTokens, nullptr, kMedium, nullptr});
  if (first.parent_hash.has_value()) {
    stored[2] = *first.parent_hash;
  } else if (!first.scope->salt.empty()) {
    Json keys(event.blocks.size(), nullptr);
    keys[0] = Json::array({first.scope->salt});
    stored.push_back(std::move(keys));
  }
  return stored;
}

Json Event(const KvEvent& event) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return Stored(event);
    case KvEvent::Kind::kRemoved:
      return Json::array({"BlockRemoved", HashesOf(event), kMedium});
    case KvEvent::Kind::kCleared:
      break;
  }
  return Json::array({"AllBlocksCleared"});
}

}  // namespace

std::vector<uint8_t> ToMsgpack(const KvEventBatch& batch) {
  Json events = Json::array();
  for (const KvEvent& event : batch.events) events.push_back(Event(event));
  return Json::to_msgpack(
      Json::array({absl::ToDoubleSeconds(batch.time - absl::UnixEpoch()), std::move(events), 0}));
}

}  // namespace tlm
