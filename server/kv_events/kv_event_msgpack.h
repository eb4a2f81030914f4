// KV events as vLLM writes them.
#ifndef TLM_SERVER_KV_EVENTS_KV_EVENT_MSGPACK_H_
#define TLM_SERVER_KV_EVENTS_KV_EVENT_MSGPACK_H_

#include <cstdint>
#include <vector>

#include "server/batching/kv_event_log.h"

namespace tlm {

// The batch in msgpack: [time in seconds, [event, ...], data-parallel rank], where an event is
//
//   ["BlockStored", [hash, ...], parent's hash or nil, [token id, ...], tokens of a block, LoRA id,
//    medium, LoRA name]    and, of the first blocks of a prompt with a salt, [[salt], nil, ...]
//   ["BlockRemoved", [hash, ...], medium]
//   ["AllBlocksCleared"]
//
// Hashes are unsigned integers of 64 bits. The medium is always "GPU", vLLM's word for the memory
// that the engine computes in; there is no LoRA and the rank is 0.
std::vector<uint8_t> ToMsgpack(const KvEventBatch& batch);

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_KV_EVENT_MSGPACK_H_
