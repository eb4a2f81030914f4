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
  uint64_t begin = 0;  // offset of its bytes from the end of the header
  uint64_t end = 0;    // offset after its last byte
};

struct SafetensorsHeader {
  static constexpr size_t kMaxTensors = size_t{1} << 17;  // the same limit as for GGUF

  std::map<std::string, SafetensorsEntry, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses the JSON text between the file's first eight bytes and its data, which are `data_bytes`
// long. Leading and trailing white space is allowed. Every returned entry has passed all checks: a
// known dtype, at most Shape::kMaxRank dimensions, begin <= end <= data_bytes, and the bytes that
// dtype and shape require, without overflow; together the entries cover the data without gap or
// overlap. There are at most kMaxTensors. INVALID_ARGUMENT names the tensor, the value and the
// expected value; also for duplicate keys and keys that the format does not know.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes);

// One mapped file. Move-only and immutable: any thread may read. Its views stay valid after a move.
class SafetensorsFile : public TensorFile {
 public:
  // The longest allowed header, the same limit as in the format's own implementation.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Checks the whole header before anything is allocated for a tensor; ParseSafetensorsHeader says
  // what holds afterwards. The data are mapped, not read; only a tensor whose address in the file
  // is misaligned for its element type is copied. Returns NOT_FOUND and FAILED_PRECONDITION like
  // MappedFile::Open; INVALID_ARGUMENT, naming file, tensor, value and limit, for a bad file;
  // RESOURCE_EXHAUSTED if there is no memory for such a copy.
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
