#include "tests/benchmarks/engine/bench_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "model/accounting/parameters.h"
#include "model/base/errors.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/transformer_lm/calibration.h"
#include "model/transformer_lm/packed_weights.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_files.h"
#include "model/weights/model_weights.h"
#include "model/weights/random_weights.h"
#include "tests/benchmarks/engine/backend_flags.h"

namespace tlm::bench {
namespace {

// Of a GPU's memory, for the runtime, modules, graphs and what rounding takes.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;

// Weights in host memory, from files or random.
struct HostWeights {
  std::optional<Checkpoint> checkpoint;
  std::optional<RandomWeights> random;
  ModelWeights weights;
};

// Random weights are all made at once for the processor, which computes with them, and tensor by
// tensor as they are taken for other devices, whatever memory the host has.
absl::StatusOr<HostWeights> WeightsOf(const ModelChoice& choice, const ModelConfig& config,
                                      Ops& ops) {
  HostWeights host;
  if (!choice.model.empty()) {
    TLM_ASSIGN_OR_RETURN(host.checkpoint, Checkpoint::Open(choice.model));
    TLM_ASSIGN_OR_RETURN(host.weights, BindWeights(config, *host.checkpoint));
    return host;
  }
  TLM_ASSIGN_OR_RETURN(const DType named, WeightsDTypeFromName(config.weights_dtype));
  const DType dtype = choice.weights_dtype.value_or(named);
  TLM_ASSIGN_OR_RETURN(host.random, ops.device().info().host_addressable
                                        ? RandomWeights::Create(config, dtype, 1)
                                        : RandomWeights::Reserve(config, dtype, 1));
  host.weights = host.random->weights();
  return host;
}

// Bytes of a table of which a pass reads but a few rows.
uint64_t TableBytes(const TensorView& table, WeightFormat format) {
  const auto elements = static_cast<size_t>(table.elements());
  if (format == WeightFormat::kFloat32) return StoredBytes(DType::kF32, elements);
  if (IsBlockQuantised(table.dtype)) return StoredBytes(table.dtype, elements);
  return StoredBytes(BlockTypeOf(format).value_or(table.dtype), elements);
}

}  // namespace

uint64_t BenchModel::WeightBytesRead() const {
  uint64_t bytes = 0;
  for (const auto& [dtype, taken] : model->WeightBytes()) bytes += taken;
  return bytes - table_bytes;
}

absl::StatusOr<ModelConfig> ReadBenchConfig(const ModelChoice& choice) {
  if (choice.model.empty() == choice.preset.empty()) {
    return InvalidArgument("give either --model or --preset");
  }
  if (!choice.model.empty()) {
    TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(choice.model));
    return files.ReadConfig();
  }
  TLM_ASSIGN_OR_RETURN(const std::string text, PresetConfig(choice.preset));
  return ParseModelConfig(text);
}

absl::StatusOr<KvRoom> KvRoom::Of(const ModelChoice& choice, Ops& ops, uint64_t memory_bytes) {
  KvRoom room(ops);
  TLM_ASSIGN_OR_RETURN(room.config_, ReadBenchConfig(choice));
  if (choice.model.empty()) {
    TLM_ASSIGN_OR_RETURN(const DType named, WeightsDTypeFromName(room.config_.weights_dtype));
    room.weights_dtype_ = choice.weights_dtype.value_or(named);
    // As given; formats of fewer bits take less.
    room.weight_bytes_ = RandomWeights::BytesFor(room.config_, room.weights_dtype_);
  } else {
    TLM_ASSIGN_OR_RETURN(const HostWeights host, WeightsOf(choice, room.config_, ops));
    const PackingPlan packing = PlanPacking(room.config_, host.weights, choice.format, ops);
    room.weights_dtype_ = packing.matrix_type;
    room.weight_bytes_ = packing.device;
  }
  const DType kv = choice.kv_dtype.value_or(ops.DefaultKvType(room.weights_dtype_));
  room.block_bytes_ = TransformerLM::KvShapeFor(room.config_, kv).bytes_per_token() * kBlockTokens;
  const DeviceInfo& device = ops.device().info();
  if (memory_bytes > 0) {
    room.memory_bytes_ = memory_bytes;
  } else if (!device.host_addressable) {
    room.memory_bytes_ = device.free_bytes - std::min<uint64_t>(device.free_bytes, kReserveBytes);
  }
  return room;
}

int64_t KvRoom::Blocks(const BatchLimits& limits) const {
  if (!memory_bytes_.has_value()) return std::numeric_limits<int64_t>::max();
  const uint64_t taken =
      weight_bytes_ + TransformerLM::WorkspaceBytes(config_, limits, weights_dtype_, ops_);
  return (static_cast<int64_t>(*memory_bytes_) - static_cast<int64_t>(taken)) /
         static_cast<int64_t>(block_bytes_);
}

absl::StatusOr<InputImportance> MeasureBenchImportance(const ModelChoice& choice, Ops& ops,
                                                       std::span<const int32_t> tokens) {
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(choice));
  TLM_ASSIGN_OR_RETURN(const HostWeights host, WeightsOf(choice, config, ops));
  return MeasureImportance(config, host.weights, ops, tokens);
}

absl::StatusOr<std::unique_ptr<BenchModel>> LoadBenchModel(const ModelChoice& choice,
                                                           Backend backend,
                                                           const BatchLimits& limits,
                                                           int64_t kv_blocks) {
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<BenchModel> loaded,
                       LoadBenchModel(choice, *backend.ops, limits, kv_blocks));
  loaded->backend = std::move(backend);
  return loaded;
}

absl::StatusOr<std::unique_ptr<BenchModel>> LoadBenchModel(const ModelChoice& choice, Ops& ops,
                                                           const BatchLimits& limits,
                                                           int64_t kv_blocks) {
  auto loaded = std::make_unique<BenchModel>();
  TLM_ASSIGN_OR_RETURN(loaded->config, ReadBenchConfig(choice));
  TLM_ASSIGN_OR_RETURN(const HostWeights host, WeightsOf(choice, loaded->config, ops));
  loaded->name = choice.preset.empty() ? choice.model : choice.preset;
  loaded->format_name = WeightFormatName(choice.format);
  const PackingPlan packing = PlanPacking(loaded->config, host.weights, choice.format, ops);
  loaded->weights_dtype = packing.matrix_type;
  loaded->kv_dtype = choice.kv_dtype.value_or(ops.DefaultKvType(loaded->weights_dtype));
  if (!ops.TakesKvType(loaded->weights_dtype, loaded->kv_dtype)) {
    return InvalidArgument("--kv_cache_dtype={} does not go with weights of {} on {}",
                           KvDTypeName(loaded->kv_dtype), DTypeName(loaded->weights_dtype),
                           ops.device().info().backend);
  }
  if (!loaded->config.tie_word_embeddings) {
    loaded->table_bytes += TableBytes(host.weights.token_embedding, choice.format);
  }
  if (loaded->config.learned_positions) {
    loaded->table_bytes += TableBytes(host.weights.position_embedding, WeightFormat::kAsGiven);
  }
  const absl::Time begin = absl::Now();
  TLM_ASSIGN_OR_RETURN(loaded->model,
                       TransformerLM::Load(loaded->config, host.weights, ops, limits,
                                           {.num_blocks = kv_blocks, .dtype = loaded->kv_dtype},
                                           packing, choice.importance));
  TLM_RETURN_IF_ERROR(ops.device().Synchronize());
  loaded->load_seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  return loaded;
}

nlohmann::ordered_json ToJson(const BenchModel& loaded) {
  const DeviceInfo& device = loaded.backend.ops->device().info();
  return {{"model", loaded.name},
          {"model_n_params", CountParameters(loaded.config).total},
          {"weights_dtype", DTypeName(loaded.weights_dtype)},
          {"kv_cache_dtype", DTypeName(loaded.kv_dtype)},
          {"weight_bytes_read", loaded.WeightBytesRead()},
          {"kv_bytes_per_token", loaded.KvBytesPerToken()},
          {"load_seconds", loaded.load_seconds},
          {"backend", device.backend},
          {"device", device.name},
          {"arithmetic", device.arithmetic},
          {"n_threads", CpuThreadsFromFlags()}};
}

}  // namespace tlm::bench
