// The server as in production, around a no-op model.
#ifndef TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_
#define TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tlm::bench {

// Its limits: concurrent streams, tokens of a sequence, tokens of a prompt if all streams start at
// once.
inline constexpr int64_t kNoopStreams = 512;
inline constexpr int64_t kNoopContext = 4096;
inline constexpr int64_t kNoopPromptTokens = 8;

// The name of the engine's thread, to measure its CPU time.
inline constexpr char kEngineThreadName[] = "engine";

// Serves on loopback until the process is killed; writes its port to `port_file`.
// `rows_per_second`: see NoopModel. Returns only if starting fails.
absl::Status ServeNoopModel(int port, const std::string& port_file, double rows_per_second);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_NOOP_SERVER_H_
