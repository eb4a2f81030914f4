// A model on a backend, without a server around it.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_BENCH_MODEL_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_BENCH_MODEL_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "model/backend/backend.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/transformer_lm/transformer_lm.h"

namespace tlm::bench {

struct ModelChoice {
  std::string model = {};   // a directory or a GGUF file; exactly one of the two is not empty
  std::string preset = {};  // with random weights
  std::optional<DType> weights_dtype = {};  // of random weights; none: the preset's
  std::optional<DType> kv_dtype = {};       // none: the backend's own choice
  WeightFormat format = WeightFormat::kAsGiven;
  const InputImportance* importance = nullptr;  // of formats of 4 bits; null: not measured
};

// Members in the order of their dependencies.
struct BenchModel {
  Backend backend;  // empty: another model's, which outlives this one
  ModelConfig config;
  std::string name;
  std::string format_name;            // see WeightFormatName
  DType weights_dtype = DType::kF32;  // as they are stored
  DType kv_dtype = DType::kF32;
  std::unique_ptr<TransformerLM> model;
  // From host memory or the page cache; of random weights on a device that is not the host, they
  // are generated meanwhile.
  double load_seconds = 0;
  uint64_t table_bytes = 0;  // of an untied embedding and of positions: few of their rows are read

  // Bytes of weights a pass over few tokens reads: all but those tables.
  uint64_t WeightBytesRead() const;
  uint64_t KvBytesPerToken() const { return model->kv_shape().bytes_per_token(); }
};

// INVALID_ARGUMENT for a wrong choice or model.
absl::StatusOr<std::unique_ptr<BenchModel>> LoadBenchModel(const ModelChoice& choice,
                                                           Backend backend,
                                                           const BatchLimits& limits,
                                                           int64_t kv_blocks);
// The same on the backend of another model.
absl::StatusOr<std::unique_ptr<BenchModel>> LoadBenchModel(const ModelChoice& choice, Ops& ops,
                                                           const BatchLimits& limits,
                                                           int64_t kv_blocks);

// What was loaded, and where; it has a backend of its own.
nlohmann::ordered_json ToJson(const BenchModel& loaded);

// On weights as they are given; see model/transformer_lm/calibration.h.
absl::StatusOr<InputImportance> MeasureBenchImportance(const ModelChoice& choice, Ops& ops,
                                                       std::span<const int32_t> tokens);

// How many KV blocks a device has room for beside a model, before anything is loaded.
class KvRoom {
 public:
  // `memory_bytes`: of the device, for everything; 0: what is free of it, less a reserve for the
  // CUDA runtime, its modules and graphs; without a limit in the host's memory. Errors of reading
  // the model.
  static absl::StatusOr<KvRoom> Of(const ModelChoice& choice, Ops& ops, uint64_t memory_bytes);

  // Beside weights and workspace; negative where these alone do not fit.
  int64_t Blocks(const BatchLimits& limits) const;
  uint64_t block_bytes() const { return block_bytes_; }

 private:
  explicit KvRoom(Ops& ops) : ops_(ops) {}

  Ops& ops_;
  ModelConfig config_;
  DType weights_dtype_ = DType::kF32;
  uint64_t weight_bytes_ = 0;
  uint64_t block_bytes_ = 0;
  std::optional<uint64_t> memory_bytes_;  // none: without a limit
};

// The configuration alone, to plan limits by.
absl::StatusOr<ModelConfig> ReadBenchConfig(const ModelChoice& choice);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_BENCH_MODEL_H_
