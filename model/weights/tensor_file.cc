#include "model/weights/tensor_file.h"

#include <cstdint>
#include <cstring>
#include <new>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {

absl::Status TensorFile::Add(const std::string& name, TensorView view) {
  const size_t element = IsBlockQuantised(view.dtype) ? 1 : DTypeBytes(view.dtype);
  if (reinterpret_cast<uintptr_t>(view.data) % element != 0) {
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[view.bytes()]);
    if (copy == nullptr) {
      return ResourceExhausted("tensor {}: no memory for an aligned copy of {} bytes", Quoted(name),
                               view.bytes());
    }
    std::memcpy(copy.get(), view.data, view.bytes());
    view.data = copy.get();
    copies_.push_back(std::move(copy));
  }
  tensors_.emplace(name, view);
  return absl::OkStatus();
}

const TensorView* TensorFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace tlm
