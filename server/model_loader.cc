#include "server/model_loader.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "model/accounting/parameters.h"
#include "model/backend/backend.h"
#include "model/base/errors.h"
#include "model/base/mapped_file.h"
#include "model/base/sha256.h"
#include "model/config/config_reader.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"

namespace tlm {
namespace {

// Logits of one step in host memory, when full contexts are evaluated: enough to keep the cores
// busy, far less than the weights of a model with such a vocabulary.
constexpr int64_t kLogitsWorkspaceBytes = int64_t{64} << 20;
// What the KV cache may take of the device's memory unless told otherwise.
constexpr int64_t kKvCacheFraction = 4;
constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

std::string ModelIdOf(const std::string& model_dir) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(model_dir, error);
  return error ? model_dir : path.filename().string();
}

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

absl::StatusOr<int64_t> PlanKvBlocks(const ServerOptions& options, const BatchLimits& limits,
                                     const KvShape& shape, const DeviceInfo& device) {
  const int64_t block_bytes = static_cast<int64_t>(shape.bytes_per_block());
  const int64_t context_blocks = BlocksFor(limits.max_context);
  if (options.kv_cache_bytes > 0) {
    const int64_t blocks = options.kv_cache_bytes / block_bytes;
    if (blocks >= context_blocks) return blocks;
    return InvalidArgument(
        "--kv_cache_bytes is {}, a context of {} tokens needs {}: raise it or lower --max_context",
        options.kv_cache_bytes, limits.max_context, context_blocks * block_bytes);
  }
  const int64_t affordable =
      static_cast<int64_t>(device.total_bytes) / kKvCacheFraction / block_bytes;
  const int64_t wanted = context_blocks * limits.max_sequences;
  return std::max(std::min(wanted, affordable), context_blocks);
}

// Norm gains are held in float32, matrices as the checkpoint stores them (float64 as float32).
void FillMemory(const ModelConfig& config, const ModelWeights& weights, const KvShape& shape,
                int64_t kv_blocks, Device& device, ServedMemory& memory) {
  const auto bytes = device.AllocatedBytes();
  const auto of = [&](MemoryPurpose purpose) { return bytes[static_cast<size_t>(purpose)]; };
  const DType stored = weights.token_embedding.dtype;
  const size_t total = of(MemoryPurpose::kWeights);
  if (stored == DType::kF32 || stored == DType::kF64) {
    memory.weights = {{DType::kF32, total}};
  } else {
    const size_t gains = std::min(total, CountParameters(config).norms * sizeof(float));
    memory.weights = {{stored, total - gains}, {DType::kF32, gains}};
  }
  memory.kv_bytes_per_token = shape.bytes_per_token();
  memory.kv_blocks = static_cast<uint64_t>(kv_blocks);
  memory.activations = of(MemoryPurpose::kActivations);
  memory.logits = of(MemoryPurpose::kLogits);
  memory.runtime = of(MemoryPurpose::kRuntime);
  memory.device_total = device.info().total_bytes;
}

void FillLimits(const ServerOptions& options, const BatchLimits& batch, RequestLimits& limits) {
  limits.max_context_tokens = batch.max_context;
  limits.max_running_requests = options.max_running_requests;
  limits.max_batch_tokens = options.max_batch_tokens;
  limits.max_queued_requests = options.max_queued_requests;
  limits.max_queued_tokens = options.max_queued_tokens;
}

absl::Status LoadTokenizer(const ServerOptions& options, LoadedModel& loaded) {
  const std::string path = options.model_dir + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    spdlog::warn("no tokenizer.json: this server takes and gives token ids only");
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
  TLM_ASSIGN_OR_RETURN(loaded.served.tokenizer_sha256, Sha256Hex(json));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return WithContext(tokenizer.status(), path);
  loaded.tokenizer = *std::move(tokenizer);
  loaded.served.tokenizer = loaded.tokenizer.get();
  return absl::OkStatus();
}

// What decides which tokens come out: the weights and what they mean, the tokenizer, the program,
// and the arithmetic of the device.
absl::StatusOr<std::string> FingerprintOf(const ServedModel& served, const std::string& arithmetic,
                                          DType kv_dtype) {
  const ModelConfig& config = served.config;
  return Sha256Hex(fmt::format(
      "{}\n{}\n{}\n{}\n{}\n{}\n{} {} {} {} {} {} {} {} {} {}\n", served.weights_sha256,
      served.tokenizer_sha256, served.server_version, served.backend, arithmetic,
      DTypeName(kv_dtype), config.model_type, config.num_layers, config.d_model, config.num_heads,
      config.num_kv_heads, config.head_dim, config.norm_eps, config.rope_theta.value_or(0.0),
      static_cast<int>(config.rope_layout), config.qk_norm));
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options) {
  LoadedModel loaded;
  ServedModel& served = loaded.served;
  served.model_id = ModelIdOf(options.model_dir);
  served.server_version = TLM_VERSION;
  TLM_ASSIGN_OR_RETURN(served.config, ReadModelConfig(options.model_dir));
  TLM_ASSIGN_OR_RETURN(const BatchLimits batch, PlanBatch(options, served.config));
  FillLimits(options, batch, served.limits);
  TLM_RETURN_IF_ERROR(LoadTokenizer(options, loaded));

  TLM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.model_dir));
  TLM_ASSIGN_OR_RETURN(const ModelWeights weights, BindWeights(served.config, checkpoint));
  TLM_ASSIGN_OR_RETURN(Backend backend, CreateBackend(options.backend, options.threads));
  spdlog::debug("{}", backend.reason);
  loaded.ops = std::move(backend.ops);
  Device& device = loaded.ops->device();
  const KvShape kv_shape = TransformerLM::KvShapeFor(served.config, options.kv_cache_dtype);
  TLM_ASSIGN_OR_RETURN(const int64_t kv_blocks,
                       PlanKvBlocks(options, batch, kv_shape, device.info()));
  TLM_ASSIGN_OR_RETURN(loaded.model,
                       TransformerLM::Load(served.config, weights, *loaded.ops, batch,
                                           {.num_blocks = kv_blocks, .dtype = kv_shape.dtype}));

  served.backend = device.info().backend;
  served.device_name = device.info().name;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    served.tensors.push_back({name, tensor.dtype, tensor.shape});
  }
  FillMemory(served.config, weights, kv_shape, kv_blocks, device, served.memory);
  TLM_ASSIGN_OR_RETURN(served.weights_sha256, checkpoint.Sha256());
  TLM_ASSIGN_OR_RETURN(served.fingerprint,
                       FingerprintOf(served, device.info().arithmetic, kv_shape.dtype));
  return loaded;
}

}  // namespace tlm
