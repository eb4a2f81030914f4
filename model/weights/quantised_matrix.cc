#include "model/weights/quantised_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tensor/blocks.h"
#include "model/tensor/float_elements.h"
#include "model/tensor/fp8.h"

namespace tlm {
namespace {

using Format = QuantisationScheme::Format;
using Axis = PackedIntegers::Axis;

static_assert(std::endian::native == std::endian::little);

constexpr int kWordBits = 32;
constexpr int kSignedByte = 128;                        // added to a signed byte
constexpr int kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // place of each element in its integer
constexpr std::string_view kWeight = ".weight";
constexpr char kInputScale[] = ".input_scale";

// Suffixes of a module's tensors.
struct Names {
  const char* integers;
  const char* scales;
  const char* zeros;
  const char* groups;
  const char* shape;  // null: no such tensor
};

Names NamesOf(Format format) {
  switch (format) {
    case Format::kPackQuantised:
      return {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
              ".weight_shape"};
    case Format::kIntQuantised:
      return {".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx", nullptr};
    case Format::kFloat8:
      return {".weight", ".weight_scale", nullptr, nullptr, nullptr};
    case Format::kFloat8Blocks:
      return {".weight", ".weight_scale_inv", nullptr, nullptr, nullptr};
    default:
      return {".qweight", ".scales", ".qzeros", ".g_idx", nullptr};
  }
}

template <typename... Args>
absl::Status Bad(const std::string& tensor, fmt::format_string<Args...> format, Args&&... args) {
  return WithField(InvalidArgument("tensor {} {}", Quoted(tensor),
                                   fmt::format(format, std::forward<Args>(args)...)),
                   tensor);
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

DType BlocksOf(int bits, int64_t group_size) {
  constexpr DType kTypes[2][4] = {{DType::kI4G256, DType::kI4G128, DType::kI4G64, DType::kI4G32},
                                  {DType::kI8G256, DType::kI8G128, DType::kI8G64, DType::kI8G32}};
  int64_t size = 256;
  int i = 0;
  for (; size > 32 && group_size % size != 0; size /= 2) ++i;
  return kTypes[bits == 8][i];
}

int64_t IntegerAt(const TensorView& tensor, int64_t index) {
  return tensor.dtype == DType::kI64 ? tensor.as<int64_t>()[index] : tensor.as<int32_t>()[index];
}

// Reads one module by one scheme.
class Reader {
 public:
  Reader(const QuantisationScheme& scheme, std::string module, const Shape& shape,
         const Checkpoint& checkpoint)
      : scheme_(scheme),
        module_(std::move(module)),
        names_(NamesOf(scheme.format)),
        outputs_(shape[0]),
        inputs_(shape[1]),
        group_size_(scheme.group_size == 0 ? inputs_ : scheme.group_size),
        group_outputs_(scheme.group_outputs == 0 ? outputs_ : scheme.group_outputs),
        stored_bits_(scheme.format == Format::kIntQuantised ? 8 : scheme.bits),
        checkpoint_(checkpoint) {}

  bool IsThere() const {
    const TensorView* const integers = checkpoint_.Find(module_ + names_.integers);
    return integers != nullptr && !IsFloat(integers->dtype);
  }

  absl::StatusOr<QuantisedMatrix> Read() {
    if (is_float8()) return ReadFloats();
    TLM_RETURN_IF_ERROR(CheckSizes());
    TLM_RETURN_IF_ERROR(ReadIntegers());
    TLM_RETURN_IF_ERROR(ReadScales());
    TLM_RETURN_IF_ERROR(ReadZeros());
    TLM_RETURN_IF_ERROR(ReadGroups());
    TLM_RETURN_IF_ERROR(CheckShapeTensor());
    result_.group_size = group_size_;
    result_.zero = 1 << (stored_bits_ - 1);
    result_.view = {BlocksOf(stored_bits_, group_size_),
                    {outputs_, inputs_},
                    checkpoint_.Find(module_ + names_.integers)->data};
    return std::move(result_);
  }

 private:
  int per_word() const { return kWordBits / stored_bits_; }
  int64_t groups() const { return DivideUp(inputs_, group_size_); }
  bool is_float8() const {
    return scheme_.format == Format::kFloat8 || scheme_.format == Format::kFloat8Blocks;
  }
  bool inputs_first() const {
    return scheme_.format == Format::kAwq || scheme_.format == Format::kGptq;
  }

  absl::Status CheckSizes() const {
    const std::string name = module_ + names_.integers;
    if (inputs_ % group_size_ != 0) {
      return Bad(name, "is of {} inputs, no multiple of the group size {}", inputs_, group_size_);
    }
    if (inputs_ % 32 != 0) {
      return Bad(name, "is of {} inputs, which no group of 256, 128, 64 or 32 divides", inputs_);
    }
    if (inputs_first() && outputs_ % per_word() != 0) {
      return Bad(name, "is of {} outputs, no multiple of the {} elements of an integer", outputs_,
                 per_word());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<QuantisedMatrix> ReadFloats() {
    TLM_ASSIGN_OR_RETURN(const TensorView* const tensor, Required(names_.integers));
    TLM_RETURN_IF_ERROR(CheckType(names_.integers, *tensor, {DType::kF8E4M3}));
    TLM_RETURN_IF_ERROR(CheckShape(names_.integers, *tensor, {outputs_, inputs_}));
    if (inputs_ % 32 != 0) {
      return Bad(module_ + names_.integers, "is of {} inputs, which no group of 128 or 32 divides",
                 inputs_);
    }
    TLM_RETURN_IF_ERROR(ReadFloatScales());
    Find(kInputScale);  // the scale of activations, which are not quantised
    result_.floats = tensor->as<uint8_t>();
    result_.stored.push_back(*tensor);
    result_.group_size = group_size_;
    result_.group_outputs = group_outputs_;
    const bool large = inputs_ % 128 == 0 && (group_size_ % 128 == 0 || groups() == 1);
    result_.view = {large ? DType::kF8G128 : DType::kF8G32, {outputs_, inputs_}, tensor->data};
    return std::move(result_);
  }

  absl::Status ReadFloatScales() {
    TLM_ASSIGN_OR_RETURN(const TensorView* const tensor, Required(names_.scales));
    TLM_RETURN_IF_ERROR(
        CheckType(names_.scales, *tensor, {DType::kF32, DType::kBF16, DType::kF16}));
    const Shape shape{DivideUp(outputs_, group_outputs_), groups()};
    const bool is_whole = scheme_.group_outputs == 0 && groups() == 1;
    const bool is_channel = scheme_.group_outputs == 1 && groups() == 1;
    const bool flat =
        (is_whole && tensor->elements() == 1) || (is_channel && tensor->shape == Shape{outputs_});
    if (!flat) TLM_RETURN_IF_ERROR(CheckShape(names_.scales, *tensor, shape));
    result_.scales = *tensor;
    result_.scales_name = module_ + names_.scales;
    result_.stored.push_back(*tensor);
    return absl::OkStatus();
  }

  // Returns null if there is no such tensor.
  const TensorView* Find(const char* suffix) {
    const TensorView* const tensor = checkpoint_.Find(module_ + suffix);
    if (tensor != nullptr) result_.names.push_back(module_ + suffix);
    return tensor;
  }

  absl::StatusOr<const TensorView*> Required(const char* suffix) {
    const TensorView* const tensor = Find(suffix);
    if (tensor != nullptr) return tensor;
    return InvalidArgument("tensor {} is missing, {} is there", Quoted(module_ + suffix),
                           Quoted(module_ + names_.integers));
  }

  absl::Status CheckShape(const char* suffix, const TensorView& tensor,
                          const Shape& expected) const {
    if (tensor.shape == expected) return absl::OkStatus();
    return Bad(module_ + suffix,
               "has shape {}; quantization_config, with {} bits and groups of {}, and a matrix of "
               "{} outputs and {} inputs ask for {}",
               tensor.shape.ToString(), scheme_.bits,
               group_outputs_ == 1 ? fmt::format("{}", group_size_)
                                   : fmt::format("{} x {}", group_outputs_, group_size_),
               outputs_, inputs_, expected.ToString());
  }

  absl::Status CheckType(const char* suffix, const TensorView& tensor,
                         std::initializer_list<DType> types) const {
    std::string names;
    for (const DType type : types) {
      if (tensor.dtype == type) return absl::OkStatus();
      names += names.empty() ? "" : ", ";
      names += DTypeName(type);
    }
    return Bad(module_ + suffix, "is {}, supported here: {}", DTypeName(tensor.dtype), names);
  }

  absl::Status ReadIntegers() {
    TLM_ASSIGN_OR_RETURN(const TensorView* const tensor, Required(names_.integers));
    const bool bytes = scheme_.format == Format::kIntQuantised;
    TLM_RETURN_IF_ERROR(CheckType(names_.integers, *tensor, {bytes ? DType::kI8 : DType::kI32}));
    const int per = bytes ? 1 : per_word();
    const int64_t word = bytes ? 1 : kWordBits / 8;
    Shape shape{outputs_, inputs_ / per};
    Axis inputs{word, per};
    Axis outputs{word * (inputs_ / per), 1};
    if (scheme_.format == Format::kAwq) {
      shape = {inputs_, outputs_ / per};
      inputs = {word * (outputs_ / per), 1};
      outputs = {word, per, true};
    } else if (scheme_.format == Format::kGptq) {
      shape = {inputs_ / per, outputs_};
      inputs = {word * outputs_, per};
      outputs = {word, 1};
    }
    TLM_RETURN_IF_ERROR(CheckShape(names_.integers, *tensor, shape));
    result_.integers =
        PackedIntegers(tensor->data, stored_bits_, bytes ? kSignedByte : 0, inputs, outputs);
    result_.stored.push_back(*tensor);
    return absl::OkStatus();
  }

  absl::Status ReadScales() {
    TLM_ASSIGN_OR_RETURN(const TensorView* const tensor, Required(names_.scales));
    TLM_RETURN_IF_ERROR(
        CheckType(names_.scales, *tensor, {DType::kF32, DType::kBF16, DType::kF16}));
    TLM_RETURN_IF_ERROR(
        CheckShape(names_.scales, *tensor,
                   inputs_first() ? Shape{groups(), outputs_} : Shape{outputs_, groups()}));
    result_.scales = *tensor;
    result_.scales_by_group = inputs_first();
    result_.scales_name = module_ + names_.scales;
    result_.stored.push_back(*tensor);
    return absl::OkStatus();
  }

  absl::Status ReadZeros() {
    const TensorView* const tensor = Find(names_.zeros);
    if (tensor == nullptr && scheme_.symmetric) return absl::OkStatus();
    if (tensor == nullptr) return Required(names_.zeros).status();
    const int64_t word = kWordBits / 8;
    const int per = per_word();
    if (inputs_first()) {
      TLM_RETURN_IF_ERROR(CheckType(names_.zeros, *tensor, {DType::kI32}));
      TLM_RETURN_IF_ERROR(CheckShape(names_.zeros, *tensor, {groups(), outputs_ / per}));
      result_.zeros =
          PackedIntegers(tensor->data, stored_bits_, scheme_.zeros_less_one ? 1 : 0,
                         {word * (outputs_ / per), 1}, {word, per, scheme_.format == Format::kAwq});
    } else if (scheme_.format == Format::kPackQuantised) {
      TLM_RETURN_IF_ERROR(CheckType(names_.zeros, *tensor, {DType::kI32}));
      TLM_RETURN_IF_ERROR(CheckShape(names_.zeros, *tensor, {DivideUp(outputs_, per), groups()}));
      result_.zeros =
          PackedIntegers(tensor->data, stored_bits_, 0, {word, 1}, {word * groups(), per});
    } else {
      TLM_RETURN_IF_ERROR(CheckType(names_.zeros, *tensor, {DType::kI8}));
      TLM_RETURN_IF_ERROR(CheckShape(names_.zeros, *tensor, {outputs_, groups()}));
      result_.zeros = PackedIntegers(tensor->data, 8, kSignedByte, {1, 1}, {groups(), 1});
    }
    result_.stored.push_back(*tensor);
    return absl::OkStatus();
  }

  absl::Status ReadGroups() {
    const TensorView* const tensor = Find(names_.groups);
    if (tensor == nullptr && !scheme_.act_order) return absl::OkStatus();
    if (tensor == nullptr) return Required(names_.groups).status();
    TLM_RETURN_IF_ERROR(CheckType(names_.groups, *tensor, {DType::kI32, DType::kI64}));
    TLM_RETURN_IF_ERROR(CheckShape(names_.groups, *tensor, {inputs_}));
    const std::span<const std::byte> bytes(tensor->as<std::byte>(), tensor->bytes());
    checkpoint_.Populate(bytes);
    TLM_RETURN_IF_ERROR(OrderByGroup(*tensor));
    result_.stored.push_back(*tensor);
    return absl::OkStatus();
  }

  absl::Status OrderByGroup(const TensorView& group_of) {
    const std::string name = module_ + names_.groups;
    std::vector<int32_t> filled(static_cast<size_t>(groups()));
    std::vector<int32_t> order(static_cast<size_t>(inputs_));
    int64_t unset = 0;
    for (int64_t i = 0; i < inputs_; ++i) {
      const int64_t group = IntegerAt(group_of, i);
      if (group == -1 && unset == i) {
        ++unset;
        continue;
      }
      if (group < 0 || group >= groups() || unset > 0) {
        return Bad(name, "has group {} for input {}, allowed are 0 to {}", group, i, groups() - 1);
      }
      int32_t& place = filled[static_cast<size_t>(group)];
      if (place == group_size_) {
        return Bad(name, "has more than {} inputs in group {}, from input {} on", group_size_,
                   group, i);
      }
      order[static_cast<size_t>(group * group_size_ + place++)] = static_cast<int32_t>(i);
    }
    if (unset == 0 && !std::ranges::is_sorted(order)) result_.input_order = std::move(order);
    return absl::OkStatus();
  }

  absl::Status CheckShapeTensor() {
    const TensorView* const tensor = names_.shape == nullptr ? nullptr : Find(names_.shape);
    if (tensor == nullptr) return absl::OkStatus();
    TLM_RETURN_IF_ERROR(CheckType(names_.shape, *tensor, {DType::kI64, DType::kI32}));
    TLM_RETURN_IF_ERROR(CheckShape(names_.shape, *tensor, {2}));
    checkpoint_.Populate({tensor->as<std::byte>(), tensor->bytes()});
    const int64_t rows = IntegerAt(*tensor, 0);
    const int64_t columns = IntegerAt(*tensor, 1);
    if (rows == outputs_ && columns == inputs_) return absl::OkStatus();
    return Bad(module_ + names_.shape, "is [{}, {}], the configuration asks for [{}, {}]", rows,
               columns, outputs_, inputs_);
  }

  const QuantisationScheme scheme_;
  const std::string module_;
  const Names names_;
  const int64_t outputs_, inputs_;
  const int64_t group_size_;
  const int64_t group_outputs_;
  const int stored_bits_;
  const Checkpoint& checkpoint_;
  QuantisedMatrix result_;
};

}  // namespace

PackedIntegers::Place PackedIntegers::PlaceOf(const Axis& axis, int64_t index) const {
  int element = static_cast<int>(index % axis.elements);
  if (axis.is_interleaved) element = kAwqPlaces[element];
  const int bit = element * bits_;
  return {index / axis.elements * axis.stride + bit / 8, bit % 8};
}

absl::Status QuantisedMatrix::BadScale(int64_t index, float scale) const {
  return Bad(scales_name, "{}: element {} is {}, its weights are not finite",
             scales.shape.ToString(), index, scale);
}

absl::Status QuantisedMatrix::ConvertFloats(int64_t first, int64_t count, std::byte* out) const {
  const DTypeBlock block = BlockOf(view.dtype);
  const int64_t inputs = view.shape[1];
  const int64_t groups = DivideUp(inputs, group_size);
  for (int64_t j = first; j < first + count; ++j) {
    for (int64_t i = 0; i < inputs; i += static_cast<int64_t>(block.elements)) {
      const int64_t scale_at = j / group_outputs * groups + i / group_size;
      const float scale = FloatAt(scales.data, scales.dtype, scale_at);
      if (!std::isfinite(scale * kFp8Largest)) return BadScale(scale_at, scale);
      WriteF8Block(scale, {floats + j * inputs + i, block.elements}, out);
      out += block.bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::Convert(int64_t first, int64_t count, std::byte* out) const {
  if (floats != nullptr) return ConvertFloats(first, count, out);
  const DTypeBlock block = BlockOf(view.dtype);
  const auto size = static_cast<int64_t>(block.elements);
  const int64_t outputs = view.shape[0];
  const int64_t blocks = view.shape[1] / size;
  const int64_t groups = view.shape[1] / group_size;
  PackedIntegers::Place inputs[kMaxBlockElements];
  BlockValues values{};
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t group = b * size / group_size;
    const PackedIntegers::Place zeros_group = zeros.OfInput(group);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = b * size + i;
      inputs[i] = integers.OfInput(input_order.empty() ? at : input_order[static_cast<size_t>(at)]);
    }
    for (int64_t j = first; j < first + count; ++j) {
      const int64_t scale_at = scales_by_group ? group * outputs + j : j * groups + group;
      values.scale = FloatAt(scales.data, scales.dtype, scale_at);
      if (!std::isfinite(values.scale * 256.0f)) return BadScale(scale_at, values.scale);
      values.zero = zeros.empty() ? zero : zeros.At(zeros_group, zeros.OfOutput(j));
      const PackedIntegers::Place output = integers.OfOutput(j);
      for (int64_t i = 0; i < size; ++i) values.q[i] = integers.At(inputs[i], output);
      WriteBlock(view.dtype, values,
                 out + static_cast<size_t>((j - first) * blocks + b) * block.bytes);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindQuantisedMatrix(const ModelConfig& config,
                                                                   const TensorSpec& spec,
                                                                   const Checkpoint& checkpoint) {
  absl::Status first;
  for (const std::string& name : {spec.name, OtherTensorName(config.naming, spec.name)}) {
    if (!name.ends_with(kWeight) || spec.shape.rank() != 2) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    for (const QuantisationScheme& scheme : config.quantisation) {
      Reader reader(scheme, module, spec.shape, checkpoint);
      if (!reader.IsThere()) continue;
      absl::StatusOr<QuantisedMatrix> matrix = reader.Read();
      if (matrix.ok()) return std::optional(*std::move(matrix));
      if (first.ok()) first = matrix.status();
    }
  }
  TLM_RETURN_IF_ERROR(first);
  return std::optional<QuantisedMatrix>();
}

}  // namespace tlm
