// Reads a GGUF file: a header and tensors.
#ifndef TLM_MODEL_WEIGHTS_GGUF_FILE_H_
#define TLM_MODEL_WEIGHTS_GGUF_FILE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/weights/tensor_file.h"

namespace tlm {

// Move-only. Immutable: any thread may read.
class GgufFile : public TensorFile {
 public:
  // Checks the whole header before anything is allocated for a tensor. Every tensor then has a
  // known type, its rows are whole numbers of blocks, and its data are inside the file and overlap
  // no other tensor's. Shapes are outermost first, as everywhere here. Returns NOT_FOUND and
  // FAILED_PRECONDITION like MappedFile::Open; INVALID_ARGUMENT, naming file, key or tensor, value
  // and limit, for a bad file; UNIMPLEMENTED like ParseGgufHeader and, naming the type, for
  // unsupported types.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  // The header's views refer to this file.
  const GgufHeader& header() const { return header_; }

 private:
  explicit GgufFile(MappedFile file) : TensorFile(std::move(file)) {}
  absl::Status Read();

  GgufHeader header_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_GGUF_FILE_H_
