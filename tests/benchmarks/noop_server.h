// The server as it is put together in production, around a model that costs nothing.
#ifndef TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_
#define TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tlm::bench {

// What it has room for: streams at a time, tokens of a sequence, tokens of a prompt when all of
// them start at once.
inline constexpr int64_t kNoopStreams = 512;
inline constexpr int64_t kNoopContext = 4096;
inline constexpr int64_t kNoopPromptTokens = 8;

// The name of the engine's thread, so that its time can be told from the others'.
inline constexpr char kEngineThreadName[] = "engine";

// Serves on loopback until the process is killed; writes its port to `port_file`. The model gives
// `rows_per_second` tokens at the most; 0 = as many as it is asked for. Returns only the errors of
// starting.
absl::Status ServeNoopModel(int port, const std::string& port_file, double rows_per_second);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_
