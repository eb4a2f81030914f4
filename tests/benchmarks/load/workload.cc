#include "tests/benchmarks/load/workload.h"

#include <cmath>

#include "model/base/errors.h"

namespace tlm::bench {
namespace {

constexpr int64_t kMaxPrefixGroups = 4096;
constexpr double kMaxPriority = 100;  // of GenerateRequest

uint32_t SampleToken(Random& random, uint32_t vocab_size) {
  return std::uniform_int_distribution<uint32_t>(0, vocab_size - 1)(random);
}

int64_t SharedTokens(double share, int64_t prompt_tokens) {
  return static_cast<int64_t>(std::floor(share * static_cast<double>(prompt_tokens)));
}

// Independent random numbers for each pair (a, b).
Random Seeded(uint64_t seed, uint64_t a, uint64_t b) {
  std::seed_seq sequence = {seed, seed >> 32, a, a >> 32, b, b >> 32};
  return Random(sequence);
}

constexpr uint64_t kPrefixes = ~uint64_t{0};

absl::Status CheckLengths(const WorkloadOptions& options, double max_context) {
  const double prompt = options.prompt_tokens.max();
  const double output = options.output_tokens.max();
  if (options.prompt_tokens.min() < 1 || options.output_tokens.min() < 1) {
    return InvalidArgument("prompts and outputs have at least 1 token, not {} and {}",
                           options.prompt_tokens.min(), options.output_tokens.min());
  }
  if (prompt + output > max_context) {
    return InvalidArgument("prompts of {} and outputs of {} tokens: the server's context is {}",
                           prompt, output, max_context);
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const WorkloadOptions& options) {
  if (!(options.shared_prefix >= 0 && options.shared_prefix <= 1)) {
    return InvalidArgument("a shared prefix of {} is not in [0, 1]", options.shared_prefix);
  }
  if (options.prefix_groups < 1 || options.prefix_groups > kMaxPrefixGroups) {
    return InvalidArgument("{} prefix groups are not within 1 to {}", options.prefix_groups,
                           kMaxPrefixGroups);
  }
  if (options.priority.min() < -kMaxPriority || options.priority.max() > kMaxPriority) {
    return InvalidArgument("priorities {} are not within [-{}, {}]", options.priority.text(),
                           kMaxPriority, kMaxPriority);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Workload> Workload::Create(const WorkloadOptions& options,
                                          const v1::ModelInfoResponse& model) {
  const uint32_t vocab_size = model.architecture().vocab_size();
  if (vocab_size == 0) return InvalidArgument("the server names no vocab_size");
  TLM_RETURN_IF_ERROR(CheckOptions(options));
  TLM_RETURN_IF_ERROR(CheckLengths(options, model.limits().max_context_tokens()));
  return Workload(options, vocab_size);
}

Workload::Workload(const WorkloadOptions& options, uint32_t vocab_size)
    : options_(options), vocab_size_(vocab_size) {
  const auto longest = static_cast<int64_t>(options.prompt_tokens.max());
  const int64_t shared = SharedTokens(options.shared_prefix, longest);
  for (int64_t group = 0; group < options.prefix_groups; ++group) {
    Random random = Seeded(options.seed, kPrefixes, static_cast<uint64_t>(group));
    std::vector<uint32_t>& prefix = prefixes_.emplace_back();
    for (int64_t i = 0; i < shared; ++i) prefix.push_back(SampleToken(random, vocab_size));
  }
}

load::PlannedRequest Workload::Make(uint64_t run, uint64_t index) const {
  Random random = Seeded(options_.seed, run, index);
  load::PlannedRequest request;
  const int64_t prompt_tokens = options_.prompt_tokens.SampleCount(random);
  request.deadline_seconds = options_.deadline.SampleSeconds(random);

  v1::GenerateRequest& message = request.message;
  const auto group = std::uniform_int_distribution<size_t>(0, prefixes_.size() - 1)(random);
  const int64_t shared = SharedTokens(options_.shared_prefix, prompt_tokens);
  auto& ids = *message.mutable_prompt_token_ids()->mutable_ids();
  ids.Reserve(static_cast<int>(prompt_tokens));
  ids.Add(prefixes_[group].begin(), prefixes_[group].begin() + shared);
  while (ids.size() < prompt_tokens) ids.Add(SampleToken(random, vocab_size_));

  const auto output = static_cast<uint32_t>(options_.output_tokens.SampleCount(random));
  message.mutable_stopping()->set_max_new_tokens(output);
  message.mutable_stopping()->set_ignore_eos(true);
  // All parameters are set, so that the model's own defaults do not matter.
  v1::SamplingParams& sampling = *message.mutable_sampling();
  sampling.set_temperature(options_.temperature);
  sampling.set_top_k(0);
  sampling.set_top_p(1);
  sampling.set_min_p(0);
  sampling.set_typical_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_seed(random());
  message.mutable_output()->set_text(options_.text);
  if (!options_.json_schema.empty()) {
    message.set_json_schema(options_.json_schema);
    message.mutable_json()->set_whitespace(v1::JSON_WHITESPACE_COMPACT);
  }
  message.mutable_output()->set_token_ids(true);
  message.mutable_scheduling()->set_priority(
      static_cast<int32_t>(options_.priority.SampleCount(random)));
  return request;
}

}  // namespace tlm::bench
