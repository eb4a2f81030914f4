// Reads untrusted safetensors files (https://github.com/huggingface/safetensors): eight bytes of
// header length, a JSON header, the tensors' bytes.
#ifndef TLM_MODEL_WEIGHTS_SAFETENSORS_H_
#define TLM_MODEL_WEIGHTS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/mapped_file.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// One mapped file. Move-only and immutable: any thread may read. Moving it leaves all views valid.
class SafetensorsFile {
 public:
  // The longest header, as in the format's own implementation.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  // Checks the whole header before anything is allocated for a tensor; see safetensors_header.h for
  // what holds afterwards. The data are mapped, not read; only a tensor that the file places at an
  // address unfit for its element type is copied. NOT_FOUND and FAILED_PRECONDITION as
  // MappedFile::Open; INVALID_ARGUMENT, naming file, tensor, value and limit, for a bad file;
  // RESOURCE_EXHAUSTED when there is no memory for such a copy.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // By name. Data are aligned to the element size and valid as long as this object lives.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // The header's `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const std::string& path() const { return file_.path(); }
  // The whole file.
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  const MappedFile& mapped() const { return file_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  absl::Status Read();
  // Makes view.data an aligned copy of what it points at.
  absl::Status Align(const std::string& name, TensorView* view);

  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_SAFETENSORS_H_
