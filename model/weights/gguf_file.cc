#include "model/weights/gguf_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

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

}  // namespace

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

}  // namespace tlm
