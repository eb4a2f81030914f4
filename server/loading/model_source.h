// Opens a model's configuration and weights from a directory, a GGUF file, or a preset and a seed.
#ifndef TLM_SERVER_LOADING_MODEL_SOURCE_H_
#define TLM_SERVER_LOADING_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"
#include "model/transformer_lm/packed_weights.h"
#include "model/weights/checkpoint.h"
#include "model/weights/checkpoint_pager.h"
#include "model/weights/model_files.h"
#include "model/weights/model_weights.h"
#include "model/weights/quantised_weights.h"
#include "model/weights/random_weights.h"
#include "server/config/options.h"
#include "server/serving/served_model.h"

namespace tlm {

// A model whose configuration is read, and nothing of its weights.
struct OpenedModel {
  std::string name;                 // of the preset, the directory or the file
  std::optional<ModelFiles> files;  // nullopt: a preset
  ModelConfig config;
};

// Opens the preset, the directory or the GGUF file. NOT_FOUND or FAILED_PRECONDITION, naming
// `flag`, when --model, or another flag in its place, names none of these; other errors as of
// ModelFiles.
absl::StatusOr<OpenedModel> OpenModel(const ServerOptions& options,
                                      std::string_view flag = "model");

// A model before its weights are read or generated. Move-only.
class ModelSource {
 public:
  // Opens the checkpoint if the weights come from files. Takes no memory for the weights, but may
  // reserve address space: RESOURCE_EXHAUSTED when that does not suffice. Other errors name the
  // file or the tensor.
  static absl::StatusOr<ModelSource> Open(const ServerOptions& options, const OpenedModel& model);

  const std::string& name() const { return name_; }  // see OpenedModel
  const ModelConfig& config() const { return config_; }
  // Returns every tensor, sorted by name, in the type in which `ops` takes it alone: F64 as F32.
  // Block-quantised tensors are listed dequantised where `ops` takes no blocks, and with kFloat32.
  std::vector<TensorRecord> Tensors(WeightFormat format, const Ops& ops) const;
  // FAILED_PRECONDITION, naming the flag and a tensor, if `format` quantises and a matrix of the
  // files is already block-quantised.
  absl::Status CheckFormat(WeightFormat format) const;
  // PlanPacking of the weights. The host's part includes the memory in which they are made, without
  // the page cache.
  PackingPlan PackingFor(WeightFormat format, const Ops& ops) const;

  // How the weights are read while they are packed.
  struct Reading {
    bool by_packer_alone = true;
    bool checks_finite = false;  // true: the packer does; see Ops::ChecksFinite
  };
  // Returns the tensors of the files, or generated ones; the views are valid until this object is
  // moved or destroyed. Call at most once. The weights have a pager, except those of shared files;
  // it makes the checks that the packer does not make.
  ModelWeights Weights(const Reading& reading);

  // Returns the identity of these weights: a hash of their tensors, or the generator and seed. For
  // files that only the packer reads, call it after the weights were packed; otherwise it reads all
  // of them, with several threads.
  absl::StatusOr<std::string> WeightsIdentity() const;
  // Adds to the status `read`, of reading the weights, the name of the file at fault: a file that
  // changed (FAILED_PRECONDITION), or the file of the tensor in FieldOf(read).
  absl::Status WithFile(const absl::Status& read) const;
  // Returns the files, once the weights are packed; nullopt for generated weights. This must be the
  // last call.
  std::optional<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  absl::Status OpenFiles(const ModelFiles& files);
  absl::Status BindFiles();
  // Reads the identity from the files, with threads of its own.
  absl::StatusOr<std::string> ReadIdentity() const;
  absl::Status ReserveRandom(const RandomInit& asked);

  std::string name_;
  ModelConfig config_;
  std::vector<TensorRecord> tensors_;
  std::optional<Checkpoint> checkpoint_;       // set if the weights come from files
  ModelWeights weights_;                       // of the files, or generated
  std::optional<QuantisedWeights> quantised_;  // if the configuration has a quantisation
  bool is_shared_ = false;                     // others read them while they are packed
  std::unique_ptr<CheckpointPager> pager_;
  DType random_dtype_ = DType::kF32;  // type of generated weights
  uint64_t seed_ = 0;
  std::optional<RandomWeights> random_;
};

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MODEL_SOURCE_H_
