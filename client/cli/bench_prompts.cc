#include "client/cli/bench_prompts.h"

#include <fmt/format.h>

#include <random>
#include <sstream>
#include <string_view>
#include <utility>

#include "client/cli/base/text.h"
#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm::cli {
namespace {

constexpr size_t kMaxPromptFileBytes = size_t{64} << 20;

absl::StatusOr<std::string> PromptOf(std::string_view line) {
  if (!line.starts_with('"')) {
    TLM_RETURN_IF_ERROR(CheckUtf8(line));
    return std::string(line);
  }
  const absl::StatusOr<nlohmann::json> json = ParseJson(line);
  if (!json.ok()) return json.status();
  if (!json->is_string()) return InvalidArgument("is not a JSON string");
  return json->get<std::string>();
}

}  // namespace

absl::StatusOr<BenchPrompts> BenchPrompts::Random(uint32_t tokens, uint32_t vocab_size,
                                                  uint64_t seed) {
  if (tokens == 0 || tokens > kMaxTokens) {
    return InvalidArgument("--prompt_tokens is {}, the range is [1, {}]", tokens, kMaxTokens);
  }
  if (vocab_size == 0) return InvalidArgument("the server names no vocab_size");
  BenchPrompts prompts;
  prompts.tokens_ = tokens;
  prompts.vocab_size_ = vocab_size;
  prompts.seed_ = seed;
  return prompts;
}

absl::StatusOr<BenchPrompts> BenchPrompts::FromFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxPromptFileBytes);
  if (!text.ok()) return text.status();
  BenchPrompts prompts;
  std::istringstream lines(*text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    absl::StatusOr<std::string> prompt = PromptOf(line);
    if (!prompt.ok()) {
      return InvalidArgument("{}, line {}: {}", path, number,
                             std::string(prompt.status().message()));
    }
    prompts.texts_.push_back(*std::move(prompt));
  }
  if (prompts.texts_.empty()) {
    return InvalidArgument("{}: contains no prompt", path);
  }
  return prompts;
}

void BenchPrompts::Set(uint64_t index, v1::GenerateRequest* request) const {
  if (!texts_.empty()) {
    request->set_prompt(texts_[index % texts_.size()]);
    return;
  }
  std::seed_seq seed{seed_, seed_ >> 32, index, index >> 32};
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<uint32_t> sample(0, vocab_size_ - 1);
  auto& ids = *request->mutable_prompt_token_ids()->mutable_ids();
  ids.Clear();
  ids.Reserve(static_cast<int>(tokens_));
  for (uint32_t i = 0; i < tokens_; ++i) ids.Add(sample(random));
}

}  // namespace tlm::cli
