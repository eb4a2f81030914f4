// A mapped file of tensors, of whatever format.
#ifndef TLM_MODEL_WEIGHTS_TENSOR_FILE_H_
#define TLM_MODEL_WEIGHTS_TENSOR_FILE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/base/mapped_file.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Move-only; immutable once filled: any thread may read. Its views stay valid after a move.
class TensorFile {
 public:
  // Tensors by name. Data are aligned to the element size, or to a byte in blocks, and valid during
  // the lifetime of this object.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Returns null if there is no such tensor.
  const TensorView* Find(std::string_view name) const;

  const std::string& path() const { return file_.path(); }
  // The whole file.
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  const MappedFile& mapped() const { return file_; }

 protected:
  explicit TensorFile(MappedFile file) : file_(std::move(file)) {}
  // Adds a tensor of a new name, whose data are in bytes(). Copies them if their address is
  // misaligned for the element type: returns RESOURCE_EXHAUSTED if there is no memory for the copy.
  absl::Status Add(const std::string& name, TensorView view);

 private:
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_TENSOR_FILE_H_
