// The hashes of Balance::kPrefixAffinity. They must not change: clients of different versions have
// to send a conversation to the same replica.
#ifndef TLM_CLIENT_CPP_AFFINITY_H_
#define TLM_CLIENT_CPP_AFFINITY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// The hash of a request's prefix (balance.h); `key` is CallOptions::affinity_key. None if the
// request bypasses the prefix cache or has no input.
std::optional<uint64_t> AffinityOf(const v1::GenerateRequest& request, std::string_view key);

// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t HashOf(std::string_view bytes);

// Rendezvous hashing: the target with the largest score comes first. `target` is HashOf its name.
// Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.
uint64_t RendezvousScore(uint64_t affinity, uint64_t target);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_AFFINITY_H_
