// All tensors of a model, in one file or in several.
#ifndef TLM_MODEL_WEIGHTS_CHECKPOINT_H_
#define TLM_MODEL_WEIGHTS_CHECKPOINT_H_

#include <cstddef>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/tensor_file.h"

namespace tlm {

// Move-only and immutable: any thread may read. Keeps its files mapped; the views it hands out are
// valid as long as it lives, moved or not.
class Checkpoint {
 public:
  // Opens a GGUF file (see gguf_file.h) or, of a directory, `model.safetensors`, or, where there is
  // none, the files `model.safetensors.index.json` names; index and files must then agree on every
  // tensor. The prefix "_orig_mod." that torch.compile puts before names is dropped. NOT_FOUND when
  // neither file or a named one is not there; INVALID_ARGUMENT, naming file and tensor, when one is
  // bad, they disagree, or two tensors have the same name without the prefix.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // By name; data on the host, aligned to the element size, those in blocks to a byte.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // The path of the file that holds a tensor; empty when there is no such tensor.
  std::string FileOf(std::string_view name) const;
  // Bytes of all tensors together, as stored.
  size_t tensor_bytes() const;

  // The SHA-256 of the weights in lower-case hexadecimal. Of model.safetensors and of a single GGUF
  // file it is that of the file's bytes, what `sha256sum model.safetensors` prints; of several,
  // that of one line
  // "<sha256 of the file>  <name>\n" for each, in the order of their names. Reads every byte of the
  // files one after the other, which takes seconds where they are large: no part of Open(). Keeps
  // less than a megabyte of them in memory. CANCELLED soon after `stop` is requested;
  // FAILED_PRECONDITION as CheckUnchanged(); INTERNAL if libcrypto refuses.
  absl::StatusOr<std::string> Sha256(std::stop_token stop = {}) const;

  // Call after the tensors were read: FAILED_PRECONDITION, naming the file, when they may differ
  // from those of the files at Open(); see MappedFile.
  absl::Status CheckUnchanged() const;

  // As MappedFile of the file that holds `part` of a tensor's data; no effect on copied data.
  void Populate(std::span<const std::byte> part) const;
  void Release(std::span<const std::byte> part) const;

  // The directory or the GGUF file.
  const std::string& path() const { return path_; }

 private:
  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<Checkpoint> OpenDirectory(const std::string& path);
  static absl::StatusOr<Checkpoint> OpenGguf(const std::string& path);
  absl::Status OpenShards(const std::map<std::string, std::string>& file_of_tensor);
  // Takes over the file's tensors under their names without prefix.
  absl::Status Add(TensorFile file);
  // Null for an address in none of them.
  const MappedFile* FileWith(const std::byte* address) const;

  std::string path_;
  bool is_single_file_ = false;    // by its nature, not by an index
  std::vector<TensorFile> files_;  // by name
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// The file each tensor is in, from the `weight_map` of model.safetensors.index.json. File names are
// plain ones that end in ".safetensors": they cannot lead out of the directory, and there are at
// most kMaxShards of them. INVALID_ARGUMENT names the tensor and the value.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view text);

constexpr int kMaxShards = 10'000;

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_CHECKPOINT_H_
