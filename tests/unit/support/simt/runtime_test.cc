// Streams, events, copies and graphs do what the runtime API promises, and no sooner.
#include <array>
#include <cstring>
#include <numeric>

#include "model/ops/cuda/kernels/simt.h"
#include "tests/unit/support/simt/kernel_fixture.h"

namespace tlm::simt {
namespace {

using testing::Each;
using testing::ElementsAre;

struct AddArgs {
  uint32_t* values;
  uint32_t amount;
};
TLM_KERNEL Add(const AddArgs args) {
  WaitForPrevious();
  args.values[blockIdx.x * blockDim.x + threadIdx.x] += args.amount;
}

class RuntimeTest : public KernelTest {
 protected:
  RuntimeTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(&pinned_, 4 * sizeof(uint32_t)), cudaSuccess);
    Fill(1);
  }
  ~RuntimeTest() override {
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
  }
  void Fill(uint32_t value) { std::fill_n(pinned_, 4, value); }
  void Upload(cudaStream_t stream, const uint32_t* from) {
    EXPECT_EQ(cudaMemcpyAsync(array_.data(), from, 16, cudaMemcpyHostToDevice, stream),
              cudaSuccess);
  }
  void Download(cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(pinned_, array_.data(), 16, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
  }

  // What the stream has captured, ready to be launched.
  cudaGraphExec_t EndCapture() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }

  DeviceArray<uint32_t> array_{4};
  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  uint32_t* pinned_ = nullptr;
};

TEST_F(RuntimeTest, APinnedBufferThatIsReusedTooEarlyIsCopiedWrong) {
  Upload(stream_, pinned_);
  Fill(2);
  EXPECT_THAT(array_.Read(), Each(2u));
  Upload(stream_, pinned_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  Fill(3);
  EXPECT_THAT(array_.Read(), Each(2u));
}

TEST_F(RuntimeTest, EagerProgressCopiesAtOnce) {
  emulated::Configure({.progress = emulated::Progress::kEager});
  Upload(stream_, pinned_);
  Fill(2);
  EXPECT_THAT(array_.Read(), Each(1u));
}

TEST_F(RuntimeTest, PageableMemoryIsTakenAndFilledBeforeTheCallReturns) {
  std::array<uint32_t, 4> host = {5, 5, 5, 5};
  Upload(stream_, host.data());
  host.fill(6);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), array_.data(), 16, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_THAT(host, Each(5u));
}

TEST_F(RuntimeTest, AResultIsNotThereBeforeTheHostWaits) {
  Upload(stream_, pinned_);
  ASSERT_EQ(Run(Add, 1, 4, 0, {array_.data(), 10}), cudaSuccess);
  Download(stream_);
  EXPECT_EQ(pinned_[0], 1u);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 11u);
}

TEST_F(RuntimeTest, AStreamDoesNotWaitForAnotherWithoutAnEvent) {
  for (const bool waits : {false, true}) {
    Fill(waits ? 8 : 7);
    Upload(stream_, pinned_);
    EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
    if (waits) {
      EXPECT_EQ(cudaStreamWaitEvent(other_, event_), cudaSuccess);
    }
    Download(other_);
    EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
    EXPECT_EQ(pinned_[0], waits ? 8u : 0xffffffffu);
    Fill(7);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST_F(RuntimeTest, AnEventCoversWhatCameBeforeIt) {
  Upload(stream_, pinned_);
  ASSERT_EQ(Run(Add, 1, 4, 0, {array_.data(), 10}), cudaSuccess);
  Download(stream_);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(Run(Add, 1, 4, 0, {array_.data(), 100}), cudaSuccess);
  Download(stream_);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 11u);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 111u);
}

TEST_F(RuntimeTest, AskingAnEventAgainAndAgainGetsThere) {
  Upload(stream_, pinned_);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  int questions = 1;
  while (cudaEventQuery(event_) == cudaErrorNotReady) ++questions;
  EXPECT_EQ(questions, 2);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
}

TEST_F(RuntimeTest, CopiesRowsOfARectangle) {
  std::vector<uint32_t> host(12);
  std::iota(host.begin(), host.end(), 0u);
  EXPECT_EQ(cudaMemcpy2D(array_.data(), 8, host.data() + 1, 16, 8, 2, cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_THAT(array_.Read(), ElementsAre(1u, 2u, 5u, 6u));
}

TEST_F(RuntimeTest, RefusesCopiesThatLeaveTheDevicesMemory) {
  std::array<uint32_t, 8> host = {};
  EXPECT_EQ(cudaMemcpy(array_.data(), host.data(), 20, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(array_.data() + 1, host.data(), 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), array_.data(), 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2D(array_.data(), 16, host.data(), 8, 8, 2, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RuntimeTest, AGraphReplaysPointersNotContents) {
  cudaFuncAttributes attributes;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, Add), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Upload(stream_, pinned_);
  ASSERT_EQ(Run(Add, 1, 4, 0, {array_.data(), 10}, true), cudaSuccess);
  // Nothing that waits or allocates is allowed meanwhile.
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  uint32_t pageable[4];
  EXPECT_EQ(cudaMemcpyAsync(pageable, array_.data(), 16, cudaMemcpyDeviceToHost, stream_),
            cudaErrorStreamCaptureUnsupported);
  const cudaGraphExec_t exec = EndCapture();
  for (const uint32_t value : {3u, 4u}) {
    Fill(value);
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    EXPECT_THAT(array_.Read(), Each(value + 10));
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  cudaGetLastError();
}

TEST_F(RuntimeTest, AStreamThatWaitsForACaptureBecomesPartOfIt) {
  EXPECT_EQ(cudaFuncSetAttribute(Add, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
            cudaSuccess);
  Upload(stream_, pinned_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(Run(Add, 1, 4, 0, {array_.data(), 10}), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_), cudaSuccess);
  Download(other_);
  EXPECT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_), cudaSuccess);
  const cudaGraphExec_t exec = EndCapture();
  EXPECT_EQ(pinned_[0], 1u);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 11u);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(RuntimeTest, EveryProgressGivesTheSameResults) {
  using emulated::Progress;
  for (const auto progress : {Progress::kLazy, Progress::kEager, Progress::kRandom}) {
    emulated::Configure({.seed = 11, .progress = progress});
    Fill(1);
    Upload(stream_, pinned_);
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(Run(Add, 2, 2, 0, {array_.data(), 1}, i % 3 != 0), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
      EXPECT_EQ(cudaStreamWaitEvent(other_, event_), cudaSuccess);
    }
    Download(other_);
    EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
    EXPECT_EQ(pinned_[0], 21u);
  }
}

TEST_F(RuntimeTest, MemoryIsBoundedAndCanFail) {
  emulated::Configure({.memory_bytes = 1 << 20});
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, size_t{1} << 20);
  EXPECT_EQ(free, total - 16);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&memory, free), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
  emulated::FailAllocationAfter(1);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudaGetLastError();
}

TEST_F(RuntimeTest, SaysWhatTheDeviceIs) {
  emulated::Configure({.multiprocessors = 7, .compute_capability = 80});
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.multiProcessorCount, 7);
  EXPECT_EQ(properties.major, 8);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMinor, 0), cudaSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

}  // namespace
}  // namespace tlm::simt
