#include "model/describe/flops.h"

#include "model/base/error_details.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr char kConvention[] =
    "a multiply-add counts 2; matrix products only; a pass for each prompt token and each new one, "
    "the last one too; the full square of scores, masked pairs and those outside a sliding window "
    "too; the LM head for every position; so serving computes at most this";

absl::Status TooLong(const char* field, uint64_t value, uint64_t beside, const char* beside_what) {
  return WithField(
      InvalidArgument("{} is {} beside {} {}, at most {} tokens a sequence are counted", field,
                      value, beside, beside_what, ConfigLimits::kContextLength),
      field);
}

}  // namespace

absl::StatusOr<FlopsQuery> ResolveFlopsQuery(const v1::FlopsQuery& query,
                                             const ModelConfig& config) {
  const auto context = static_cast<uint64_t>(config.context_length);
  constexpr auto kLimit = static_cast<uint64_t>(ConfigLimits::kContextLength);
  FlopsQuery resolved;
  resolved.batch = query.batch() == 0 ? 1 : query.batch();
  resolved.prompt_tokens = query.prompt_tokens();
  resolved.new_tokens = query.new_tokens();
  if (resolved.prompt_tokens == 0 && resolved.new_tokens < context) {
    resolved.prompt_tokens = context - resolved.new_tokens;
  }
  if (resolved.prompt_tokens > kLimit) {
    return TooLong("flops.prompt_tokens", resolved.prompt_tokens, resolved.new_tokens,
                   "new tokens");
  }
  if (resolved.new_tokens > kLimit - resolved.prompt_tokens) {
    return TooLong("flops.new_tokens", resolved.new_tokens, resolved.prompt_tokens,
                   "prompt tokens");
  }
  return resolved;
}

void FillFlops(const ModelConfig& config, const FlopsQuery& query, v1::FlopsInfo& flops) {
  const FlopsCount count = CountFlops(config, query);
  flops.set_convention(kConvention);
  flops.mutable_query()->set_batch(static_cast<uint32_t>(query.batch));
  flops.mutable_query()->set_prompt_tokens(static_cast<uint32_t>(query.prompt_tokens));
  flops.mutable_query()->set_new_tokens(static_cast<uint32_t>(query.new_tokens));
  flops.set_total(count.total);
  const auto fill = [&count](uint64_t part, v1::FlopsComponent& component) {
    component.set_flops(part);
    component.set_share(
        count.total == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(count.total));
  };
  v1::FlopsBreakdown& parts = *flops.mutable_components();
  fill(count.qkv, *parts.mutable_qkv());
  fill(count.scores, *parts.mutable_scores());
  fill(count.weighted_sum, *parts.mutable_weighted_sum());
  fill(count.output_projection, *parts.mutable_output_projection());
  fill(count.ffn_up, *parts.mutable_ffn_up());
  fill(count.ffn_gate, *parts.mutable_ffn_gate());
  fill(count.ffn_down, *parts.mutable_ffn_down());
  fill(count.lm_head, *parts.mutable_lm_head());
  flops.set_flops_per_token_linear(count.per_token_linear);
  flops.set_attention_flops_per_token_per_context(count.attention_per_token_per_context);
}

}  // namespace tlm
