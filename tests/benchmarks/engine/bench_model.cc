#include "tests/benchmarks/engine/bench_model.h"

#include <utility>

#include "absl/time/clock.h"
#include "model/accounting/parameters.h"
#include "model/base/errors.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"
#include "model/weights/random_weights.h"
#include "model/weights/weights_dtype.h"

namespace tlm::bench {
namespace {

// Weights in host memory, from files or random.
struct HostWeights {
  std::optional<Checkpoint> checkpoint;
  std::optional<RandomWeights> random;
  ModelWeights weights;
};

absl::StatusOr<HostWeights> WeightsOf(const ModelChoice& choice, const ModelConfig& config) {
  HostWeights host;
  if (!choice.directory.empty()) {
    TLM_ASSIGN_OR_RETURN(host.checkpoint, Checkpoint::Open(choice.directory));
    TLM_ASSIGN_OR_RETURN(host.weights, BindWeights(config, *host.checkpoint));
    return host;
  }
  TLM_ASSIGN_OR_RETURN(const DType named, WeightsDTypeFromName(config.weights_dtype));
  TLM_ASSIGN_OR_RETURN(host.random,
                       RandomWeights::Create(config, choice.weights_dtype.value_or(named), 1));
  host.weights = host.random->weights();
  return host;
}

}  // namespace

uint64_t BenchModel::WeightBytesRead() const {
  const ParameterCounts counts = CountParameters(config);
  uint64_t bytes = 0;
  for (const auto& [dtype, taken] : model->WeightBytes()) bytes += taken;
  if (!config.tie_word_embeddings) bytes -= counts.embedding * DTypeBytes(weights_dtype);
  return bytes - counts.position_embedding * DTypeBytes(weights_dtype);
}

absl::StatusOr<ModelConfig> ReadBenchConfig(const ModelChoice& choice) {
  if (choice.directory.empty() == choice.preset.empty()) {
    return InvalidArgument("give either --model or --preset");
  }
  if (!choice.directory.empty()) return ReadModelConfig(choice.directory);
  TLM_ASSIGN_OR_RETURN(const std::string text, PresetConfig(choice.preset));
  return ParseModelConfig(text);
}

absl::StatusOr<std::unique_ptr<BenchModel>> LoadBenchModel(const ModelChoice& choice,
                                                           Backend backend,
                                                           const BatchLimits& limits,
                                                           int64_t kv_blocks) {
  auto loaded = std::make_unique<BenchModel>();
  TLM_ASSIGN_OR_RETURN(loaded->config, ReadBenchConfig(choice));
  TLM_ASSIGN_OR_RETURN(const HostWeights host, WeightsOf(choice, loaded->config));
  loaded->name = choice.preset.empty() ? choice.directory : choice.preset;
  loaded->backend = std::move(backend);
  Ops& ops = *loaded->backend.ops;
  loaded->weights_dtype = MatrixTypeOf(loaded->config, host.weights, choice.format, ops);
  loaded->kv_dtype = choice.kv_dtype.value_or(ops.DefaultKvType(loaded->weights_dtype));
  if (!ops.TakesKvType(loaded->weights_dtype, loaded->kv_dtype)) {
    return InvalidArgument("--kv_cache_dtype={} does not go with weights of {} on {}",
                           DTypeName(loaded->kv_dtype), DTypeName(loaded->weights_dtype),
                           ops.device().info().backend);
  }
  const absl::Time begin = absl::Now();
  TLM_ASSIGN_OR_RETURN(
      loaded->model,
      TransformerLM::Load(loaded->config, host.weights, ops, limits,
                          {.num_blocks = kv_blocks, .dtype = loaded->kv_dtype}, choice.format));
  TLM_RETURN_IF_ERROR(ops.device().Synchronize());
  loaded->load_seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  return loaded;
}

}  // namespace tlm::bench
