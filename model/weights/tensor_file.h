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

// Move-only; immutable once it is filled: any thread may read. Moving it leaves all views valid.
class TensorFile {
 public:
  // By name. Data are aligned to the element size, those in blocks to a byte, and valid as long as
  // this object lives.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;

  const std::string& path() const { return file_.path(); }
  // The whole file.
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  const MappedFile& mapped() const { return file_; }

 protected:
  explicit TensorFile(MappedFile file) : file_(std::move(file)) {}
  // A tensor of a new name, whose data lie in bytes(). At an address unfit for its element type
  // they are copied: RESOURCE_EXHAUSTED when there is no memory for that.
  absl::Status Add(const std::string& name, TensorView view);

 private:
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_TENSOR_FILE_H_
