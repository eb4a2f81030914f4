// Opens all tensors of a model, in one file or in several.
#ifndef TLM_MODEL_WEIGHTS_CHECKPOINT_H_
#define TLM_MODEL_WEIGHTS_CHECKPOINT_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/model_files.h"
#include "model/weights/tensor_file.h"

namespace tlm {

// Immutable: any thread may read. Keeps its files mapped, which copies share: its views are valid
// while one of them lives, even after a move.
class Checkpoint {
 public:
  // Takes the tensors of GGUF files, or opens those of a directory: `model.safetensors` or, without
  // that file, the files named by `model.safetensors.index.json`; index and files must then agree
  // on every tensor. Drops the prefix "_orig_mod." that torch.compile puts before names. Returns
  // NOT_FOUND if neither file exists or a named file is missing. Returns INVALID_ARGUMENT, naming
  // file and tensor, if a file is bad, if index and files disagree, or if two tensors have the same
  // name without the prefix.
  static absl::StatusOr<Checkpoint> Open(const ModelFiles& files);
  // Opens the files, too: see ModelFiles::Open.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // Tensors by name. Data are on the host, aligned to the element size; blocks are aligned to a
  // byte.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Returns null if there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // The path of the file that holds a tensor; empty if there is no such tensor.
  std::string FileOf(std::string_view name) const;
  // The stored bytes of all tensors together.
  size_t tensor_bytes() const;

  // Returns the SHA-256 of the weights in lower-case hexadecimal. For model.safetensors and for a
  // single GGUF file it is the hash of the file's bytes, as `sha256sum model.safetensors` prints
  // it. For several files it is the hash of one line
  // "<sha256 of the file>  <name>\n" for each, in the order of their names. Reads every byte of the
  // files one after the other, which takes seconds for large files; Open() does not do this. Keeps
  // less than a megabyte of them in memory. Returns CANCELLED soon after `stop` is requested,
  // FAILED_PRECONDITION like CheckUnchanged(), INTERNAL if libcrypto refuses.
  absl::StatusOr<std::string> Sha256(std::stop_token stop = {}) const;

  // Call after the tensors were read. Returns FAILED_PRECONDITION, naming the file, if their data
  // may differ from the files at Open(); see MappedFile.
  absl::Status CheckUnchanged() const;

  // Like MappedFile, on the file that holds `part` of a tensor's data; no effect on copied data.
  void Populate(std::span<const std::byte> part) const;
  void Release(std::span<const std::byte> part) const;

  // The path of the directory or of the GGUF file.
  const std::string& path() const { return path_; }

 private:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  absl::Status OpenDirectory();
  absl::Status OpenShards(const std::map<std::string, std::string>& file_of_tensor);
  // Takes over the file's tensors under their names without prefix.
  absl::Status Add(std::shared_ptr<const TensorFile> file);
  // Returns null if no file contains the address.
  const MappedFile* FileWith(const std::byte* address) const;

  std::string path_;
  bool is_single_file_ = false;                           // false for an index, even with one file
  std::vector<std::shared_ptr<const TensorFile>> files_;  // ordered by name
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// Returns the file of each tensor, from the `weight_map` of model.safetensors.index.json. File
// names are plain names that end in ".safetensors": they cannot lead out of the directory. There
// are at most kMaxShards of them. INVALID_ARGUMENT names the tensor and the value.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view text);

constexpr int kMaxShards = 10'000;

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_CHECKPOINT_H_
