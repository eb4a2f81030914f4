#include "server/loading/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/base/errors.h"
#include "model/base/message_text.h"
#include "model/kv_cache/block_table.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// Bytes of logits per step when full contexts are evaluated: enough to keep cores or a GPU busy,
// far less than the weights of a model with such a vocabulary.
constexpr int64_t kHostLogitsBytes = int64_t{64} << 20;
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;
// The most tokens of drafts, or of claimed outputs, that are judged in one step.
constexpr int64_t kMaxDraftRows = 128;
// By default the KV cache may take 1/kKvCacheFraction of the host's memory.
constexpr int64_t kKvCacheFraction = 4;
// Memory that a GPU's runtime takes after the plan is made: code of kernels at their first use,
// recorded graphs, the rounding of allocations. On small devices a fraction of the memory.
constexpr uint64_t kGpuReserveBytes = uint64_t{512} << 20;
constexpr uint64_t kGpuReserveFraction = 32;
// More KV blocks than this are useless: a GPU with a tiny model leaves the rest free.
constexpr int64_t kMaxKvBlocks = int64_t{1} << 20;

int64_t ContextOf(const ServerOptions& options, const ModelConfig& config) {
  return options.max_context > 0 ? options.max_context : config.context_length;
}

absl::StatusOr<BatchLimits> PlanBatch(const ServerOptions& options, const ModelConfig& config,
                                      int64_t logits_bytes) {
  TLM_RETURN_IF_ERROR(CheckContext(options, config));
  BatchLimits limits;
  limits.max_tokens = options.engine.max_batch_tokens;
  limits.max_sequences = options.engine.max_running_requests;
  limits.max_context = ContextOf(options, config);
  const int64_t row_bytes = config.vocab_size * static_cast<int64_t>(sizeof(float));
  const int64_t decode_rows = std::min(limits.max_sequences, limits.max_tokens);
  limits.max_draft_rows = kMaxDraftRows;
  limits.max_logits_rows = std::clamp(logits_bytes / row_bytes, decode_rows, limits.max_tokens);
  return limits;
}

// `available` minus `taken`, at least 0.
uint64_t Left(uint64_t available, uint64_t taken) { return available - std::min(available, taken); }

absl::StatusOr<int64_t> AskedKvBlocks(const ServerOptions& options, int64_t block_bytes,
                                      int64_t context_blocks, int64_t context) {
  const int64_t blocks = options.kv_cache_bytes / block_bytes;
  if (blocks >= context_blocks) return blocks;
  constexpr int64_t kMib = int64_t{1} << 20;
  const int64_t needed = context_blocks * block_bytes;
  return InvalidArgument(
      "--kv_cache_bytes is {}, a context of {} tokens needs {}: raise it to {}MiB or lower "
      "--max_context",
      HumanBytes(static_cast<uint64_t>(options.kv_cache_bytes)), context,
      HumanBytes(static_cast<uint64_t>(needed)), (needed + kMib - 1) / kMib);
}

// KV blocks in host memory: full contexts of all requests, within a fraction of the memory.
int64_t HostKvBlocks(uint64_t total, uint64_t left, int64_t block_bytes, int64_t context_blocks,
                     int64_t sequences) {
  const uint64_t affordable = std::min<uint64_t>(total / kKvCacheFraction, left);
  return std::clamp(static_cast<int64_t>(affordable) / block_bytes, context_blocks,
                    std::max(context_blocks * sequences, context_blocks));
}

// Returns the batch limits of a draft model.
BatchLimits DraftBatch(BatchLimits batch, const DraftNeeds& draft) {
  batch.max_context = std::min(batch.max_context, draft.context_length);
  batch.max_logits_rows = std::min(batch.max_sequences, batch.max_tokens);
  return batch;
}

// Returns the bytes of both models; one is packed after the other.
PackingPlan BothWeights(const PackingPlan& model, const PackingPlan& draft) {
  return {.host = std::max(model.host, draft.host), .device = model.device + draft.device};
}

absl::Status CheckHost(const MemoryPlan& plan, const PackingPlan& weights, uint64_t workspace,
                       uint64_t kv_bytes, uint64_t available, const DraftNeeds* draft) {
  // The weights' host copy is freed before the KV cache is written.
  const uint64_t needed = weights.device + std::max(weights.host, kv_bytes + workspace);
  if (needed <= available) return absl::OkStatus();
  const std::string drafts = draft == nullptr
                                 ? ""
                                 : fmt::format(" ({} of them the draft model's)",
                                               HumanBytes(draft->memory.weights.device));
  const std::string besides =
      weights.host > kv_bytes + workspace
          ? fmt::format("{} to make them", HumanBytes(weights.host))
          : fmt::format("{} for keys and values of {} tokens, {} for intermediate results",
                        HumanBytes(kv_bytes), plan.kv_blocks * kBlockTokens, HumanBytes(workspace));
  return ResourceExhausted(
      "the model needs {} of memory, {} are available: {} for weights{}, {}; --max_context, "
      "--kv_cache_bytes, --kv_cache_dtype, --max_batch_tokens, a smaller type of "
      "--random_weights, --weights=int8 and --weights=int4 lower them",
      HumanBytes(needed), HumanBytes(available), HumanBytes(weights.device), drafts, besides);
}

uint64_t GpuReserve(const DeviceInfo& device) {
  return std::min<uint64_t>(kGpuReserveBytes, device.total_bytes / kGpuReserveFraction);
}

absl::Status CheckGpu(const MemoryPlan& plan, const PackingPlan& weights, uint64_t workspace,
                      uint64_t kv_bytes, uint64_t budget, const DeviceInfo& device) {
  const uint64_t reserve = GpuReserve(device);
  const uint64_t needed = weights.device + workspace + reserve + kv_bytes;
  if (needed <= budget) return absl::OkStatus();
  return ResourceExhausted(
      "the model needs {} of the GPU's memory, the limit is {} (total {}, free {}): {} "
      "for weights, {} for intermediate results, {} for keys and values of {} tokens, {} in "
      "reserve; --max_context, --kv_cache_bytes, --kv_cache_dtype=fp8, --max_batch_tokens, "
      "--max_running_requests, --weights=int8, --weights=int4 and a smaller type of "
      "--random_weights lower them, --gpu_memory_fraction raises what may be taken",
      HumanBytes(needed), HumanBytes(budget), HumanBytes(device.total_bytes),
      HumanBytes(device.free_bytes), HumanBytes(weights.device), HumanBytes(workspace),
      HumanBytes(kv_bytes), plan.kv_blocks * kBlockTokens, HumanBytes(reserve));
}

// Returns the bytes of a GPU's memory that the plan may use.
uint64_t GpuBudget(const ServerOptions& options, const DeviceInfo& device) {
  const double share = options.gpu_memory_fraction * static_cast<double>(device.total_bytes);
  return std::min(static_cast<uint64_t>(share), static_cast<uint64_t>(device.free_bytes));
}

}  // namespace

absl::Status CheckContext(const ServerOptions& options, const ModelConfig& config) {
  if (options.max_context > config.context_length) {
    return InvalidArgument("--max_context is {}, the model's limit is {}", options.max_context,
                           config.context_length);
  }
  if (ContextOf(options, config) >= 2) return absl::OkStatus();
  return InvalidArgument("the context is {} tokens, at least 2 are needed",
                         ContextOf(options, config));
}

absl::StatusOr<MemoryPlan> PlanMemory(const ServerOptions& options, const ModelConfig& config,
                                      const MemoryNeeds& needs, const DeviceInfo& device,
                                      uint64_t available, const DraftNeeds* draft) {
  const bool gpu = !device.host_addressable;
  MemoryPlan plan;
  plan.weights = needs.weights;
  plan.kv_dtype = needs.kv.dtype;
  TLM_ASSIGN_OR_RETURN(plan.batch,
                       PlanBatch(options, config, gpu ? kGpuLogitsBytes : kHostLogitsBytes));
  auto block_bytes = static_cast<int64_t>(needs.kv.bytes_per_block());
  const int64_t context_blocks = BlocksFor(plan.batch.max_context);
  uint64_t workspace = needs.workspace(plan.batch);
  PackingPlan weights = needs.weights;
  if (draft != nullptr) {
    block_bytes += static_cast<int64_t>(draft->memory.kv.bytes_per_block());
    workspace += draft->memory.workspace(DraftBatch(plan.batch, *draft));
    weights = BothWeights(weights, draft->memory.weights);
  }
  const uint64_t budget = gpu ? GpuBudget(options, device) : available;
  const uint64_t taken = weights.device + workspace + (gpu ? GpuReserve(device) : 0);
  if (options.kv_cache_bytes > 0) {
    TLM_ASSIGN_OR_RETURN(plan.kv_blocks, AskedKvBlocks(options, block_bytes, context_blocks,
                                                       plan.batch.max_context));
  } else if (gpu) {
    plan.kv_blocks = std::clamp(static_cast<int64_t>(Left(budget, taken)) / block_bytes,
                                context_blocks, std::max(context_blocks, kMaxKvBlocks));
  } else {
    plan.kv_blocks = HostKvBlocks(device.total_bytes, Left(budget, taken), block_bytes,
                                  context_blocks, plan.batch.max_sequences);
  }
  const uint64_t kv_bytes = static_cast<uint64_t>(plan.kv_blocks * block_bytes);
  if (!gpu) {
    TLM_RETURN_IF_ERROR(CheckHost(plan, weights, workspace, kv_bytes, available, draft));
    return plan;
  }
  if (weights.host > available) {
    return ResourceExhausted("making the weights needs {} of host memory, {} are available",
                             HumanBytes(weights.host), HumanBytes(available));
  }
  TLM_RETURN_IF_ERROR(CheckGpu(plan, weights, workspace, kv_bytes, budget, device));
  return plan;
}

MemoryPlan PlanDraft(const MemoryPlan& plan, const DraftNeeds& draft) {
  const BatchLimits batch = DraftBatch(plan.batch, draft);
  return {.weights = draft.memory.weights,
          .batch = batch,
          .kv_blocks = std::min(plan.kv_blocks, batch.max_sequences * BlocksFor(batch.max_context)),
          .kv_dtype = draft.memory.kv.dtype};
}

}  // namespace tlm
