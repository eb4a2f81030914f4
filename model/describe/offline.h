// ModelInfo of a configuration, without a server.
#ifndef TLM_MODEL_DESCRIBE_OFFLINE_H_
#define TLM_MODEL_DESCRIBE_OFFLINE_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/model_files.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm {

// A model's configuration and the facts that its file states about its weights.
struct OfflineModel {
  std::string name;  // the preset's, the GGUF file's, or the configuration directory's
  ModelConfig config;
  // The common type of its matrices, kI8 if any is in blocks, kF32 if they differ.
  DType weights_dtype = DType::kF32;
  // The tensors of the checkpoint; empty without one.
  std::map<std::string, std::pair<DType, Shape>> tensors;
  // The tensors as a server holds them, where config.quantisation makes them differ; otherwise
  // empty.
  std::map<std::string, std::pair<DType, Shape>> quantised;
};

// Makes a model of PresetConfig(). INVALID_ARGUMENT for an unknown name.
absl::StatusOr<OfflineModel> OfflineModelFromPreset(const std::string& preset);

// Describes a GGUF file. Returns the errors of ModelFiles::ReadConfig and Checkpoint::Open.
absl::StatusOr<OfflineModel> OfflineModelFromGguf(const ModelFiles& files);

// Reads a model directory, a GGUF file, or a configuration file itself. If there is a checkpoint,
// only its headers are read; its types count, whatever the configuration names. Returns the errors
// of ModelFiles, Checkpoint::Open and, for a quantised checkpoint, BindWeights.
absl::StatusOr<OfflineModel> OfflineModelFromPath(const std::string& path);

// Answers a request without memory for the model: identity (name and architecture only),
// architecture, parameters and FLOPs. Of `memory` it fills the weights by type, as a server on the
// CPU holds them (matrices in their types, F64 and vectors in float32; blocks may take a few
// percent more there), and kv_bytes_per_token and kv_type for keys and values of DefaultKvDType().
// INVALID_ARGUMENT when ResolveFlopsQuery returns it.
absl::StatusOr<v1::ModelInfoResponse> DescribeOffline(const OfflineModel& model,
                                                      const v1::ModelInfoRequest& request);

}  // namespace tlm

#endif  // TLM_MODEL_DESCRIBE_OFFLINE_H_
