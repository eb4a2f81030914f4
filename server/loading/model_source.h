// Where a model's configuration and weights come from: a directory, or a preset and a seed.
#ifndef TLM_SERVER_LOADING_MODEL_SOURCE_H_
#define TLM_SERVER_LOADING_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/weights/checkpoint.h"
#include "model/weights/checkpoint_pager.h"
#include "model/weights/model_weights.h"
#include "model/weights/random_weights.h"
#include "server/config/options.h"
#include "server/serving/served_model.h"

namespace tlm {

// Of the preset or the directory. NOT_FOUND or FAILED_PRECONDITION, naming the flag, when --model
// names no directory; other errors as of ReadModelConfig.
absl::StatusOr<ModelConfig> ReadConfiguration(const ServerOptions& options);

// A model before its weights are read or generated. Move-only.
class ModelSource {
 public:
  // Reads the configuration, and opens the checkpoint where the weights come from files: takes no
  // memory for them. Errors name the file, the tensor or the flag.
  static absl::StatusOr<ModelSource> Open(const ServerOptions& options);

  const std::string& name() const { return name_; }  // of the preset or of the directory
  const ModelConfig& config() const { return config_; }
  // Every tensor by name, in the type it is loaded as: float64 as float32.
  const std::vector<TensorRecord>& tensors() const { return tensors_; }
  // Host memory that the weights take at a time, while they are packed, besides the page cache.
  uint64_t host_bytes() const;
  // What the weights take on a device, but for its padding: vectors in float32, matrices in
  // `format`; those that are as they come in float32 too where they are `widened`.
  uint64_t device_bytes(WeightFormat format, bool widened) const;

  // How the weights are read while they are packed.
  struct Reading {
    bool by_packer_alone = true;
    bool checks_finite = false;  // the packer does; see Ops::ChecksFinite
  };
  // The files' tensors or those to be generated; the views are valid as long as this stays where it is.
  // At most once. They have a pager, unless they are files' that others read too; it checks what
  // the packer does not. RESOURCE_EXHAUSTED when there are no addresses for them.
  absl::StatusOr<ModelWeights> Weights(const Reading& reading);

  // The type of the matrices that Weights() gives, once in `format`; see MatrixTypeOf. Errors as of
  // Weights().
  absl::StatusOr<DType> MatrixType(WeightFormat format) const;
  // What tells these weights from others: a hash of their tensors, or how they are generated. Where
  // Weights() are files' with a pager, after they were packed; else it reads all of them itself,
  // with several threads.
  absl::StatusOr<std::string> WeightsIdentity() const;
  // What came of reading the weights, `read`, with the file named that it is about, if it is: one
  // that changed meanwhile (FAILED_PRECONDITION), or the one of the tensor in FieldOf(read).
  absl::Status WithFile(const absl::Status& read) const;
  // The files, once the weights are no longer needed; none for generated ones. The last call of all.
  std::optional<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  absl::Status OpenFiles(const std::string& dir);
  absl::Status BindFiles();
  // Of files, with threads of its own.
  absl::StatusOr<std::string> ReadIdentity() const;
  absl::Status PlanRandom(const ServerOptions& options);

  std::string name_;
  ModelConfig config_;
  std::vector<TensorRecord> tensors_;
  std::optional<Checkpoint> checkpoint_;  // weights from files
  ModelWeights bound_;                    // of these
  std::unique_ptr<CheckpointPager> pager_;
  DType random_dtype_ = DType::kF32;  // and else
  uint64_t seed_ = 0;
  std::optional<RandomWeights> random_;
};

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MODEL_SOURCE_H_
