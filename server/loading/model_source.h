// The source of a model's configuration and weights: a directory, a GGUF file, or a preset and a
// seed.
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
#include "model/weights/model_weights.h"
#include "model/weights/quantised_weights.h"
#include "model/weights/random_weights.h"
#include "server/config/options.h"
#include "server/serving/served_model.h"

namespace tlm {

// Of the preset, the directory or the GGUF file. NOT_FOUND or FAILED_PRECONDITION, naming `flag`,
// when --model, or another flag in its place, names none; other errors as of ReadConfigOf.
absl::StatusOr<ModelConfig> ReadConfiguration(const ServerOptions& options,
                                              std::string_view flag = "model");

// A model before its weights are read or generated. Move-only.
class ModelSource {
 public:
  // Reads the configuration, and opens the checkpoint where the weights come from files: takes no
  // memory for them. Errors name the file, the tensor or the flag, as of ReadConfiguration.
  static absl::StatusOr<ModelSource> Open(const ServerOptions& options,
                                          std::string_view flag = "model");

  const std::string& name() const { return name_; }  // of the preset, the directory or the file
  const ModelConfig& config() const { return config_; }
  // Every tensor by name, in the type in which `ops` takes it by itself: F64 as F32, and so what is
  // in blocks where it takes none, and with kFloat32.
  std::vector<TensorRecord> Tensors(WeightFormat format, const Ops& ops) const;
  // FAILED_PRECONDITION, naming the flag and a tensor, if `format` quantises and a matrix of the
  // files is in blocks already.
  absl::Status CheckFormat(WeightFormat format) const;
  // The type of the matrices once packed by `ops`; see MatrixTypeOf.
  DType MatrixType(WeightFormat format, const Ops& ops) const {
    return MatrixTypeOf(config_, weights_, format, ops);
  }
  // Memory of the weights: on the host at the peak while they are packed, besides the page cache.
  PackingBytes BytesFor(WeightFormat format, const Ops& ops) const;

  // How the weights are read while they are packed.
  struct Reading {
    bool by_packer_alone = true;
    bool checks_finite = false;  // the packer does; see Ops::ChecksFinite
  };
  // The tensors of the files, or generated ones; the views are valid until this is moved or
  // destroyed. At most once. They have a pager, except those of shared files; it makes the checks
  // that the packer does not make. RESOURCE_EXHAUSTED when the address space does not suffice.
  absl::StatusOr<ModelWeights> Weights(const Reading& reading);

  // The identity of these weights: a hash of their tensors, or the generator and seed. For files
  // that the packer alone reads call it after they were packed; otherwise it reads all of them,
  // with several threads.
  absl::StatusOr<std::string> WeightsIdentity() const;
  // The status `read` of reading the weights, with the name of the file at fault: one that changed
  // (FAILED_PRECONDITION), or that of the tensor in FieldOf(read).
  absl::Status WithFile(const absl::Status& read) const;
  // The files, once the weights are packed; none for generated weights. The last call.
  std::optional<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  absl::Status OpenFiles(const std::string& path);
  absl::Status BindFiles();
  // Of files, with threads of its own.
  absl::StatusOr<std::string> ReadIdentity() const;
  absl::Status PlanRandom(const ServerOptions& options);

  std::string name_;
  ModelConfig config_;
  std::vector<TensorRecord> tensors_;
  std::optional<Checkpoint> checkpoint_;       // weights from files
  ModelWeights weights_;                       // of these; of others the data are not to be read
  std::optional<QuantisedWeights> quantised_;  // if the configuration has a quantisation
  bool is_shared_ = false;                     // others read them while they are packed
  std::unique_ptr<CheckpointPager> pager_;
  DType random_dtype_ = DType::kF32;  // and else
  uint64_t seed_ = 0;
  std::optional<RandomWeights> random_;
};

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MODEL_SOURCE_H_
