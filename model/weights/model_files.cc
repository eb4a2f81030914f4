#include "model/weights/model_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/config/config_reader.h"
#include "model/config/gguf_config.h"

namespace tlm {
namespace {

using GgufFiles = std::vector<std::shared_ptr<const GgufFile>>;

bool IsGgufFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.ends_with(".gguf")) return true;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

struct SplitName {
  std::string prefix;
  int64_t number = 0;  // counted from 1
  int64_t count = 0;
};

// Parses a name "PREFIX-00001-of-00003.gguf"; returns nullopt for other names.
std::optional<SplitName> ParseSplitName(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() < kPattern.size()) return std::nullopt;
  SplitName name{.prefix = path.substr(0, path.size() - kPattern.size())};
  const std::string_view rest = std::string_view(path).substr(name.prefix.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool is_digit = rest[i] >= '0' && rest[i] <= '9';
    if (kPattern[i] == '0' ? !is_digit : rest[i] != kPattern[i]) return std::nullopt;
    if (kPattern[i] != '0') continue;
    int64_t& number = i < kPattern.size() / 2 ? name.number : name.count;
    number = 10 * number + (rest[i] - '0');
  }
  return name;
}

std::string PathOf(const SplitName& name, int64_t number) {
  return fmt::format("{}-{:05d}-of-{:05d}.gguf", name.prefix, number, name.count);
}

// Returns how many files the model has according to `file`, which must be the first.
absl::StatusOr<int64_t> CountFiles(const GgufFile& file, const std::optional<SplitName>& name) {
  const GgufMetadata& metadata = file.header().metadata;
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> given, metadata.Integer("split.count"));
  const int64_t count = given.value_or(1);
  if (count < 0 || count > kMaxGgufFiles) {
    return InvalidArgument("key 'split.count' is {}, the limit is {}", count, kMaxGgufFiles);
  }
  if (count <= 1) return 1;
  if (!name.has_value() || name->count != count) {
    return InvalidArgument(
        "key 'split.count' is {}, but the file's name does not end in '-00001-of-{:05d}.gguf'",
        count, count);
  }
  if (name->number != 1) {
    return InvalidArgument("is file {} of {}, give the first one: {}", name->number, count,
                           PathOf(*name, 1));
  }
  return count;
}

absl::Status CheckNumber(const GgufFile& file, int64_t index, int64_t count) {
  const GgufMetadata& metadata = file.header().metadata;
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> own_count, metadata.Integer("split.count"));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> own_index, metadata.Integer("split.no"));
  if (own_count.value_or(1) == count && own_index.value_or(0) == index) return absl::OkStatus();
  return InvalidArgument(
      "keys 'split.no' and 'split.count' are {} and {}, by its name they must be {} and {}",
      own_index.value_or(0), own_count.value_or(1), index, count);
}

absl::Status CheckTogether(const GgufFiles& files) {
  std::set<std::string_view> names;
  for (const auto& file : files) {
    for (const auto& [name, view] : file->tensors()) {
      if (!names.insert(name).second) {
        return InvalidArgument("{}: tensor {} is in another file of the model, too", file->path(),
                               Quoted(name));
      }
    }
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> count,
                       files.front()->header().metadata.Integer("split.tensors.count"));
  if (!count.has_value() || *count == static_cast<int64_t>(names.size())) return absl::OkStatus();
  return InvalidArgument("{}: key 'split.tensors.count' is {}, the files have {}",
                         files.front()->path(), *count, names.size());
}

// Returns the elements of the tensor of rotary factors; empty if there is no such tensor.
absl::StatusOr<std::vector<float>> RopeFactors(const GgufFiles& files) {
  for (const auto& file : files) {
    const TensorView* const view = file->Find(kRopeFactors);
    if (view == nullptr) continue;
    if (view->dtype != DType::kF32 || view->elements() > ConfigLimits::kHeadDim / 2) {
      return InvalidArgument("tensor '{}' is {} {}, it must be F32 with at most {} elements",
                             kRopeFactors, DTypeName(view->dtype), view->shape.ToString(),
                             ConfigLimits::kHeadDim / 2);
    }
    return std::vector<float>(view->as<float>(), view->as<float>() + view->elements());
  }
  return std::vector<float>();
}

}  // namespace

absl::StatusOr<ModelFiles> ModelFiles::Open(const std::string& path) {
  ModelFiles files(path);
  if (IsGgufFile(path)) TLM_RETURN_IF_ERROR(files.OpenGguf());
  return files;
}

absl::Status ModelFiles::OpenGguf() {
  const auto open = [this](const std::string& path) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
    gguf_.push_back(std::make_shared<GgufFile>(std::move(file)));
    return absl::OkStatus();
  };
  TLM_RETURN_IF_ERROR(open(path_));
  const std::optional<SplitName> name = ParseSplitName(path_);
  const absl::StatusOr<int64_t> count = CountFiles(*gguf_.front(), name);
  if (!count.ok()) return WithContext(count.status(), path_);
  if (*count == 1) return CheckTogether(gguf_);
  for (int64_t i = 0; i < *count; ++i) {
    if (i > 0) TLM_RETURN_IF_ERROR(open(PathOf(*name, i + 1)));
    TLM_RETURN_IF_ERROR(WithContext(CheckNumber(*gguf_.back(), i, *count), gguf_.back()->path()));
  }
  return CheckTogether(gguf_);
}

absl::StatusOr<ModelConfig> ModelFiles::ReadGguf() const {
  std::vector<GgufTensor> tensors;
  for (const auto& file : gguf_) {
    tensors.insert(tensors.end(), file->header().tensors.begin(), file->header().tensors.end());
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<float> factors, RopeFactors(gguf_));
  return ReadGgufConfig(metadata(), tensors, factors);
}

absl::StatusOr<ModelConfig> ModelFiles::ReadConfig() const {
  if (!is_gguf()) return ReadModelConfig(path_);
  absl::StatusOr<ModelConfig> config = ReadGguf();
  if (!config.ok()) return WithContext(config.status(), path_);
  return config;
}

absl::Status ModelFiles::CheckUnchanged() const {
  for (const auto& file : gguf_) TLM_RETURN_IF_ERROR(file->mapped().CheckUnchanged());
  return absl::OkStatus();
}

void ModelFiles::ReleaseHeaders() const {
  for (const auto& file : gguf_) {
    const std::span<const std::byte> bytes = file->bytes();
    file->mapped().Release(
        bytes.first(std::min<uint64_t>(bytes.size(), file->header().data_begin)));
  }
}

}  // namespace tlm
