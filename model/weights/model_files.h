// The files of a model, opened once for its configuration, its weights and its tokenizer.
#ifndef TLM_MODEL_WEIGHTS_MODEL_FILES_H_
#define TLM_MODEL_WEIGHTS_MODEL_FILES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/config/model_config.h"
#include "model/weights/gguf_file.h"

namespace tlm {

inline constexpr int kMaxGgufFiles = 1024;

// A directory, or one or several GGUF files. Copies share the opened files. Immutable: any thread
// may read.
class ModelFiles {
 public:
  // A file, not a directory, that is named "*.gguf" or begins like a GGUF file is opened; with it
  // all files "NAME-00001-of-0000N.gguf" if it is the first of several. Nothing of another path is
  // read: it is taken for a directory. Returns the errors of GgufFile::Open, and INVALID_ARGUMENT
  // if the files or the number of their tensors contradict the first file, and for a tensor that
  // two of them have.
  static absl::StatusOr<ModelFiles> Open(const std::string& path);

  // The path of the directory or of the first GGUF file.
  const std::string& path() const { return path_; }
  bool is_gguf() const { return !gguf_.empty(); }
  // In the order of their numbers; empty for a directory.
  const std::vector<std::shared_ptr<const GgufFile>>& gguf() const { return gguf_; }
  // The metadata of the first GGUF file, which describe the model.
  const GgufMetadata& metadata() const { return gguf_.front()->header().metadata; }

  // Calls ReadModelConfig for a directory, ReadGgufConfig for GGUF files. Messages name the file.
  absl::StatusOr<ModelConfig> ReadConfig() const;

  // Call after the metadata were read; see MappedFile. Directories have no file open.
  absl::Status CheckUnchanged() const;
  // Frees the pages of the headers, which may hold a large vocabulary, until they are read again.
  void ReleaseHeaders() const;

 private:
  explicit ModelFiles(std::string path) : path_(std::move(path)) {}
  absl::Status OpenGguf();
  absl::StatusOr<ModelConfig> ReadGguf() const;

  std::string path_;
  std::vector<std::shared_ptr<const GgufFile>> gguf_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_MODEL_FILES_H_
