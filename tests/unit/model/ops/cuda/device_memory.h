// Memory of the device under test, for kernels that are launched without a backend.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_MEMORY_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ops/cuda/kernels/launch.h"
#include "tests/support/simt/device_under_test.h"

namespace tlm {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(bytes, 1)), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, 0xff, bytes, nullptr), cudaSuccess);  // NaN
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  explicit DeviceMemory(const std::vector<uint8_t>& bytes) : DeviceMemory(bytes.size()) {
    Write(bytes.data(), bytes.size());
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void Write(const void* from, size_t bytes) {
    EXPECT_EQ(cudaMemcpyAsync(data_, from, bytes, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  std::vector<uint8_t> Read(size_t bytes) const {
    std::vector<uint8_t> out(bytes);
    EXPECT_EQ(cudaMemcpyAsync(out.data(), data_, bytes, cudaMemcpyDeviceToHost, nullptr),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return out;
  }

 private:
  void* data_ = nullptr;
};

// An array of these values.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values)
      : count_(values.size()), memory_(count_ * sizeof(T)) {
    memory_.Write(values.data(), count_ * sizeof(T));
  }
  T* data() const { return memory_.as<T>(); }
  std::vector<T> Read() const {
    const std::vector<uint8_t> bytes = memory_.Read(count_ * sizeof(T));
    const T* const values = reinterpret_cast<const T*>(bytes.data());
    return {values, values + count_};
  }

 private:
  size_t count_;
  DeviceMemory memory_;
};

// A stream that kernels may overlap in, as far as the device lets them.
class OverlappingStream {
 public:
  OverlappingStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    SetKernelOverlap(DeviceOverlapsKernels());
  }
  ~OverlappingStream() {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    SetKernelOverlap(false);
  }
  OverlappingStream(const OverlappingStream&) = delete;
  OverlappingStream& operator=(const OverlappingStream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void Synchronize() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_MEMORY_H_
