// The header of an untrusted GGUF file (version 2 or 3, little-endian): typed metadata and the
// table of tensors. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef TLM_MODEL_BASE_GGUF_HEADER_H_
#define TLM_MODEL_BASE_GGUF_HEADER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// The type numbers of the file format.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// A value of the metadata. Its views point into the file's bytes.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  std::span<const std::byte> bytes;  // bytes of a number, or of an array's elements
  std::string_view text;             // content of a string
  // These four describe an array:
  GgufType element_type = GgufType::kUint8;
  uint64_t count = 0;
  std::vector<uint32_t> starts;        // offsets of the strings in `bytes`, and the end of the last
                                       // one
  std::span<const std::byte> encoded;  // the whole value as the file encodes it
};

// The strings of an array; valid as long as its GgufValue lives.
class GgufStrings {
 public:
  explicit GgufStrings(const GgufValue& array) : bytes_(array.bytes), starts_(array.starts) {}

  size_t size() const { return starts_.size() - 1; }
  std::string_view operator[](size_t index) const;

 private:
  std::span<const std::byte> bytes_;
  std::span<const uint32_t> starts_;
};

// The metadata by key. A value of a wrong type gives INVALID_ARGUMENT; the message names the key,
// the value and the allowed values. Immutable: any thread may read.
class GgufMetadata {
 public:
  using Values = std::map<std::string, GgufValue, std::less<>>;

  GgufMetadata() = default;
  explicit GgufMetadata(Values values) : values_(std::move(values)) {}

  const Values& values() const { return values_; }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Returns null when the key is absent.
  const GgufValue* Find(std::string_view key) const;

  // These return nullopt when the key is absent. Integers of every width count if they fit 64 bits
  // signed.
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;  // finite
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;
  absl::StatusOr<std::optional<GgufStrings>> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<double>>> Numbers(std::string_view key) const;  // finite

  // Returns an integer in [1, limit]; the key is required unless `otherwise` is given.
  absl::StatusOr<int64_t> Dimension(std::string_view key, int64_t limit,
                                    std::optional<int64_t> otherwise = std::nullopt) const;
  absl::StatusOr<std::string_view> RequiredString(std::string_view key) const;

 private:
  Values values_;
};

struct GgufTensor {
  std::string name;
  int rank = 0;
  std::array<int64_t, 4> dims{};  // innermost first; their product fits 63 bits
  uint32_t type = 0;              // a number of ggml_type
  uint64_t offset = 0;            // from the beginning of the data; a multiple of the alignment
};

struct GgufHeader {
  // Counted from the header's beginning.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  static constexpr uint64_t kMaxEntries = uint64_t{1} << 16;   // entries of metadata
  static constexpr uint64_t kMaxElements = uint64_t{1} << 24;  // elements of an array
  static constexpr uint64_t kMaxTensors = uint64_t{1} << 17;
  static constexpr uint64_t kMaxKeyBytes = 65535;
  static constexpr uint64_t kMaxTensorNameBytes = 64;
  static constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file; no name occurs twice
  uint64_t alignment = 0;           // a power of two, at least 8
  uint64_t data_begin = 0;          // offset of the tensors' data from the beginning of the file
};

// Parses the beginning of `file`, which must outlive the result. Checks every count and length
// against the bytes that are there before it allocates memory. INVALID_ARGUMENT names the key or
// the tensor, the value and the limit; version 1, big-endian files and arrays of arrays are
// UNIMPLEMENTED. Does not check that the tensors' data are within the file: the reader of their
// types does.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::span<const std::byte> file);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_GGUF_HEADER_H_
