// Reads models in GGUF files, one or several.
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

// Whether `path` is a file, not a directory, and is named "*.gguf" or begins like a GGUF file.
bool IsGgufFile(const std::string& path);

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

inline constexpr int kMaxGgufFiles = 1024;

// Opens the file, or all files "NAME-00001-of-0000N.gguf" if it is the first of several. Also
// returns INVALID_ARGUMENT if the files or the number of their tensors contradict the first file,
// and for a tensor that two of them have.
absl::StatusOr<std::vector<GgufFile>> OpenGgufFiles(const std::string& path);

// Returns the configuration of these files: see model/config/gguf_config.h. Messages name the first
// file.
absl::StatusOr<ModelConfig> ConfigOf(const std::vector<GgufFile>& files);

// Calls ReadModelConfig for a directory, ConfigOf for a GGUF file.
absl::StatusOr<ModelConfig> ReadConfigOf(const std::string& path);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_GGUF_FILE_H_
