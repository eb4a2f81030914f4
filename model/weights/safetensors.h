// Reads untrusted safetensors files (https://github.com/huggingface/safetensors): eight bytes of
// header length, a JSON header, the tensors' bytes.
#ifndef TLM_MODEL_WEIGHTS_SAFETENSORS_H_
#define TLM_MODEL_WEIGHTS_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/tensor_file.h"

namespace tlm {

struct SafetensorsEntry {
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // of its bytes, from the end of the header
  uint64_t end = 0;    // one past them
};

struct SafetensorsHeader {
  static constexpr size_t kMaxTensors = size_t{1} << 17;  // as of GGUF

  std::map<std::string, SafetensorsEntry, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses the JSON text between the file's first eight bytes and its data, which are `data_bytes`
// long. White space may stand before and after. Every entry has passed all checks: a known dtype,
// at most Shape::kMaxRank dimensions, begin <= end <= data_bytes, as many bytes as dtype and shape
// say, without overflow; together the entries cover the data without gap or overlap. There are at
// most kMaxTensors. INVALID_ARGUMENT names the tensor, the value and what it should have been; also
// for keys that occur twice and keys the format does not know.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes);

// One mapped file. Move-only and immutable: any thread may read. Moving it leaves all views valid.
class SafetensorsFile : public TensorFile {
 public:
  // The longest header, as in the format's own implementation.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Checks the whole header before anything is allocated for a tensor; see
  // ParseSafetensorsHeader for what holds afterwards. The data are mapped, not read; only a tensor
  // that the file places at an address unfit for its element type is copied. NOT_FOUND and
  // FAILED_PRECONDITION as MappedFile::Open; INVALID_ARGUMENT, naming file, tensor, value and
  // limit, for a bad file; RESOURCE_EXHAUSTED when there is no memory for such a copy.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // The header's `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  explicit SafetensorsFile(MappedFile file) : TensorFile(std::move(file)) {}
  absl::Status Read();

  std::map<std::string, std::string> metadata_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_SAFETENSORS_H_
