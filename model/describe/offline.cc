#include "model/describe/offline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/describe/architecture.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"
#include "model/weights/name_map.h"

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

// Returns the type in which a server would hold it.
DType LoadedDType(DType stored) {
  if (IsBlockQuantised(stored) && !IsIntegerBlocks(stored)) return DequantisedType(stored);
  return stored == DType::kF64 ? DType::kF32 : stored;
}

// True if a server loads the tensor: it is neither a known buffer nor a copy of a tied embedding.
bool IsLoaded(const ModelConfig& config, const std::string& name, const Shape& shape) {
  if (IsKnownBuffer(name, shape.rank())) return false;
  return !config.tie_word_embeddings || name != TensorName(config.naming, TensorRole::kLmHead, -1);
}

const std::map<std::string, std::pair<DType, Shape>>& HeldTensors(const OfflineModel& model) {
  return model.quantised.empty() ? model.tensors : model.quantised;
}

// Returns the type of the products' matrices; `own` without any.
DType MatrixType(const OfflineModel& model, DType own) {
  const std::string positions = TensorName(model.config.naming, TensorRole::kPositionEmbedding, -1);
  std::optional<DType> common;
  bool differ = false;
  for (const auto& [name, tensor] : HeldTensors(model)) {
    const auto& [stored, shape] = tensor;
    if (shape.rank() < 2 || name == positions || !IsLoaded(model.config, name, shape)) continue;
    if (IsIntegerBlocks(stored)) return DType::kI8;
    differ |= common.value_or(LoadedDType(stored)) != LoadedDType(stored);
    common = LoadedDType(stored);
  }
  return differ ? DType::kF32 : common.value_or(own);
}

// Reads the tensors of the model's checkpoint, if it has one.
absl::Status ReadTensors(const ModelFiles& files, OfflineModel* model) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(files);
  if (absl::IsNotFound(checkpoint.status())) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(checkpoint.status());
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    model->tensors.emplace(name, std::pair(tensor.dtype, tensor.shape));
  }
  if (!model->config.quantisation.empty()) {
    TLM_ASSIGN_OR_RETURN(const ModelWeights weights, BindWeights(model->config, *checkpoint));
    for (const TensorSpec& spec : weights.specs) {
      model->quantised.emplace(spec.name, std::pair(TensorOf(spec, weights).dtype, spec.shape));
    }
  }
  model->weights_dtype = MatrixType(*model, model->weights_dtype);
  return absl::OkStatus();
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

// Returns the elements of the checkpoint's parameters; 0 without a checkpoint.
uint64_t StoredElements(const OfflineModel& model) {
  uint64_t stored = 0;
  for (const auto& [name, tensor] : model.tensors) {
    if (IsKnownBuffer(name, tensor.second.rank())) continue;
    stored += static_cast<uint64_t>(tensor.second.elements());
  }
  return stored;
}

// Returns the bytes of the weights by type, from the checkpoint or else from the configuration.
std::map<DType, uint64_t> BytesByType(const OfflineModel& model) {
  std::map<DType, uint64_t> bytes;
  const auto add = [&bytes](DType dtype, const Shape& shape) {
    const DType held = shape.rank() == 1 ? DType::kF32 : LoadedDType(dtype);
    bytes[held] += StoredBytes(held, static_cast<size_t>(shape.elements()));
  };
  for (const auto& [name, tensor] : HeldTensors(model)) {
    if (IsLoaded(model.config, name, tensor.second)) add(tensor.first, tensor.second);
  }
  if (!model.tensors.empty()) return bytes;
  for (const TensorSpec& spec : ExpectedTensors(model.config)) {
    add(model.weights_dtype, spec.shape);
  }
  return bytes;
}

// Adds the largest weights first.
void FillMemory(const OfflineModel& model, v1::MemoryInfo& memory) {
  const std::map<DType, uint64_t> by_type = BytesByType(model);
  std::vector<std::pair<DType, uint64_t>> sorted(by_type.begin(), by_type.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  uint64_t total = 0;
  for (const auto& [dtype, bytes] : sorted) {
    AddWeights(dtype, bytes, memory);
    total += bytes;
  }
  memory.set_allocated_total(total);
  const ModelConfig& config = model.config;
  const DType kv = DefaultKvDType(model.weights_dtype);
  memory.set_kv_bytes_per_token(static_cast<uint64_t>(2 * config.num_layers * config.num_kv_heads) *
                                KvRowBytes(kv, config.head_dim));
  memory.set_kv_type(DTypeName(kv));
}

}  // namespace

absl::StatusOr<OfflineModel> OfflineModelFromPreset(const std::string& preset) {
  TLM_ASSIGN_OR_RETURN(const std::string text, PresetConfig(preset));
  return FromText(preset, text);
}

absl::StatusOr<OfflineModel> OfflineModelFromGguf(const ModelFiles& files) {
  OfflineModel model;
  model.name = std::filesystem::path(files.path()).stem().string();
  TLM_ASSIGN_OR_RETURN(model.config, files.ReadConfig());
  TLM_RETURN_IF_ERROR(ReadTensors(files, &model));
  return model;
}

absl::StatusOr<OfflineModel> OfflineModelFromPath(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound("{}: no such directory or file; models are not downloaded by name", path);
  }
  TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(path));
  if (files.is_gguf()) return OfflineModelFromGguf(files);
  if (!std::filesystem::is_directory(path, error)) return FromFile(path);
  const std::filesystem::path dir(path);
  absl::StatusOr<OfflineModel> model = FromFile(dir / "config.json");
  if (absl::IsNotFound(model.status())) model = FromFile(dir / "model_config.json");
  if (absl::IsNotFound(model.status())) {
    return NotFound("{}: holds neither config.json nor model_config.json", path);
  }
  TLM_RETURN_IF_ERROR(model.status());
  TLM_RETURN_IF_ERROR(ReadTensors(files, &*model));
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
  FillMemory(model, *response.mutable_memory());
  return response;
}

}  // namespace tlm
