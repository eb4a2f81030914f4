// Models in GGUF files, one or several.
#ifndef TLM_MODEL_WEIGHTS_GGUF_FILE_H_
#define TLM_MODEL_WEIGHTS_GGUF_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/config/model_config.h"
#include "model/weights/tensor_file.h"

namespace tlm {

// Whether this is a file, not a directory, that is named "*.gguf" or begins as such a file.
bool IsGgufFile(const std::string& path);

// Move-only. Immutable: any thread may read.
class GgufFile : public TensorFile {
 public:
  // Checks the whole header before anything is allocated for a tensor. Of every tensor the type is
  // known, a row is a whole number of blocks, and the data lie in the file and overlap no other's.
  // Shapes are outermost first, as everywhere here. NOT_FOUND and FAILED_PRECONDITION as
  // MappedFile::Open; INVALID_ARGUMENT, naming file, key or tensor, value and limit, for a bad
  // file; UNIMPLEMENTED as ParseGgufHeader, and for types that are not read, by name.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  // Its views are of this file.
  const GgufHeader& header() const { return header_; }

 private:
  explicit GgufFile(MappedFile file) : TensorFile(std::move(file)) {}
  absl::Status Read();

  GgufHeader header_;
};

inline constexpr int kMaxGgufFiles = 1024;

// The file, or all files "NAME-00001-of-0000N.gguf" where it is the first of several.
// INVALID_ARGUMENT also when files and the number of their tensors are not those that the first
// one says, and for a tensor that two of them have.
absl::StatusOr<std::vector<GgufFile>> OpenGgufFiles(const std::string& path);

// The configuration of these files: see model/config/gguf_config.h. Messages name the first file.
absl::StatusOr<ModelConfig> ConfigOf(const std::vector<GgufFile>& files);

// ReadModelConfig of a directory, ConfigOf of a GGUF file.
absl::StatusOr<ModelConfig> ReadConfigOf(const std::string& path);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_GGUF_FILE_H_
