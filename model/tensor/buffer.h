// Owned memory of a device.
#ifndef TLM_MODEL_TENSOR_BUFFER_H_
#define TLM_MODEL_TENSOR_BUFFER_H_

#include <cstddef>
#include <functional>
#include <utility>

namespace tlm {

// A block of device memory with the function that frees it. Move-only. The device that made it must
// outlive it. Host code may dereference data() only if the device's memory is host memory
// (Device::info().host_addressable).
class Buffer {
 public:
  using Deleter = std::function<void(void* data, size_t bytes)>;

  Buffer() = default;
  Buffer(void* data, size_t bytes, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(std::move(deleter)) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        deleter_(std::move(other.deleter_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_BUFFER_H_
