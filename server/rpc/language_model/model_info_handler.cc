#include <vector>

#include "model/base/errors.h"
#include "model/describe/architecture.h"
#include "model/ops/ops.h"
#include "model/weights/name_map.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/proto_time.h"
#include "server/rpc/convert/sampling_message.h"
#include "server/rpc/language_model/handlers.h"

namespace tlm {
namespace {

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }
uint64_t U64(int64_t value) { return static_cast<uint64_t>(value); }

void FillIdentity(const ServedModel& model, v1::ModelIdentity& identity) {
  identity.set_model_id(model.model_id);
  identity.set_architecture(model.config.architecture);
  if (model.weights_sha256) identity.set_weights_sha256(model.weights_sha256());
  identity.set_tokenizer_sha256(model.tokenizer_sha256);
  identity.set_server_version(model.server_version);
  identity.set_build_id(model.build_id);
  identity.set_api_revision(kApiRevision);
  identity.set_backend(model.backend);
  identity.set_device_name(model.device_name);
  identity.set_device_uuid(model.device_uuid);
}

// Elements of the checkpoint's parameters, without the buffers that some checkpoints also store.
uint64_t StoredElements(const std::vector<TensorRecord>& tensors) {
  uint64_t stored = 0;
  for (const TensorRecord& tensor : tensors) {
    if (!IsKnownBuffer(tensor.name, tensor.shape.rank())) stored += U64(tensor.shape.elements());
  }
  return stored;
}

void FillMemory(const ServedMemory& from, v1::MemoryInfo& memory) {
  uint64_t weights = 0;
  for (const auto& [dtype, bytes] : from.weights) {
    AddWeights(dtype, bytes, memory);
    weights += bytes;
  }
  memory.set_kv_bytes_per_token(from.kv_bytes_per_token);
  memory.set_kv_type(DTypeName(from.kv_dtype));
  memory.set_kv_block_tokens(kBlockTokens);
  memory.set_kv_blocks_total(from.kv_blocks);
  memory.set_activation_arena(from.activations);
  memory.set_logits_workspace(from.logits);
  const uint64_t graphs = from.graphs ? from.graphs() : 0;
  memory.set_graph_pool(graphs);
  memory.set_runtime_reserved(from.runtime);
  memory.set_device_total(from.device_total);
  const uint64_t kv_bytes = from.kv_blocks * kBlockTokens * from.kv_bytes_per_token;
  memory.set_draft_model(from.draft_model);
  memory.set_allocated_total(weights + kv_bytes + from.activations + from.logits + graphs +
                             from.runtime + from.draft_model);
}

void FillLimits(const RequestLimits& from, v1::LimitsInfo& limits) {
  limits.set_max_context_tokens(U32(from.max_context_tokens));
  limits.set_max_num_sequences(U32(from.max_num_sequences));
  limits.set_max_stop_strings(U32(from.max_stop_strings));
  limits.set_max_stop_string_bytes(U32(from.max_stop_string_bytes));
  limits.set_max_stop_token_ids(U32(from.max_stop_token_ids));
  limits.set_max_logit_bias_entries(U32(from.max_logit_bias_entries));
  limits.set_max_allowed_token_ids(U32(from.max_allowed_token_ids));
  limits.set_max_banned_token_ids(U32(from.max_banned_token_ids));
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
  limits.set_max_score_continuations(U32(from.max_score_continuations));
  limits.set_max_queued_requests(U32(from.engine.max_queued_requests));
  limits.set_max_queued_tokens(U64(from.engine.max_queued_tokens));
  limits.set_max_running_sequences(U32(from.engine.max_running_requests));
  limits.set_max_step_tokens(U32(from.engine.max_batch_tokens));
  limits.set_max_prompt_tokens(U32(from.max_prompt_tokens()));
  limits.set_max_chat_messages(U32(from.max_chat_messages));
  limits.set_max_tools(U32(from.max_tools));
  limits.set_max_draft_tokens(U32(from.engine.max_draft_tokens));
  limits.set_max_step_prefill_tokens(U32(from.engine.max_prefill_tokens));
  limits.set_max_constraint_bytes(from.constraint.max_text_bytes);
  limits.set_max_constraint_states(U32(static_cast<int64_t>(from.constraint.max_states)));
  limits.set_max_constraint_memory_bytes(from.constraint.max_bytes);
  SetDuration(from.constraint.max_compile_time, limits.mutable_max_constraint_time());
  if (from.engine.max_queue_time != absl::InfiniteDuration()) {
    SetDuration(from.engine.max_queue_time, limits.mutable_max_queue_time());
  }
}

void FillChatFormat(const ChatFormat& format, const ChatTemplateTraits& traits,
                    v1::ChatFormatInfo& info) {
  if (format.tools != nullptr) {
    info.set_tool_format(std::string(format.tools->name));
    info.set_parallel_tool_calls(format.tools->parallel);
  }
  if (format.reasoning != nullptr) info.set_reasoning_format(std::string(format.reasoning->name));
  info.set_tools(traits.tools);
  info.set_tool_calls(traits.tool_calls);
  info.set_tool_results(traits.tool_results);
  info.set_reasoning_switch(traits.reasoning_switch);
  info.set_special_markers(format.special_markers());
}

void FillCapabilities(const ServedModel& model, v1::CapabilitiesInfo& capabilities) {
  capabilities.set_tokenizer(model.tokenizer != nullptr);
  capabilities.set_chat(model.tokenizer != nullptr && model.chat != nullptr);
  if (capabilities.chat()) {
    FillChatFormat(model.chat_format, model.chat->traits(), *capabilities.mutable_chat_format());
  }
  capabilities.set_constraints(model.tokenizer != nullptr);
  capabilities.set_resume(true);
  capabilities.set_forward(true);
  capabilities.set_score(true);
  capabilities.set_verify(true);
  if (model.limits.engine.speculation != Speculation::kOff) {
    capabilities.mutable_speculation()->set_lookup(true);
    capabilities.mutable_speculation()->set_draft_model(model.draft_model);
  }
  capabilities.set_prefix_cache(model.limits.engine.prefix_cache);
  capabilities.set_prompt_logprobs(true);
  capabilities.set_processed_logprobs(true);
  for (const v1::DataType dtype :
       {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT16}) {
    capabilities.add_forward_dtypes(dtype);
  }
}

void FillDeterminism(const ServedModel& model, v1::DeterminismInfo& determinism) {
  determinism.set_fingerprint(model.fingerprint);
  if (!model.invariance_fault.empty()) {
    determinism.set_guarantee(v1::DETERMINISM_GUARANTEE_NONE);
    determinism.set_reason(model.invariance_fault);
    return;
  }
  determinism.set_guarantee(v1::DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE);
  for (const v1::DeterminismScope scope :
       {v1::DETERMINISM_SCOPE_BATCH, v1::DETERMINISM_SCOPE_CHUNKING,
        v1::DETERMINISM_SCOPE_PREFIX_CACHE, v1::DETERMINISM_SCOPE_PREEMPTION,
        v1::DETERMINISM_SCOPE_REPLICA}) {
    determinism.add_scope(scope);
  }
}

}  // namespace

absl::Status GetModelInfo(const v1::ModelInfoRequest& request, const ServedModel& model,
                          v1::ModelInfoResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_ASSIGN_OR_RETURN(const FlopsQuery flops, ResolveFlopsQuery(request.flops(), model.config));
  FillIdentity(model, *response.mutable_identity());
  FillArchitecture(model.config, *response.mutable_architecture());
  FillParameters(model.config, StoredElements(model.tensors), *response.mutable_parameters());
  if (request.include_tensors()) {
    for (const TensorRecord& tensor : model.tensors) {
      AddTensor(tensor.name, tensor.dtype, tensor.stored, tensor.shape,
                *response.mutable_parameters());
    }
  }
  FillFlops(model.config, flops, *response.mutable_flops());
  FillMemory(model.memory, *response.mutable_memory());
  FillLimits(model.limits, *response.mutable_limits());
  FillCapabilities(model, *response.mutable_capabilities());
  FillSampling(model.default_sampling, 1, *response.mutable_default_sampling());
  FillDeterminism(model, *response.mutable_determinism());
  return absl::OkStatus();
}

}  // namespace tlm
