#include "model/describe/architecture.h"

#include "model/accounting/parameters.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }

const char* ScalingName(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::kLinear:
      return "linear";
    case RopeScaling::Kind::kLlama3:
      return "llama3";
    case RopeScaling::Kind::kYarn:
      return "yarn";
    case RopeScaling::Kind::kFactors:
      return "factors";
  }
  return "";
}

void FillScaling(const RopeScaling& from, v1::RopeScaling& scaling) {
  scaling.set_kind(ScalingName(from.kind));
  if (from.kind == RopeScaling::Kind::kFactors) {
    for (const double factor : from.factors) scaling.add_factors(factor);
    return;
  }
  scaling.set_factor(from.factor);
  if (from.kind == RopeScaling::Kind::kLinear) return;
  scaling.set_original_context_length(U32(from.original_context_length));
  if (from.kind == RopeScaling::Kind::kLlama3) {
    scaling.set_low_freq_factor(from.low_freq_factor);
    scaling.set_high_freq_factor(from.high_freq_factor);
    return;
  }
  scaling.set_beta_fast(from.beta_fast);
  scaling.set_beta_slow(from.beta_slow);
  scaling.set_attention_factor(from.attention_factor);
  scaling.set_truncate(from.truncate);
}

void FillRope(const ModelConfig& config, v1::RopeInfo& rope) {
  if (!config.rope_theta.has_value()) {
    rope.set_layout(v1::ROPE_LAYOUT_NONE);
    return;
  }
  rope.set_theta(*config.rope_theta);
  rope.set_layout(config.rope_layout == RopeLayout::kInterleaved ? v1::ROPE_LAYOUT_INTERLEAVED
                                                                 : v1::ROPE_LAYOUT_HALF);
  if (config.rope_scaling.has_value()) FillScaling(*config.rope_scaling, *rope.mutable_scaling());
}

void FillNorm(const ModelConfig& config, v1::NormInfo& norm) {
  norm.set_kind(config.norm_kind == NormKind::kLayer ? v1::NORM_KIND_LAYER : v1::NORM_KIND_RMS);
  norm.set_eps(config.norm_eps);
  norm.set_placement(v1::NORM_PLACEMENT_PRE);
  norm.set_eps_placement(config.norm_eps_placement == NormEps::kOutsideRoot
                             ? v1::NORM_EPS_PLACEMENT_OUTSIDE_ROOT
                             : v1::NORM_EPS_PLACEMENT_INSIDE_ROOT);
}

v1::Activation ActivationOf(FfnKind kind) {
  switch (kind) {
    case FfnKind::kSwiGlu:
      return v1::ACTIVATION_SWIGLU;
    case FfnKind::kSilu:
      return v1::ACTIVATION_SILU;
    case FfnKind::kRelu:
      return v1::ACTIVATION_RELU;
    case FfnKind::kGeluTanh:
      return v1::ACTIVATION_GELU_TANH;
    case FfnKind::kGelu:
      return v1::ACTIVATION_GELU;
  }
  return v1::ACTIVATION_UNSPECIFIED;
}

void FillSlidingWindow(const ModelConfig& config, v1::ArchitectureInfo& architecture) {
  uint32_t layers = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.WindowOf(layer) > 0) ++layers;
  }
  if (layers == 0) return;
  architecture.set_sliding_window(U32(*config.sliding_window));
  architecture.set_sliding_window_layers(layers);
}

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

v1::DataType DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kBF16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kF16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kI8:
    case DType::kQ8_0:
    case DType::kI8G32:
    case DType::kI8G64:
    case DType::kI8G128:
    case DType::kI8G256:
      return v1::DATA_TYPE_INT8;
    default:
      return IsBlockQuantised(dtype) ? v1::DATA_TYPE_BLOCKS : v1::DATA_TYPE_UNSPECIFIED;
  }
}

void FillArchitecture(const ModelConfig& config, v1::ArchitectureInfo& architecture) {
  architecture.set_num_layers(U32(config.num_layers));
  architecture.set_d_model(U32(config.d_model));
  architecture.set_num_heads(U32(config.num_heads));
  architecture.set_num_kv_heads(U32(config.num_kv_heads));
  architecture.set_head_dim(U32(config.head_dim));
  architecture.set_d_ff(U32(config.d_ff));
  architecture.set_vocab_size(U32(config.vocab_size));
  architecture.set_context_length(U32(config.context_length));
  FillRope(config, *architecture.mutable_rope());
  FillNorm(config, *architecture.mutable_norm());
  architecture.set_activation(ActivationOf(config.ffn_kind));
  architecture.set_qk_norm(config.qk_norm);
  v1::BiasInfo& biases = *architecture.mutable_biases();
  biases.set_qkv(config.biases.qkv);
  biases.set_attention_output(config.biases.attention_output);
  biases.set_ffn(config.biases.ffn);
  architecture.set_tie_word_embeddings(config.tie_word_embeddings);
  architecture.set_learned_positions(config.learned_positions);
  FillSlidingWindow(config, architecture);
}

void FillParameters(const ModelConfig& config, uint64_t stored, v1::ParameterCounts& parameters) {
  const ParameterCounts counts = CountParameters(config);
  parameters.set_total(counts.total);
  // Quantised matrices have several tensors, and their elements are no parameters.
  const bool is_known = stored > 0 && config.quantisation.empty();
  parameters.set_stored(is_known ? stored : counts.total);
  parameters.set_embedding(counts.embedding);
  parameters.set_position_embedding(counts.position_embedding);
  parameters.set_lm_head(counts.lm_head);
  v1::AttentionParameters& attention = *parameters.mutable_attention();
  attention.set_q(counts.attention_q);
  attention.set_k(counts.attention_k);
  attention.set_v(counts.attention_v);
  attention.set_o(counts.attention_o);
  v1::FfnParameters& ffn = *parameters.mutable_ffn();
  ffn.set_gate(counts.ffn_gate);
  ffn.set_up(counts.ffn_up);
  ffn.set_down(counts.ffn_down);
  parameters.set_norms(counts.norms);
  parameters.set_biases(counts.biases);
  parameters.set_non_embedding(counts.non_embedding);
}

void AddWeights(DType dtype, uint64_t bytes, v1::MemoryInfo& memory) {
  v1::WeightBytes& weights = *memory.add_weights();
  weights.set_dtype(DataTypeOf(dtype));
  weights.set_bytes(bytes);
  weights.set_type(DTypeName(dtype));
}

void AddTensor(const std::string& name, DType dtype, std::optional<DType> stored,
               const Shape& shape, v1::ParameterCounts& parameters) {
  v1::TensorInfo& tensor = *parameters.add_tensors();
  tensor.set_name(name);
  tensor.set_dtype(DataTypeOf(dtype));
  for (int axis = 0; axis < shape.rank(); ++axis) {
    tensor.add_shape(static_cast<uint64_t>(shape[axis]));
  }
  const auto elements = static_cast<uint64_t>(shape.elements());
  tensor.set_elements(elements);
  if (!stored.has_value()) return;
  tensor.set_stored_type(DTypeName(*stored));
  tensor.set_stored_bytes(StoredBytes(*stored, elements));
}

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
