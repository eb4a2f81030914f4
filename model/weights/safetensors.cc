#include "model/weights/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_builder.h"

namespace tlm {
namespace {

constexpr DType kDTypes[] = {DType::kF64,  DType::kF32,    DType::kBF16,  DType::kF16,
                             DType::kI64,  DType::kI32,    DType::kI16,   DType::kI8,
                             DType::kU64,  DType::kU32,    DType::kU16,   DType::kU8,
                             DType::kBool, DType::kF8E4M3, DType::kF8E5M2};

std::optional<DType> DTypeNamed(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string KnownDTypes() {
  std::string names;
  for (const DType dtype : kDTypes)
    names.append(names.empty() ? "" : ", ").append(DTypeName(dtype));
  return names;
}

// Reads the header from the parser's events: {name: {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [0, 24]}, ..., "__metadata__": {string: string}}. Anything else stops the parser
// at once, so that a hostile header costs memory only in proportion to its own length.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  absl::Status status() && { return std::move(status_); }
  SafetensorsHeader header() && { return std::move(header_); }

  bool null() { return Unexpected("null"); }
  bool boolean(bool value) { return Unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) { return Unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return Unexpected(Quoted(text)); }
  bool binary(nlohmann::json::binary_t&) { return Unexpected("binary data"); }
  bool number_unsigned(uint64_t value);
  bool string(std::string& value);
  bool start_object(size_t);
  bool key(std::string& name);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    return Refuse(std::string(JsonError(text_, position, error).message()));
  }

 private:
  // The next expected event.
  enum class State {
    kHeader,
    kName,  // a tensor's name, "__metadata__", or the header's end
    kEntry,
    kMetadataKey,
    kMetadataValue,
    kField,  // a field of an entry, or the entry's end
    kDType,
    kShape,
    kDimension,
    kOffsets,
    kOffset,
    kEnd,
  };

  // Returns "tensor 'x': " if the place is inside a tensor.
  std::string Where() const;
  bool Refuse(const std::string& what) {
    status_ = InvalidArgument("{}{}", Where(), what);
    return false;
  }
  bool Unexpected(const std::string& found);
  bool Next(State state) {
    state_ = state;
    return true;
  }

  bool StartMember(std::string name);
  bool StartField(const std::string& name);
  bool AddDimension(uint64_t value);
  bool FinishEntry();

  const std::string_view text_;
  State state_ = State::kHeader;
  absl::Status status_;
  SafetensorsHeader header_;
  // The fields of the current entry.
  std::string name_;
  std::optional<DType> dtype_;
  std::optional<Shape> shape_;
  std::optional<std::vector<uint64_t>> offsets_;
  std::string* metadata_value_ = nullptr;
};

std::string HeaderReader::Where() const {
  if (state_ == State::kHeader || state_ == State::kName || state_ == State::kEnd)
    return "header: ";
  if (state_ == State::kMetadataKey || state_ == State::kMetadataValue) return "__metadata__: ";
  return fmt::format("tensor {}: ", Quoted(name_));
}

bool HeaderReader::Unexpected(const std::string& found) {
  const auto wanted = [this] {
    switch (state_) {
      case State::kMetadataValue:
        return "a string";
      case State::kDType:
        return "the name of a dtype";
      case State::kShape:
      case State::kOffsets:
        return "an array";
      case State::kDimension:
        return "a dimension";
      case State::kOffset:
        return "a byte offset";
      default:
        return "an object";
    }
  };
  return Refuse(fmt::format("{} stands where {} belongs", found, wanted()));
}

bool HeaderReader::number_unsigned(uint64_t value) {
  if (state_ == State::kDimension) return AddDimension(value);
  if (state_ != State::kOffset) return Unexpected(std::to_string(value));
  if (offsets_->size() == 2) return Refuse("data_offsets has more than 2 elements");
  offsets_->push_back(value);
  return true;
}

bool HeaderReader::AddDimension(uint64_t value) {
  constexpr auto kLimit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value > kLimit) {
    return Refuse(fmt::format("a dimension is {}, the limit is {}", value, kLimit));
  }
  if (shape_->rank() == Shape::kMaxRank) {
    return Refuse(fmt::format("shape has more than {} dimensions", Shape::kMaxRank));
  }
  shape_->Append(static_cast<int64_t>(value));
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (state_ == State::kMetadataValue) {
    *metadata_value_ = std::move(value);
    return Next(State::kMetadataKey);
  }
  if (state_ != State::kDType) return Unexpected(Quoted(value));
  dtype_ = DTypeNamed(value);
  if (dtype_.has_value()) return Next(State::kField);
  return Refuse(fmt::format("dtype is {}, known are {}", Quoted(value), KnownDTypes()));
}

bool HeaderReader::start_object(size_t) {
  if (state_ == State::kHeader) return Next(State::kName);
  if (state_ != State::kEntry) return Unexpected("an object");
  if (name_ == "__metadata__") return Next(State::kMetadataKey);
  dtype_.reset();
  shape_.reset();
  offsets_.reset();
  return Next(State::kField);
}

bool HeaderReader::key(std::string& name) {
  if (state_ == State::kName) return StartMember(std::move(name));
  if (state_ == State::kField) return StartField(name);
  const auto [item, added] = header_.metadata.emplace(std::move(name), "");
  if (!added) return Refuse(fmt::format("key {} occurs twice", Quoted(item->first)));
  metadata_value_ = &item->second;
  return Next(State::kMetadataValue);
}

bool HeaderReader::StartMember(std::string name) {
  // Metadata also goes into the map until the header ends, so that a second one is found.
  const auto [member, added] = header_.tensors.emplace(std::move(name), SafetensorsEntry{});
  if (!added) return Refuse(fmt::format("key {} occurs twice", Quoted(member->first)));
  constexpr size_t kLimit = SafetensorsHeader::kMaxTensors;
  if (header_.tensors.size() > kLimit &&
      header_.tensors.size() > kLimit + header_.tensors.count("__metadata__")) {
    return Refuse(fmt::format("there are more than {} tensors", kLimit));
  }
  name_ = member->first;
  return Next(State::kEntry);
}

bool HeaderReader::StartField(const std::string& name) {
  const auto once = [&](bool seen, State next) {
    return seen ? Refuse(fmt::format("key '{}' occurs twice", name)) : Next(next);
  };
  if (name == "dtype") return once(dtype_.has_value(), State::kDType);
  if (name == "shape") return once(shape_.has_value(), State::kShape);
  if (name == "data_offsets") return once(offsets_.has_value(), State::kOffsets);
  return Refuse(fmt::format("key {} is not one of dtype, shape, data_offsets", Quoted(name)));
}

bool HeaderReader::end_object() {
  if (state_ == State::kField) return FinishEntry();
  if (state_ == State::kMetadataKey) return Next(State::kName);
  if (const auto found = header_.tensors.find("__metadata__"); found != header_.tensors.end()) {
    header_.tensors.erase(found);
  }
  return Next(State::kEnd);
}

bool HeaderReader::start_array(size_t) {
  if (state_ == State::kShape) {
    shape_.emplace();
    return Next(State::kDimension);
  }
  if (state_ != State::kOffsets) return Unexpected("an array");
  offsets_.emplace();
  return Next(State::kOffset);
}

bool HeaderReader::end_array() {
  if (state_ == State::kOffset && offsets_->size() != 2) {
    return Refuse(fmt::format("data_offsets has {} elements instead of 2", offsets_->size()));
  }
  return Next(State::kField);
}

bool HeaderReader::FinishEntry() {
  if (!dtype_.has_value()) return Refuse("dtype is missing");
  if (!shape_.has_value()) return Refuse("shape is missing");
  if (!offsets_.has_value()) return Refuse("data_offsets is missing");
  header_.tensors.find(name_)->second = {*dtype_, *shape_, (*offsets_)[0], (*offsets_)[1]};
  return Next(State::kName);
}

// Returns the bytes that dtype and shape require, or nullopt if 63 bits cannot hold them.
std::optional<uint64_t> BytesOf(const SafetensorsEntry& entry) {
  int64_t bytes = static_cast<int64_t>(DTypeBytes(entry.dtype));
  for (int axis = 0; axis < entry.shape.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, entry.shape[axis], &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

absl::Status CheckEntry(const std::string& name, const SafetensorsEntry& entry,
                        uint64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return InvalidArgument("tensor {}: data_offsets are [{}, {}], the data are {} bytes long",
                           Quoted(name), entry.begin, entry.end, data_bytes);
  }
  const std::optional<uint64_t> bytes = BytesOf(entry);
  if (!bytes.has_value()) {
    return InvalidArgument("tensor {}: the size of {} {} overflows 64 bits", Quoted(name),
                           DTypeName(entry.dtype), entry.shape.ToString());
  }
  if (*bytes == entry.end - entry.begin) return absl::OkStatus();
  return InvalidArgument("tensor {}: {} {} takes {} bytes, data_offsets give it {}", Quoted(name),
                         DTypeName(entry.dtype), entry.shape.ToString(), *bytes,
                         entry.end - entry.begin);
}

// Every byte belongs to exactly one tensor: no hidden data and no overlaps.
absl::Status CheckCoverage(const SafetensorsHeader& header, uint64_t data_bytes) {
  using Item = const std::pair<const std::string, SafetensorsEntry>*;
  std::vector<Item> items;
  items.reserve(header.tensors.size());
  for (const auto& item : header.tensors) items.push_back(&item);
  std::sort(items.begin(), items.end(), [](Item a, Item b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  for (const Item item : items) {
    if (item->second.begin != covered) {
      return InvalidArgument("tensor {}: begins at byte {}, the one before it ends at {}",
                             Quoted(item->first), item->second.begin, covered);
    }
    covered = item->second.end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return InvalidArgument("the tensors take {} bytes, the data are {} bytes long", covered,
                         data_bytes);
}

constexpr size_t kLengthBytes = 8;

// Returns the header's length from the first bytes, little-endian, checked against the file's
// length.
absl::StatusOr<uint64_t> ReadHeaderLength(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return InvalidArgument("is {} bytes long, the header's length alone takes {}", file.size(),
                           kLengthBytes);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (length > SafetensorsFile::kMaxHeaderBytes) {
    return InvalidArgument("header length is {}, the limit is {}", length,
                           SafetensorsFile::kMaxHeaderBytes);
  }
  if (length > file.size() - kLengthBytes) {
    return InvalidArgument("header length is {}, the file has {} bytes after it", length,
                           file.size() - kLengthBytes);
  }
  return length;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') return InvalidArgument("header: is no JSON object");
  TLM_RETURN_IF_ERROR(WithContext(CheckNoZeroByte(text), "header"));
  HeaderReader reader(text);
  if (!nlohmann::json::sax_parse(text, &reader)) return std::move(reader).status();
  SafetensorsHeader header = std::move(reader).header();
  for (const auto& [name, entry] : header.tensors) {
    TLM_RETURN_IF_ERROR(CheckEntry(name, entry, data_bytes));
  }
  TLM_RETURN_IF_ERROR(CheckCoverage(header, data_bytes));
  return header;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(std::move(mapped));
  const absl::Status read = WithContext(file.Read(), path);
  TLM_RETURN_IF_ERROR(file.mapped().CheckUnchanged());
  TLM_RETURN_IF_ERROR(read);
  return file;
}

absl::Status SafetensorsFile::Read() {
  TLM_ASSIGN_OR_RETURN(const uint64_t header_bytes, ReadHeaderLength(bytes()));
  const std::string_view text(reinterpret_cast<const char*>(bytes().data()) + kLengthBytes,
                              header_bytes);
  const std::span<const std::byte> data = bytes().subspan(kLengthBytes + header_bytes);
  TLM_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(text, data.size()));
  metadata_ = std::move(header.metadata);
  // Moves entries one by one, so that the two tables together stay small.
  while (!header.tensors.empty()) {
    const auto tensor = header.tensors.extract(header.tensors.begin());
    const SafetensorsEntry& entry = tensor.mapped();
    TLM_RETURN_IF_ERROR(Add(tensor.key(), {entry.dtype, entry.shape, data.data() + entry.begin}));
  }
  return absl::OkStatus();
}

}  // namespace tlm
