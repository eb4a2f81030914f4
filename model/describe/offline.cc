#include "model/describe/offline.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/describe/architecture.h"
#include "model/describe/flops.h"
#include "model/tensor/dtype.h"
#include "model/weights/checkpoint.h"
#include "model/weights/gguf_file.h"
#include "model/weights/name_map.h"
#include "model/weights/weights_dtype.h"

namespace tlm {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;

absl::StatusOr<OfflineModel> FromText(const std::string& name, const std::string& text) {
  OfflineModel model;
  model.name = name;
  TLM_ASSIGN_OR_RETURN(model.config, ParseModelConfig(text));
  TLM_ASSIGN_OR_RETURN(model.weights_dtype, WeightsDTypeFromName(model.config.weights_dtype));
  return model;
}

absl::StatusOr<OfflineModel> FromFile(const std::filesystem::path& path) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  const std::string name = (error ? path : whole).parent_path().filename().string();
  absl::StatusOr<OfflineModel> model = FromText(name, text);
  if (!model.ok()) return WithContext(model.status(), path);
  return model;
}

// As a server would hold it.
DType LoadedDType(DType stored) {
  return stored == DType::kF64 || IsBlockQuantised(stored) ? DType::kF32 : stored;
}

// The tensors of the model's checkpoint, if it has one. The largest of them gives the type.
absl::Status ReadTensors(const std::string& path, OfflineModel* model) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (absl::IsNotFound(checkpoint.status())) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(checkpoint.status());
  int64_t most = 0;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    model->tensors.emplace(name, std::pair(tensor.dtype, tensor.shape));
    const bool is_weight = IsFloat(tensor.dtype) || IsBlockQuantised(tensor.dtype);
    if (!is_weight || tensor.shape.elements() <= most) continue;
    most = tensor.shape.elements();
    model->weights_dtype = LoadedDType(tensor.dtype);
  }
  return absl::OkStatus();
}

absl::StatusOr<OfflineModel> FromGguf(const std::filesystem::path& path) {
  OfflineModel model;
  model.name = path.stem().string();
  TLM_ASSIGN_OR_RETURN(model.config, ReadConfigOf(path));
  TLM_RETURN_IF_ERROR(ReadTensors(path, &model));
  return model;
}

void AddTensors(const OfflineModel& model, v1::ParameterCounts& parameters) {
  for (const auto& [name, tensor] : model.tensors) {
    AddTensor(name, LoadedDType(tensor.first), tensor.first, tensor.second, parameters);
  }
  if (!model.tensors.empty()) return;
  for (const TensorSpec& spec : ExpectedTensors(model.config)) {
    AddTensor(spec.name, model.weights_dtype, std::nullopt, spec.shape, parameters);
  }
}

// Elements of the checkpoint's parameters; 0 without one.
uint64_t StoredElements(const OfflineModel& model) {
  uint64_t stored = 0;
  for (const auto& [name, tensor] : model.tensors) {
    if (IsKnownBuffer(name, tensor.second.rank())) continue;
    stored += static_cast<uint64_t>(tensor.second.elements());
  }
  return stored;
}

void FillMemory(const ModelConfig& config, DType dtype, v1::MemoryInfo& memory) {
  uint64_t matrices = 0;
  uint64_t vectors = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    (spec.shape.rank() == 1 ? vectors : matrices) += static_cast<uint64_t>(spec.shape.elements());
  }
  uint64_t float32_bytes = vectors * DTypeBytes(DType::kF32);
  if (dtype == DType::kF32) {
    float32_bytes += matrices * DTypeBytes(DType::kF32);
  } else {
    v1::WeightBytes& entry = *memory.add_weights();
    entry.set_dtype(DataTypeOf(dtype));
    entry.set_bytes(matrices * DTypeBytes(dtype));
    memory.set_allocated_total(entry.bytes());
  }
  v1::WeightBytes& entry = *memory.add_weights();
  entry.set_dtype(v1::DATA_TYPE_FLOAT32);
  entry.set_bytes(float32_bytes);
  memory.set_allocated_total(memory.allocated_total() + float32_bytes);
  memory.set_kv_bytes_per_token(static_cast<uint64_t>(2 * config.num_layers * config.kv_size()) *
                                DTypeBytes(DefaultKvDType(dtype)));
}

}  // namespace

absl::StatusOr<OfflineModel> OfflineModelFromPreset(const std::string& preset) {
  TLM_ASSIGN_OR_RETURN(const std::string text, PresetConfig(preset));
  return FromText(preset, text);
}

absl::StatusOr<OfflineModel> OfflineModelFromPath(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound("{}: no such directory or file; models are not downloaded by name", path);
  }
  if (IsGgufFile(path)) return FromGguf(path);
  if (!std::filesystem::is_directory(path, error)) return FromFile(path);
  const std::filesystem::path dir(path);
  absl::StatusOr<OfflineModel> model = FromFile(dir / "config.json");
  if (absl::IsNotFound(model.status())) model = FromFile(dir / "model_config.json");
  if (absl::IsNotFound(model.status())) {
    return NotFound("{}: holds neither config.json nor model_config.json", path);
  }
  TLM_RETURN_IF_ERROR(model.status());
  TLM_RETURN_IF_ERROR(ReadTensors(path, &*model));
  return model;
}

absl::StatusOr<v1::ModelInfoResponse> DescribeOffline(const OfflineModel& model,
                                                      const v1::ModelInfoRequest& request) {
  TLM_ASSIGN_OR_RETURN(const FlopsQuery flops, ResolveFlopsQuery(request.flops(), model.config));
  v1::ModelInfoResponse response;
  response.mutable_identity()->set_model_id(model.name);
  response.mutable_identity()->set_architecture(model.config.architecture);
  FillArchitecture(model.config, *response.mutable_architecture());
  v1::ParameterCounts& parameters = *response.mutable_parameters();
  FillParameters(model.config, StoredElements(model), parameters);
  if (request.include_tensors()) AddTensors(model, parameters);
  FillFlops(model.config, flops, *response.mutable_flops());
  FillMemory(model.config, model.weights_dtype, *response.mutable_memory());
  return response;
}

}  // namespace tlm
