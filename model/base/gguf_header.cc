#include "model/base/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kLengthBytes = 8;  // length field of a string
constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

const char* TypeName(GgufType type) {
  constexpr const char* kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                    "int32",  "float32", "bool",   "string", "array",
                                    "uint64", "int64",   "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

// Returns the size of one number; 0 for strings and arrays.
uint64_t BytesOf(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T Load(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Reads the header's bytes in order. Failing reads leave their status in `status`.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file)
      : file_(file.first(std::min<size_t>(file.size(), GgufHeader::kMaxBytes))),
        is_cut_(file.size() > file_.size()) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  // Returns the next `count` bytes; messages call them `what`.
  absl::StatusOr<std::span<const std::byte>> Take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return InvalidArgument(
          "{} takes {} bytes, {} are left of {}", what, count, left(),
          is_cut_ ? fmt::format("the {} that a header may have", file_.size()) : "the file");
    }
    const auto taken = file_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Number(std::string_view what) {
    TLM_ASSIGN_OR_RETURN(const auto bytes, Take(sizeof(T), what));
    return Load<T>(bytes.data());
  }

  absl::StatusOr<std::string_view> String(std::string_view what, uint64_t limit = UINT64_MAX) {
    TLM_ASSIGN_OR_RETURN(const auto length, Number<uint64_t>(what));
    if (length > limit) {
      return InvalidArgument("{} has {} bytes, the limit is {}", what, length, limit);
    }
    TLM_ASSIGN_OR_RETURN(const auto bytes, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::span<const std::byte> Since(uint64_t begin) const {
    return file_.subspan(begin, position_ - begin);
  }

 private:
  const std::span<const std::byte> file_;
  const bool is_cut_;
  uint64_t position_ = 0;
};

absl::StatusOr<GgufType> ReadType(Cursor& cursor) {
  TLM_ASSIGN_OR_RETURN(const auto number, cursor.Number<uint32_t>("the type of the value"));
  constexpr auto kLast = static_cast<uint32_t>(GgufType::kFloat64);
  if (number > kLast) return InvalidArgument("value type is {}, the last one is {}", number, kLast);
  return static_cast<GgufType>(number);
}

absl::Status CheckBools(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    const int value = std::to_integer<int>(byte);
    if (value > 1) return InvalidArgument("a bool is {}, it may be 0 or 1", value);
  }
  return absl::OkStatus();
}

absl::Status ReadArray(Cursor& cursor, GgufValue* value) {
  TLM_ASSIGN_OR_RETURN(value->element_type, ReadType(cursor));
  TLM_ASSIGN_OR_RETURN(value->count, cursor.Number<uint64_t>("the length of the array"));
  if (value->element_type == GgufType::kArray) {
    return Unimplemented("is an array of arrays, which are not supported");
  }
  const bool is_text = value->element_type == GgufType::kString;
  const uint64_t least_bytes = is_text ? kLengthBytes : BytesOf(value->element_type);
  if (value->count > cursor.left() / least_bytes) {
    return InvalidArgument("is an array of {} {}, the {} bytes that are left hold at most {}",
                           value->count, TypeName(value->element_type), cursor.left(),
                           cursor.left() / least_bytes);
  }
  if (value->count > GgufHeader::kMaxElements) {
    return InvalidArgument("is an array of {} {}, the limit is {}", value->count,
                           TypeName(value->element_type), GgufHeader::kMaxElements);
  }
  if (!is_text) {
    TLM_ASSIGN_OR_RETURN(value->bytes, cursor.Take(value->count * least_bytes, "the array"));
    return value->element_type == GgufType::kBool ? CheckBools(value->bytes) : absl::OkStatus();
  }
  static_assert(GgufHeader::kMaxBytes <= std::numeric_limits<uint32_t>::max());
  const uint64_t begin = cursor.position();
  const auto add_start = [&] {
    value->starts.push_back(static_cast<uint32_t>(cursor.position() - begin));
  };
  value->starts.reserve(value->count + 1);
  for (uint64_t i = 0; i < value->count; ++i) {
    add_start();
    const auto text = cursor.String("a string");
    if (!text.ok()) return WithContext(text.status(), fmt::format("element {}", i));
  }
  add_start();
  value->bytes = cursor.Since(begin);
  return absl::OkStatus();
}

absl::Status ReadValue(Cursor& cursor, GgufValue* value) {
  const uint64_t begin = cursor.position();
  TLM_ASSIGN_OR_RETURN(value->type, ReadType(cursor));
  if (value->type == GgufType::kArray) {
    TLM_RETURN_IF_ERROR(ReadArray(cursor, value));
  } else if (value->type == GgufType::kString) {
    TLM_ASSIGN_OR_RETURN(value->text, cursor.String("the string"));
  } else {
    TLM_ASSIGN_OR_RETURN(value->bytes, cursor.Take(BytesOf(value->type), "the value"));
    if (value->type == GgufType::kBool) TLM_RETURN_IF_ERROR(CheckBools(value->bytes));
  }
  value->encoded = cursor.Since(begin);
  return absl::OkStatus();
}

absl::StatusOr<GgufMetadata> ReadMetadata(Cursor& cursor, uint64_t entries) {
  GgufMetadata::Values values;
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string place = fmt::format("metadata entry {}", i);
    auto key = cursor.String("the key", GgufHeader::kMaxKeyBytes);
    if (!key.ok()) return WithContext(key.status(), place);
    if (key->empty()) return InvalidArgument("{}: the key is empty", place);
    const auto [item, added] = values.emplace(*key, GgufValue());
    if (!added) return InvalidArgument("key {} occurs twice", Quoted(*key));
    const absl::Status read = ReadValue(cursor, &item->second);
    if (!read.ok()) return WithContext(read, fmt::format("key {}", Quoted(*key)));
  }
  return GgufMetadata(std::move(values));
}

absl::StatusOr<uint64_t> ReadAlignment(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> given, metadata.Integer(kAlignmentKey));
  const int64_t alignment = given.value_or(kDefaultAlignment);
  if (alignment >= 8 && alignment <= static_cast<int64_t>(GgufHeader::kMaxAlignment) &&
      std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return static_cast<uint64_t>(alignment);
  }
  return InvalidArgument("key '{}' is {}, it must be a power of two between 8 and {}",
                         kAlignmentKey, alignment, GgufHeader::kMaxAlignment);
}

absl::Status ReadDims(Cursor& cursor, GgufTensor* tensor) {
  TLM_ASSIGN_OR_RETURN(const auto rank, cursor.Number<uint32_t>("the number of dimensions"));
  if (rank < 1 || rank > tensor->dims.size()) {
    return InvalidArgument("has {} dimensions, it must have between 1 and {}", rank,
                           tensor->dims.size());
  }
  tensor->rank = static_cast<int>(rank);
  uint64_t product = 1;
  for (uint32_t axis = 0; axis < rank; ++axis) {
    TLM_ASSIGN_OR_RETURN(const auto dim, cursor.Number<uint64_t>("a dimension"));
    if (dim < 1 || dim > kMaxInt64 / product) {
      return InvalidArgument(
          "dimension {} is {}, it must be above 0, and the product of all at "
          "most {}",
          axis, dim, kMaxInt64);
    }
    product *= dim;
    tensor->dims[axis] = static_cast<int64_t>(dim);
  }
  return absl::OkStatus();
}

absl::Status ReadRest(Cursor& cursor, uint64_t alignment, GgufTensor* tensor) {
  TLM_RETURN_IF_ERROR(ReadDims(cursor, tensor));
  TLM_ASSIGN_OR_RETURN(tensor->type, cursor.Number<uint32_t>("the type"));
  TLM_ASSIGN_OR_RETURN(tensor->offset, cursor.Number<uint64_t>("the offset"));
  if (tensor->offset % alignment == 0) return absl::OkStatus();
  return InvalidArgument("offset is {}, it must be a multiple of the alignment, which is {}",
                         tensor->offset, alignment);
}

absl::StatusOr<std::vector<GgufTensor>> ReadTensors(Cursor& cursor, uint64_t count,
                                                    uint64_t alignment) {
  std::vector<GgufTensor> tensors;
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    auto name = cursor.String("the name", GgufHeader::kMaxTensorNameBytes);
    if (!name.ok()) return WithContext(name.status(), fmt::format("tensor {} of {}", i, count));
    if (name->empty()) return InvalidArgument("tensor {} of {}: the name is empty", i, count);
    if (!names.insert(*name).second)
      return InvalidArgument("tensor {} occurs twice", Quoted(*name));
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = *name;
    const absl::Status read = ReadRest(cursor, alignment, &tensor);
    if (!read.ok()) return WithContext(read, fmt::format("tensor {}", Quoted(*name)));
  }
  return tensors;
}

absl::StatusOr<uint32_t> ReadVersion(Cursor& cursor) {
  TLM_ASSIGN_OR_RETURN(const auto magic, cursor.Take(kMagic.size(), "the file's magic number"));
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgument("does not begin with '{}'", kMagic);
  }
  TLM_ASSIGN_OR_RETURN(const auto version, cursor.Number<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if (version != 0 && (version & 0xffffu) == 0) {
    return Unimplemented("was written for big-endian machines, only little-endian files are read");
  }
  return Unimplemented("GGUF version is {}, supported are 2 and 3", version);
}

absl::StatusOr<uint64_t> ReadCount(Cursor& cursor, std::string_view what, uint64_t limit) {
  TLM_ASSIGN_OR_RETURN(const auto count, cursor.Number<uint64_t>(what));
  if (count <= limit) return count;
  return InvalidArgument("{} is {}, the limit is {}", what, count, limit);
}

// Reads an integer of any width; nullopt if it does not fit 64 bits signed.
std::optional<int64_t> IntegerAt(const std::byte* at, GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return Load<uint8_t>(at);
    case GgufType::kInt8:
      return Load<int8_t>(at);
    case GgufType::kUint16:
      return Load<uint16_t>(at);
    case GgufType::kInt16:
      return Load<int16_t>(at);
    case GgufType::kUint32:
      return Load<uint32_t>(at);
    case GgufType::kInt32:
      return Load<int32_t>(at);
    case GgufType::kInt64:
      return Load<int64_t>(at);
    case GgufType::kUint64: {
      const auto value = Load<uint64_t>(at);
      if (value > kMaxInt64) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

// Reads a number; nullopt if it is no number or not finite.
std::optional<double> NumberAt(const std::byte* at, GgufType type) {
  double value = 0;
  if (type == GgufType::kFloat32) {
    value = Load<float>(at);
  } else if (type == GgufType::kFloat64) {
    value = Load<double>(at);
  } else {
    const std::optional<int64_t> integer = IntegerAt(at, type);
    if (!integer.has_value()) return std::nullopt;
    value = static_cast<double>(*integer);
  }
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

// Describes a value for messages.
std::string Described(const GgufValue& value) {
  switch (value.type) {
    case GgufType::kString:
      return Quoted(value.text);
    case GgufType::kArray:
      return fmt::format("an array of {} {}", value.count, TypeName(value.element_type));
    case GgufType::kBool:
      return Load<uint8_t>(value.bytes.data()) != 0 ? "true" : "false";
    case GgufType::kUint64:
      return fmt::format("{}", Load<uint64_t>(value.bytes.data()));
    case GgufType::kFloat32:
      return fmt::format("{}", Load<float>(value.bytes.data()));
    case GgufType::kFloat64:
      return fmt::format("{}", Load<double>(value.bytes.data()));
    default:
      return fmt::format("{}", IntegerAt(value.bytes.data(), value.type).value_or(0));
  }
}

absl::Status MistypedKey(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return InvalidArgument("key {} is {} ({}), it must be {}", Quoted(key), Described(value),
                         TypeName(value.type), wanted);
}

// Returns the value of a key that is present, by `read`, which returns nullopt for a wrong type.
template <typename T, typename Read>
absl::StatusOr<std::optional<T>> Get(const GgufMetadata& metadata, std::string_view key,
                                     std::string_view wanted, Read read) {
  const GgufValue* const value = metadata.Find(key);
  if (value == nullptr) return std::optional<T>();
  std::optional<T> result = read(*value);
  if (!result.has_value()) return MistypedKey(key, *value, wanted);
  return result;
}

// Returns the elements of an array of numbers, by `at`.
template <typename T, typename At>
std::optional<std::vector<T>> Elements(const GgufValue& value, At at) {
  const uint64_t width = BytesOf(value.element_type);
  if (value.type != GgufType::kArray || width == 0) return std::nullopt;
  std::vector<T> result;
  result.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const std::optional<T> element = at(value.bytes.data() + i * width, value.element_type);
    if (!element.has_value()) return std::nullopt;
    result.push_back(*element);
  }
  return result;
}

}  // namespace

absl::StatusOr<GgufHeader> ParseGgufHeader(std::span<const std::byte> file) {
  Cursor cursor(file);
  GgufHeader header;
  TLM_ASSIGN_OR_RETURN(header.version, ReadVersion(cursor));
  TLM_ASSIGN_OR_RETURN(const uint64_t tensors,
                       ReadCount(cursor, "the number of tensors", GgufHeader::kMaxTensors));
  TLM_ASSIGN_OR_RETURN(const uint64_t entries, ReadCount(cursor, "the number of metadata entries",
                                                         GgufHeader::kMaxEntries));
  TLM_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(cursor, entries));
  TLM_ASSIGN_OR_RETURN(header.alignment, ReadAlignment(header.metadata));
  TLM_ASSIGN_OR_RETURN(header.tensors, ReadTensors(cursor, tensors, header.alignment));
  header.data_begin =
      (cursor.position() + header.alignment - 1) / header.alignment * header.alignment;
  return header;
}

std::string_view GgufStrings::operator[](size_t index) const {
  const uint64_t begin = starts_[index] + kLengthBytes;
  const auto bytes = bytes_.subspan(begin, starts_[index + 1] - begin);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::optional<int64_t>> GgufMetadata::Integer(std::string_view key) const {
  return Get<int64_t>(*this, key, "an integer within 63 bits", [](const GgufValue& value) {
    return value.type == GgufType::kArray ? std::nullopt
                                          : IntegerAt(value.bytes.data(), value.type);
  });
}

absl::StatusOr<std::optional<double>> GgufMetadata::Number(std::string_view key) const {
  return Get<double>(*this, key, "a finite number", [](const GgufValue& value) {
    return value.type == GgufType::kArray ? std::nullopt : NumberAt(value.bytes.data(), value.type);
  });
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(std::string_view key) const {
  return Get<bool>(*this, key, "a bool", [](const GgufValue& value) -> std::optional<bool> {
    if (value.type != GgufType::kBool) return std::nullopt;
    return Load<uint8_t>(value.bytes.data()) != 0;
  });
}

absl::StatusOr<std::optional<std::string_view>> GgufMetadata::String(std::string_view key) const {
  return Get<std::string_view>(*this, key, "a string",
                               [](const GgufValue& value) -> std::optional<std::string_view> {
                                 if (value.type != GgufType::kString) return std::nullopt;
                                 return value.text;
                               });
}

absl::StatusOr<std::optional<GgufStrings>> GgufMetadata::Strings(std::string_view key) const {
  return Get<GgufStrings>(*this, key, "an array of strings",
                          [](const GgufValue& value) -> std::optional<GgufStrings> {
                            if (value.type != GgufType::kArray) return std::nullopt;
                            if (value.element_type != GgufType::kString) return std::nullopt;
                            return GgufStrings(value);
                          });
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufMetadata::Integers(
    std::string_view key) const {
  return Get<std::vector<int64_t>>(
      *this, key, "an array of integers within 63 bits",
      [](const GgufValue& value) { return Elements<int64_t>(value, IntegerAt); });
}

absl::StatusOr<std::optional<std::vector<double>>> GgufMetadata::Numbers(
    std::string_view key) const {
  return Get<std::vector<double>>(
      *this, key, "an array of finite numbers",
      [](const GgufValue& value) { return Elements<double>(value, NumberAt); });
}

absl::StatusOr<int64_t> GgufMetadata::Dimension(std::string_view key, int64_t limit,
                                                std::optional<int64_t> otherwise) const {
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> value, Integer(key));
  if (!value.has_value()) value = otherwise;
  if (!value.has_value()) return InvalidArgument("key {} is missing", Quoted(key));
  if (*value >= 1 && *value <= limit) return *value;
  return InvalidArgument("key {} is {}, it must be between 1 and {}", Quoted(key), *value, limit);
}

absl::StatusOr<std::string_view> GgufMetadata::RequiredString(std::string_view key) const {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string_view> value, String(key));
  if (!value.has_value()) return InvalidArgument("key {} is missing", Quoted(key));
  return *value;
}

}  // namespace tlm
