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
  static constexpr uint32_t kMaxTokens = 1 << 20;  // limit of a random prompt

  // Makes prompts of `tokens` random ids below `vocab_size`, sampled from `seed`: no two share a
  // prefix that a cache could hold. INVALID_ARGUMENT if `tokens` or `vocab_size` is 0, or `tokens`
  // is over kMaxTokens.
  static absl::StatusOr<BenchPrompts> Random(uint32_t tokens, uint32_t vocab_size, uint64_t seed);

  // Takes the lines of a file in turn, without empty ones. A line that starts with a double quote
  // is a JSON string, which may contain line breaks. NOT_FOUND if the file cannot be read;
  // INVALID_ARGUMENT, naming the line, for invalid UTF-8 or JSON, for a file without prompts or
  // over 64 MiB.
  static absl::StatusOr<BenchPrompts> FromFile(const std::string& path);

  // Sets prompt `index` in the request; a pure function of the index.
  void Set(uint64_t index, v1::GenerateRequest* request) const;

 private:
  BenchPrompts() = default;

  std::vector<std::string> texts_;  // empty for random prompts
  uint32_t tokens_ = 0;
  uint32_t vocab_size_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_PROMPTS_H_
