// Memory of the emulated device and small conveniences for kernels written in tests.
#ifndef TLM_TESTS_UNIT_SUPPORT_SIMT_KERNEL_FIXTURE_H_
#define TLM_TESTS_UNIT_SUPPORT_SIMT_KERNEL_FIXTURE_H_

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/simt/emulator.h"

namespace tlm::simt {

// An array on the device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  // After all work of the device.
  std::vector<T> Read() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

class KernelTest : public testing::Test {
 protected:
  KernelTest() {
    emulated::Configure({});
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~KernelTest() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    emulated::Configure({});
  }

  template <typename Args>
  cudaError_t Run(void (*kernel)(Args), dim3 grid, dim3 block, size_t shared_bytes,
                  const std::type_identity_t<Args>& args, bool overlaps = false) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    config.attrs = &overlap;
    config.numAttrs = overlaps ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, args);
  }

  // What the emulator says of the launch; empty if it has nothing against it.
  template <typename Args>
  std::string FailureOf(void (*kernel)(Args), dim3 block, size_t shared_bytes,
                        const std::type_identity_t<Args>& args, bool overlaps = false) {
    emulated::FailureRecorder failures;
    EXPECT_EQ(Run(kernel, 1, block, shared_bytes, args, overlaps), cudaSuccess);
    const cudaError_t error = cudaStreamSynchronize(stream_);
    EXPECT_EQ(error, failures.messages().empty() ? cudaSuccess : cudaErrorLaunchFailure);
    return failures.messages().empty() ? "" : failures.messages()[0];
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace tlm::simt

#endif  // TLM_TESTS_UNIT_SUPPORT_SIMT_KERNEL_FIXTURE_H_
