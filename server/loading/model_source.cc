#include "server/loading/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/weights/name_map.h"
#include "server/config/model_argument.h"

namespace tlm {
namespace {

std::string NameOf(const std::string& model_dir) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(model_dir, error);
  if (error) return model_dir;
  if (path.filename().empty()) path = path.parent_path();  // "DIR/"
  return (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
}

// `flag` names the path in messages.
absl::Status CheckDirectory(std::string_view flag, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return absl::OkStatus();
  if (std::filesystem::exists(status)) {
    return FailedPrecondition(
        "--{}={}: is a file; a GGUF file, or the directory that holds config.json and "
        "model.safetensors, is needed",
        flag, path);
  }
  if (status.type() != std::filesystem::file_type::not_found) {
    return FailedPrecondition("--{}={}: {}", flag, path, error.message());
  }
  if (const std::optional<std::string> name = HubName(path)) {
    return NotFound(
        "--{}={}: there is no such directory or file, and the server downloads nothing: {}", flag,
        path, HowToDownload(*name));
  }
  return NotFound("--{}={}: there is no such directory or file", flag, path);
}

}  // namespace

absl::StatusOr<OpenedModel> OpenModel(const ServerOptions& options, std::string_view flag) {
  OpenedModel model;
  if (!options.preset.empty()) {
    model.name = options.preset;
    TLM_ASSIGN_OR_RETURN(const std::string text, PresetConfig(options.preset));
    TLM_ASSIGN_OR_RETURN(model.config, ParseModelConfig(text));
    return model;
  }
  model.name = NameOf(options.model_dir);
  TLM_ASSIGN_OR_RETURN(model.files, ModelFiles::Open(options.model_dir));
  if (!model.files->is_gguf()) TLM_RETURN_IF_ERROR(CheckDirectory(flag, options.model_dir));
  TLM_ASSIGN_OR_RETURN(model.config, model.files->ReadConfig());
  return model;
}

absl::StatusOr<ModelSource> ModelSource::Open(const ServerOptions& options,
                                              const OpenedModel& model) {
  ModelSource source;
  source.name_ = model.name;
  source.config_ = model.config;
  TLM_RETURN_IF_ERROR(options.random_weights.has_value()
                          ? source.ReserveRandom(*options.random_weights)
                          : source.OpenFiles(*model.files));
  return source;
}

absl::Status ModelSource::OpenFiles(const ModelFiles& files) {
  TLM_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::Open(files));
  TLM_RETURN_IF_ERROR(WithFile(BindFiles()));
  for (const auto& [name, tensor] : checkpoint_->tensors()) {
    tensors_.push_back({name, tensor.dtype, tensor.shape, tensor.dtype});
  }
  return absl::OkStatus();
}

absl::Status ModelSource::BindFiles() {
  TLM_ASSIGN_OR_RETURN(weights_, BindWeights(config_, *checkpoint_));
  if (config_.quantisation.empty()) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(quantised_, QuantisedWeights::Reserve(config_, weights_, *checkpoint_));
  weights_ = quantised_->weights();
  return absl::OkStatus();
}

absl::Status ModelSource::WithFile(const absl::Status& read) const {
  if (!checkpoint_.has_value()) return read;
  TLM_RETURN_IF_ERROR(checkpoint_->CheckUnchanged());
  const std::string tensor = FieldOf(read);
  if (tensor.empty()) return read;
  std::string file = checkpoint_->FileOf(tensor);
  if (file.empty()) file = checkpoint_->FileOf(OtherTensorName(config_.naming, tensor));
  return file.empty() ? read : WithContext(read, file);
}

absl::Status ModelSource::ReserveRandom(const RandomInit& asked) {
  seed_ = asked.seed;
  TLM_ASSIGN_OR_RETURN(const DType named, WeightsDTypeFromName(config_.weights_dtype));
  random_dtype_ = asked.dtype.value_or(named);
  TLM_ASSIGN_OR_RETURN(random_, RandomWeights::Reserve(config_, random_dtype_, seed_));
  weights_ = random_->weights();
  for (const TensorSpec& spec : weights_.specs) {
    tensors_.push_back({spec.name, random_dtype_, spec.shape, std::nullopt});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
  return absl::OkStatus();
}

std::vector<TensorRecord> ModelSource::Tensors(WeightFormat format, const Ops& ops) const {
  std::vector<TensorRecord> tensors = tensors_;
  for (TensorRecord& tensor : tensors) {
    const TensorView view{tensor.dtype, tensor.shape};
    const bool stays = tensor.shape.rank() == 2 && format != WeightFormat::kFloat32 &&
                       ops.TakesBlocks({&view, 1}, MatrixUse::kPlain);
    if (tensor.dtype == DType::kF64) tensor.dtype = DType::kF32;
    if (!IsBlockQuantised(tensor.dtype) || stays) continue;
    tensor.dtype = format == WeightFormat::kFloat32 ? DType::kF32 : DequantisedType(tensor.dtype);
  }
  return tensors;
}

absl::Status ModelSource::CheckFormat(WeightFormat format) const {
  if (!BlockTypeOf(format).has_value()) return absl::OkStatus();
  if (quantised_.has_value()) {
    return FailedPrecondition(
        "--weights={}: {} has a quantization_config; only weights of full precision are "
        "quantised, --weights=auto serves these as they are",
        WeightFormatName(format), Quoted(name_));
  }
  for (const TensorRecord& tensor : tensors_) {
    if (!IsBlockQuantised(tensor.dtype)) continue;
    return FailedPrecondition(
        "--weights={}: tensor {} is {}; only weights of full precision are quantised, "
        "--weights=auto serves these as they are",
        WeightFormatName(format), Quoted(tensor.name), DTypeName(tensor.dtype));
  }
  return absl::OkStatus();
}

PackingPlan ModelSource::PackingFor(WeightFormat format, const Ops& ops) const {
  PackingPlan plan = PlanPacking(config_, weights_, format, ops);
  if (random_.has_value()) plan.host = random_->ResidentBytes();
  plan.host += QuantisedWeights::ResidentBytesFor(config_, weights_);
  return plan;
}

ModelWeights ModelSource::Weights(const Reading& reading) {
  if (random_.has_value()) return weights_;
  is_shared_ = !reading.by_packer_alone;
  if (is_shared_ && !quantised_.has_value()) return weights_;
  pager_ = std::make_unique<CheckpointPager>(
      *checkpoint_,
      CheckpointPager::Options{.check_finite = !reading.checks_finite, .release = !is_shared_});
  if (quantised_.has_value()) {
    quantised_->ReadBy(pager_.get());
    return weights_;
  }
  ModelWeights weights = weights_;
  weights.pager = pager_.get();
  return weights;
}

absl::StatusOr<std::string> ModelSource::ReadIdentity() const {
  CheckpointPager reader(*checkpoint_, {.check_finite = false, .release = false});
  for (const TensorSpec& spec : weights_.specs) {
    const TensorView& tensor = TensorOf(spec, weights_);
    TLM_RETURN_IF_ERROR(reader.Acquire(quantised_.has_value() ? quantised_->StoredOf(tensor)
                                                              : std::vector{tensor}));
  }
  return reader.Identity();
}

absl::StatusOr<std::string> ModelSource::WeightsIdentity() const {
  if (checkpoint_.has_value()) {
    TLM_ASSIGN_OR_RETURN(const std::string hash, is_shared_ ? ReadIdentity() : pager_->Identity());
    return fmt::format("tensors {}", hash);
  }
  constexpr int kGenerator = 1;  // grows when the same seed gives other weights
  return fmt::format("random {} seed {} {}", kGenerator, seed_, DTypeName(random_dtype_));
}

}  // namespace tlm
