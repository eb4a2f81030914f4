// The hashes behind Balance::kPrefixAffinity. They are part of the library's contract: clients of
// different versions have to send a conversation to the same replica.
#ifndef TLM_CLIENT_CPP_AFFINITY_H_
#define TLM_CLIENT_CPP_AFFINITY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// What a request begins with (balance.h), as a number; `key` is CallOptions::affinity_key. Nothing
// for requests that no replica serves better than another.
std::optional<uint64_t> AffinityOf(const v1::GenerateRequest& request, std::string_view key);

// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t HashOf(std::string_view bytes);

// How well a target suits an affinity: the one with the largest score comes first (rendezvous
// hashing; Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998).
// `target` is HashOf its name.
uint64_t RendezvousScore(uint64_t affinity, uint64_t target);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_AFFINITY_H_
