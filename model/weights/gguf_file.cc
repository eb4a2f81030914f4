#include "model/weights/gguf_file.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
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

constexpr std::string_view kSuffix = ".gguf";

// One tensor type, numbered as in the ggml library.
struct TypeRow {
  uint32_t number;
  const char* name;
  std::optional<DType> dtype;  // nullopt: unsupported
};
constexpr TypeRow kTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", DType::kQ4K},
    {13, "Q5_K", DType::kQ5K},
    {14, "Q6_K", DType::kQ6K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", DType::kIq4Nl},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", DType::kF64},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
};

absl::StatusOr<DType> TypeOf(uint32_t number) {
  std::string read;
  for (const TypeRow& row : kTypes) {
    if (row.number == number && row.dtype.has_value()) return *row.dtype;
    if (row.dtype.has_value()) read += fmt::format("{}{}", read.empty() ? "" : ", ", row.name);
  }
  const auto* const known = std::ranges::find(kTypes, number, &TypeRow::number);
  if (known == std::end(kTypes)) return InvalidArgument("type is {}, which is none", number);
  return Unimplemented("type is {}, supported are {}", known->name, read);
}

// Returns the tensor's view within `data`, the data of the whole file.
absl::StatusOr<TensorView> ViewOf(const GgufTensor& tensor, std::span<const std::byte> data) {
  TensorView view;
  TLM_ASSIGN_OR_RETURN(view.dtype, TypeOf(tensor.type));
  const DTypeBlock block = BlockOf(view.dtype);
  if (static_cast<uint64_t>(tensor.dims[0]) % block.elements != 0) {
    return InvalidArgument("has rows of {} elements, {} needs a multiple of {}", tensor.dims[0],
                           DTypeName(view.dtype), block.elements);
  }
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    view.shape.Append(tensor.dims[static_cast<size_t>(axis)]);
  }
  const uint64_t blocks = static_cast<uint64_t>(view.shape.elements()) / block.elements;
  const uint64_t left = data.size() - std::min<uint64_t>(data.size(), tensor.offset);
  if (blocks > left / block.bytes) {
    return InvalidArgument("{} of shape {} at offset {} does not fit the file's {} bytes of data",
                           DTypeName(view.dtype), view.shape.ToString(), tensor.offset,
                           data.size());
  }
  view.data = data.data() + tensor.offset;
  return view;
}

absl::Status CheckNoOverlap(const std::map<std::string, TensorView, std::less<>>& tensors) {
  std::vector<const std::pair<const std::string, TensorView>*> by_place;
  for (const auto& item : tensors) by_place.push_back(&item);
  std::ranges::sort(by_place, {}, [](const auto* item) { return item->second.data; });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const auto& [name, view] = *by_place[i - 1];
    if (view.as<std::byte>() + view.bytes() <= by_place[i]->second.data) continue;
    return InvalidArgument("tensors {} and {} overlap", Quoted(name), Quoted(by_place[i]->first));
  }
  return absl::OkStatus();
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

absl::Status CheckTogether(const std::vector<GgufFile>& files) {
  std::set<std::string_view> names;
  for (const GgufFile& file : files) {
    for (const auto& [name, view] : file.tensors()) {
      if (!names.insert(name).second) {
        return InvalidArgument("{}: tensor {} is in another file of the model, too", file.path(),
                               Quoted(name));
      }
    }
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> count,
                       files.front().header().metadata.Integer("split.tensors.count"));
  if (!count.has_value() || *count == static_cast<int64_t>(names.size())) return absl::OkStatus();
  return InvalidArgument("{}: key 'split.tensors.count' is {}, the files have {}",
                         files.front().path(), *count, names.size());
}

// Returns the elements of the tensor of rotary factors; empty if there is no such tensor.
absl::StatusOr<std::vector<float>> RopeFactors(const std::vector<GgufFile>& files) {
  for (const GgufFile& file : files) {
    const TensorView* const view = file.Find(kRopeFactors);
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

absl::StatusOr<ModelConfig> ReadConfig(const std::vector<GgufFile>& files) {
  std::vector<GgufTensor> tensors;
  for (const GgufFile& file : files) {
    tensors.insert(tensors.end(), file.header().tensors.begin(), file.header().tensors.end());
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<float> factors, RopeFactors(files));
  return ReadGgufConfig(files.front().header().metadata, tensors, factors);
}

}  // namespace

bool IsGgufFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.ends_with(kSuffix)) return true;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "GGUF";
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  GgufFile file(std::move(mapped));
  const absl::Status read = WithContext(file.Read(), path);
  TLM_RETURN_IF_ERROR(file.mapped().CheckUnchanged());
  TLM_RETURN_IF_ERROR(read);
  return file;
}

absl::Status GgufFile::Read() {
  TLM_ASSIGN_OR_RETURN(header_, ParseGgufHeader(bytes()));
  const auto data = bytes().subspan(std::min<uint64_t>(bytes().size(), header_.data_begin));
  std::map<std::string, TensorView, std::less<>> views;
  for (const GgufTensor& tensor : header_.tensors) {
    const absl::StatusOr<TensorView> view = ViewOf(tensor, data);
    if (!view.ok()) {
      return WithContext(view.status(), fmt::format("tensor {}", Quoted(tensor.name)));
    }
    views.emplace(tensor.name, *view);
  }
  TLM_RETURN_IF_ERROR(CheckNoOverlap(views));
  for (const auto& [name, view] : views) TLM_RETURN_IF_ERROR(Add(name, view));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GgufFile>> OpenGgufFiles(const std::string& path) {
  std::vector<GgufFile> files;
  TLM_ASSIGN_OR_RETURN(GgufFile first, GgufFile::Open(path));
  files.push_back(std::move(first));
  const std::optional<SplitName> name = ParseSplitName(path);
  const absl::StatusOr<int64_t> count = CountFiles(files.front(), name);
  if (!count.ok()) return WithContext(count.status(), path);
  for (int64_t i = 0; i < *count; ++i) {
    if (i > 0) {
      TLM_ASSIGN_OR_RETURN(GgufFile next, GgufFile::Open(PathOf(*name, i + 1)));
      files.push_back(std::move(next));
    }
    if (*count == 1) break;
    TLM_RETURN_IF_ERROR(WithContext(CheckNumber(files.back(), i, *count), files.back().path()));
  }
  TLM_RETURN_IF_ERROR(CheckTogether(files));
  return files;
}

absl::StatusOr<ModelConfig> ConfigOf(const std::vector<GgufFile>& files) {
  absl::StatusOr<ModelConfig> config = ReadConfig(files);
  if (!config.ok()) return WithContext(config.status(), files.front().path());
  return config;
}

absl::StatusOr<ModelConfig> ReadConfigOf(const std::string& path) {
  if (!IsGgufFile(path)) return ReadModelConfig(path);
  TLM_ASSIGN_OR_RETURN(const std::vector<GgufFile> files, OpenGgufFiles(path));
  return ConfigOf(files);
}

}  // namespace tlm
