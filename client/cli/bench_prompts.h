// The prompts that `tlm bench` sends.
#ifndef TLM_CLIENT_CLI_BENCH_PROMPTS_H_
#define TLM_CLIENT_CLI_BENCH_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

// Immutable.
class BenchPrompts {
 public:
  static constexpr uint32_t kMaxTokens = 1 << 20;  // of a random prompt

  // Each of `tokens` ids below `vocab_size`, drawn from `seed`: no two begin alike, so that nothing
  // is found in a prefix cache. INVALID_ARGUMENT when one of the two is 0 or `tokens` is over the
  // limit.
  static absl::StatusOr<BenchPrompts> Random(uint32_t tokens, uint32_t vocab_size, uint64_t seed);

  // The lines of a file, in turn; empty ones are left out, and one that begins with a double quote
  // is a JSON string, so that it may hold line breaks. NOT_FOUND when it cannot be read;
  // INVALID_ARGUMENT, naming the line, for what is not UTF-8 or not JSON, for a file without
  // prompts and for one over 64 MiB.
  static absl::StatusOr<BenchPrompts> FromFile(const std::string& path);

  // Puts prompt `index` into the request: a pure function of it.
  void Set(uint64_t index, v1::GenerateRequest* request) const;

 private:
  BenchPrompts() = default;

  std::vector<std::string> texts_;  // empty = random
  uint32_t tokens_ = 0;
  uint32_t vocab_size_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_PROMPTS_H_
