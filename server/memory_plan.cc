#include "server/memory_plan.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// Logits of one step in host memory, when full contexts are evaluated: enough to keep the cores
// busy, far less than the weights of a model with such a vocabulary.
constexpr int64_t kLogitsWorkspaceBytes = int64_t{64} << 20;
// What the KV cache may take of the device's memory unless told otherwise.
constexpr int64_t kKvCacheFraction = 4;

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

absl::StatusOr<BatchLimits> PlanBatch(const ServerOptions& options, const ModelConfig& config) {
  if (options.max_context > config.context_length) {
    return InvalidArgument("--max_context is {}, the model's limit is {}", options.max_context,
                           config.context_length);
  }
  BatchLimits limits;
  limits.max_tokens = options.max_batch_tokens;
  limits.max_sequences = options.max_running_requests;
  limits.max_context = options.max_context > 0 ? options.max_context : config.context_length;
  if (limits.max_context < 2) {
    return InvalidArgument("the context is {} tokens, at least 2 are needed", limits.max_context);
  }
  const int64_t row_bytes = config.vocab_size * static_cast<int64_t>(sizeof(float));
  const int64_t decode_rows = std::min(limits.max_sequences, limits.max_tokens);
  limits.max_logits_rows =
      std::clamp(kLogitsWorkspaceBytes / row_bytes, decode_rows, limits.max_tokens);
  return limits;
}

// About what TransformerLM takes for intermediate results, logits and rotary positions.
uint64_t WorkspaceBytes(const ModelConfig& config, const BatchLimits& limits) {
  const int64_t row = 3 * config.d_model + 2 * config.q_size() + 2 * config.kv_size() +
                      (config.gated_ffn() ? 3 : 1) * config.d_ff;
  const int64_t logits_row = config.vocab_size + config.d_model;
  const int64_t values = limits.max_tokens * row + limits.max_logits_rows * logits_row +
                         (config.rope_theta.has_value() ? limits.max_context * config.head_dim : 0);
  return static_cast<uint64_t>(values) * sizeof(float);
}

// The part of `available` that `taken` leaves.
uint64_t Left(uint64_t available, uint64_t taken) { return available - std::min(available, taken); }

absl::StatusOr<int64_t> AskedKvBlocks(const ServerOptions& options, int64_t block_bytes,
                                      int64_t context_blocks, int64_t context) {
  const int64_t blocks = options.kv_cache_bytes / block_bytes;
  if (blocks >= context_blocks) return blocks;
  return InvalidArgument(
      "--kv_cache_bytes is {}, a context of {} tokens needs {}: raise it or lower --max_context",
      options.kv_cache_bytes, context, context_blocks * block_bytes);
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const ServerOptions& options, const ModelConfig& config,
                                      const WeightBytes& weights, const KvShape& kv,
                                      const DeviceInfo& device, uint64_t available) {
  MemoryPlan plan;
  TLM_ASSIGN_OR_RETURN(plan.batch, PlanBatch(options, config));
  if (!device.host_addressable) available = device.total_bytes;
  const int64_t block_bytes = static_cast<int64_t>(kv.bytes_per_block());
  const int64_t context_blocks = BlocksFor(plan.batch.max_context);
  const uint64_t workspace = WorkspaceBytes(config, plan.batch);
  if (options.kv_cache_bytes > 0) {
    TLM_ASSIGN_OR_RETURN(plan.kv_blocks, AskedKvBlocks(options, block_bytes, context_blocks,
                                                       plan.batch.max_context));
  } else {
    const uint64_t affordable = std::min<uint64_t>(device.total_bytes / kKvCacheFraction,
                                                   Left(available, weights.device + workspace));
    plan.kv_blocks =
        std::clamp(static_cast<int64_t>(affordable) / block_bytes, context_blocks,
                   std::max(context_blocks * plan.batch.max_sequences, context_blocks));
  }
  const uint64_t kv_bytes = static_cast<uint64_t>(plan.kv_blocks * block_bytes);
  // The weights' host copy is gone before the KV cache is written.
  const uint64_t host = device.host_addressable ? weights.host : 0;
  const uint64_t needed = weights.device + std::max(host, kv_bytes + workspace);
  if (needed <= available) return plan;
  return ResourceExhausted(
      "the model needs {} bytes of memory, {} are available: {} for weights, and the larger of {} "
      "to draw them and {} for keys and values of {} tokens with {} for intermediate results; "
      "--max_context, --kv_cache_bytes, --kv_cache_dtype, --max_batch_tokens and --weights_dtype "
      "lower them",
      needed, available, weights.device, host, kv_bytes, plan.kv_blocks * kBlockTokens, workspace);
}

}  // namespace tlm
