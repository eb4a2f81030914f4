#include "server/rpc/model_info_handler.h"

#include "model/accounting/flops.h"
#include "model/accounting/parameters.h"
#include "model/base/errors.h"
#include "model/ops/ops.h"
#include "server/rpc/convert.h"
#include "server/rpc/field_error.h"

namespace tlm {
namespace {

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }
uint64_t U64(int64_t value) { return static_cast<uint64_t>(value); }

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kBF16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kF16:
      return v1::DATA_TYPE_FLOAT16;
    default:
      return v1::DATA_TYPE_UNSPECIFIED;
  }
}

void FillIdentity(const ServedModel& model, v1::ModelIdentity& identity) {
  identity.set_model_id(model.model_id);
  identity.set_architecture(model.config.architecture);
  identity.set_weights_sha256(model.weights_sha256);
  identity.set_tokenizer_sha256(model.tokenizer_sha256);
  identity.set_server_version(model.server_version);
  identity.set_api_revision(kApiRevision);
  identity.set_backend(model.backend);
  identity.set_device_name(model.device_name);
}

void FillRope(const ModelConfig& config, v1::RopeInfo& rope) {
  if (!config.rope_theta.has_value()) {
    rope.set_layout(v1::ROPE_LAYOUT_NONE);
    return;
  }
  rope.set_theta(*config.rope_theta);
  rope.set_layout(config.rope_layout == RopeLayout::kInterleaved ? v1::ROPE_LAYOUT_INTERLEAVED
                                                                 : v1::ROPE_LAYOUT_HALF);
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
  v1::NormInfo& norm = *architecture.mutable_norm();
  norm.set_kind(v1::NORM_KIND_RMS);
  norm.set_eps(config.norm_eps);
  norm.set_placement(v1::NORM_PLACEMENT_PRE);
  norm.set_eps_placement(v1::NORM_EPS_PLACEMENT_INSIDE_ROOT);
  architecture.set_activation(v1::ACTIVATION_SWIGLU);
  architecture.set_qk_norm(config.qk_norm);
  architecture.mutable_biases();
  architecture.set_tie_word_embeddings(config.tie_word_embeddings);
}

void FillParameters(const ServedModel& model, bool include_tensors,
                    v1::ParameterCounts& parameters) {
  const ParameterCounts counts = CountParameters(model.config);
  parameters.set_total(counts.total);
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
  if (!include_tensors) return;
  for (const TensorRecord& record : model.tensors) {
    v1::TensorInfo& tensor = *parameters.add_tensors();
    tensor.set_name(record.name);
    tensor.set_dtype(ToProto(record.dtype));
    for (int axis = 0; axis < record.shape.rank(); ++axis)
      tensor.add_shape(U64(record.shape[axis]));
    tensor.set_elements(U64(record.shape.elements()));
  }
}

absl::StatusOr<FlopsQuery> ConvertFlopsQuery(const v1::FlopsQuery& message,
                                             const ModelConfig& config) {
  const uint64_t context = U64(config.context_length);
  FlopsQuery query;
  query.batch = message.batch() == 0 ? 1 : message.batch();
  query.new_tokens = message.new_tokens();
  if (query.new_tokens > context) {
    return BadField("flops.new_tokens", "is {}, the context has {} tokens", query.new_tokens,
                    context);
  }
  query.prompt_tokens =
      message.prompt_tokens() == 0 ? context - query.new_tokens : message.prompt_tokens();
  if (query.prompt_tokens + query.new_tokens > context) {
    return BadField("flops.prompt_tokens", "is {} beside {} new tokens, the context has {}",
                    query.prompt_tokens, query.new_tokens, context);
  }
  return query;
}

void FillFlops(const ModelConfig& config, const FlopsQuery& query, v1::FlopsInfo& flops) {
  const FlopsCount count = CountFlops(config, query);
  flops.set_convention(
      "a multiply-add counts 2; matrix products only; the full square of scores; the LM head for "
      "every position");
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

void FillMemory(const ServedMemory& from, v1::MemoryInfo& memory) {
  uint64_t weights = 0;
  for (const auto& [dtype, bytes] : from.weights) {
    v1::WeightBytes& entry = *memory.add_weights();
    entry.set_dtype(ToProto(dtype));
    entry.set_bytes(bytes);
    weights += bytes;
  }
  memory.set_kv_bytes_per_token(from.kv_bytes_per_token);
  memory.set_kv_block_tokens(kBlockTokens);
  memory.set_kv_blocks_total(from.kv_blocks);
  memory.set_activation_arena(from.activations);
  memory.set_logits_workspace(from.logits);
  memory.set_runtime_reserved(from.runtime);
  memory.set_device_total(from.device_total);
  const uint64_t kv_bytes = from.kv_blocks * kBlockTokens * from.kv_bytes_per_token;
  memory.set_allocated_total(weights + kv_bytes + from.activations + from.logits + from.runtime);
}

void FillLimits(const RequestLimits& from, v1::LimitsInfo& limits) {
  limits.set_max_context_tokens(U32(from.max_context_tokens));
  limits.set_max_num_sequences(U32(from.max_num_sequences));
  limits.set_max_stop_strings(U32(from.max_stop_strings));
  limits.set_max_stop_string_bytes(U32(from.max_stop_string_bytes));
  limits.set_max_stop_token_ids(U32(from.max_stop_token_ids));
  limits.set_max_top_logprobs(U32(from.max_top_logprobs));
  limits.set_max_request_id_bytes(U32(from.max_request_id_bytes));
  limits.set_max_cache_salt_bytes(U32(from.max_cache_salt_bytes));
  limits.set_max_text_bytes(U64(from.max_text_bytes));
  limits.set_max_request_bytes(U64(from.max_request_bytes));
  limits.set_max_response_bytes(U64(from.max_response_bytes));
  limits.set_max_forward_sequences(U32(from.max_forward_sequences));
  limits.set_max_forward_tokens(U32(from.max_forward_tokens));
  limits.set_max_forward_rows(U32(from.max_forward_rows));
  limits.set_max_forward_top_k(U32(from.max_forward_top_k));
  limits.set_max_queued_requests(U32(from.max_queued_requests));
  limits.set_max_queued_tokens(U64(from.max_queued_tokens));
  limits.set_max_running_sequences(U32(from.max_running_requests));
  limits.set_max_step_tokens(U32(from.max_batch_tokens));
  limits.set_max_prompt_tokens(U32(from.max_prompt_tokens()));
}

void FillCapabilities(const ServedModel& model, v1::CapabilitiesInfo& capabilities) {
  capabilities.set_tokenizer(model.tokenizer != nullptr);
  capabilities.set_forward(true);
  for (const v1::DataType dtype :
       {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT16}) {
    capabilities.add_forward_dtypes(dtype);
  }
}

void FillDefaultSampling(const SamplingParams& from, v1::SamplingParams& sampling) {
  sampling.set_temperature(from.temperature);
  sampling.set_top_k(from.top_k);
  sampling.set_top_p(from.top_p);
  sampling.set_min_p(from.min_p);
  sampling.set_typical_p(1.0f);
  sampling.set_repetition_penalty(1.0f);
  sampling.set_presence_penalty(0.0f);
  sampling.set_frequency_penalty(0.0f);
  sampling.set_num_sequences(1);
}

void FillDeterminism(const ServedModel& model, v1::DeterminismInfo& determinism) {
  determinism.set_fingerprint(model.fingerprint);
  determinism.set_guarantee(v1::DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE);
  for (const v1::DeterminismScope scope :
       {v1::DETERMINISM_SCOPE_BATCH, v1::DETERMINISM_SCOPE_CHUNKING,
        v1::DETERMINISM_SCOPE_PREEMPTION, v1::DETERMINISM_SCOPE_REPLICA}) {
    determinism.add_scope(scope);
  }
}

}  // namespace

absl::Status GetModelInfo(const v1::ModelInfoRequest& request, const ServedModel& model,
                          v1::ModelInfoResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_ASSIGN_OR_RETURN(const FlopsQuery flops, ConvertFlopsQuery(request.flops(), model.config));
  FillIdentity(model, *response.mutable_identity());
  FillArchitecture(model.config, *response.mutable_architecture());
  FillParameters(model, request.include_tensors(), *response.mutable_parameters());
  FillFlops(model.config, flops, *response.mutable_flops());
  FillMemory(model.memory, *response.mutable_memory());
  FillLimits(model.limits, *response.mutable_limits());
  FillCapabilities(model, *response.mutable_capabilities());
  FillDefaultSampling(model.default_sampling, *response.mutable_default_sampling());
  FillDeterminism(model, *response.mutable_determinism());
  return absl::OkStatus();
}

}  // namespace tlm
