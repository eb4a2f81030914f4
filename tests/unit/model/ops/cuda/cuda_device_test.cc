#include "model/ops/cuda/device/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/kernels/launch.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/test_kernels.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRuntime = static_cast<size_t>(MemoryPurpose::kRuntime);
constexpr size_t kWeights = static_cast<size_t>(MemoryPurpose::kWeights);

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureDevice({});
    allocations_ = DeviceAllocations();
  }
  void TearDown() override { EXPECT_EQ(DeviceAllocations(), allocations_); }

  static std::unique_ptr<CudaDevice> Open(const CudaOptions& options = {}) {
    auto device = CudaDevice::Create(options);
    EXPECT_THAT(device, IsOk());
    EXPECT_EQ(LoadTestKernels(), cudaSuccess);
    return device.ok() ? *std::move(device) : nullptr;
  }
  static absl::Status AddOne(CudaDevice& device, const Buffer& in, const Buffer& out) {
    const AddOneArgs args{.in = in.as<int32_t>(), .out = out.as<int32_t>()};
    return device.Check(LaunchAddOne(args, device.compute_stream()), "kernel");
  }
  static Buffer Memory(CudaDevice& device, size_t bytes) {
    return device.Allocate(bytes, MemoryPurpose::kActivations).value();
  }
  static Buffer Filled(CudaDevice& device, int32_t value) {
    Buffer buffer = Memory(device, 32 * sizeof(int32_t));
    const std::vector<int32_t> values(32, value);
    EXPECT_THAT(device.CopyToDevice(buffer.data(), values.data(), buffer.bytes()), IsOk());
    return buffer;
  }
  static int32_t First(CudaDevice& device, const Buffer& buffer) {
    int32_t value = 0;
    EXPECT_THAT(device.CopyToHost(&value, buffer.data(), sizeof(value)), IsOk());
    return value;
  }

 private:
  size_t allocations_ = 0;
};

TEST_F(CudaDeviceTest, TellsWhatItIs) {
  if (RunsOnGpu()) GTEST_SKIP() << "GPUs differ";
  const auto device = Open();
  EXPECT_EQ(device->info().backend, "cuda");
  EXPECT_EQ(device->info().arithmetic, "sm_90");
  EXPECT_FALSE(device->info().host_addressable);
  EXPECT_EQ(device->properties().multiprocessors, 4);
  EXPECT_EQ(device->properties().shared_bytes_per_block, 227u << 10);
  EXPECT_EQ(device->info().total_bytes, size_t{256} << 20);
  EXPECT_EQ(device->info().invariance_fault, "");
  device->SetInvarianceFault("tiles differ");
  EXPECT_EQ(device->info().invariance_fault, "tiles differ");
  device->SetArithmeticProbe("f00d");
  EXPECT_EQ(device->info().arithmetic_probe, "f00d");
}

TEST_F(CudaDeviceTest, RefusesDevicesThatAreNotThere) {
  if (RunsOnGpu()) GTEST_SKIP() << "machines differ in their GPUs";
  constexpr char kVisible[] = "visible are 0: GPU-00010203-0405-0607-0809-0a0b0c0d0e0f (emulated";
  for (const std::string device : {"1", "-1", "GPU-01", "GPU-", "GPU-g", "0x0", "", "00010203"}) {
    EXPECT_THAT(CudaDevice::Create({.device = device}),
                IsNotFound("device " + device + " asked for", kVisible));
  }
}

TEST_F(CudaDeviceTest, FindsDevicesByTheBeginningOfTheirUuid) {
  if (RunsOnGpu()) GTEST_SKIP() << "machines differ in their GPUs";
  ConfigureDevice({.devices = 18});
  const auto second = Open({.device = "GPU-0101"});
  EXPECT_EQ(second->properties().ordinal, 1);
  EXPECT_EQ(second->info().uuid, "GPU-01010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(Open({.device = "17"})->info().uuid, "GPU-11010203-0405-0607-0809-0a0b0c0d0e0f");
  // An instance of a GPU has a UUID of its own, which the runtime tells like a GPU's.
  const auto instance = Open({.device = "MIG-0B010203-0405-0607-0809-0a0b0c0d0e0f"});
  EXPECT_EQ(instance->properties().ordinal, 11);
  EXPECT_EQ(instance->info().uuid, "MIG-0b010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_THAT(CudaDevice::Create({.device = "GPU-1"}),
              IsInvalidArgument("device GPU-1 asked for, 2 begin so", "16: GPU-10010203",
                                "17: GPU-11010203"));
}

TEST_F(CudaDeviceTest, RefusesDevicesThatAreTooOld) {
  if (RunsOnGpu()) GTEST_SKIP() << "the GPU is new enough";
  ConfigureDevice({.compute_capability = 75});
  EXPECT_THAT(CudaDevice::Create({}), IsFailedPrecondition("compute capability 7.5, 8.0"));
}

TEST_F(CudaDeviceTest, LetsKernelsOverlapOnlyWhereTheyCan) {
  const auto device = Open();
  EXPECT_EQ(KernelOverlap(), device->properties().compute_major >= 9);
  Open({.overlap = false});
  EXPECT_FALSE(KernelOverlap());
  if (RunsOnGpu()) return;
  for (const int capability : {80, 86, 89, 90, 100, 103, 110, 120, 121}) {
    ConfigureDevice({.compute_capability = capability});
    Open();
    EXPECT_EQ(KernelOverlap(), capability >= 90) << capability;
  }
}

TEST_F(CudaDeviceTest, TellsTheSharedMemoryOfItsKind) {
  if (RunsOnGpu()) GTEST_SKIP() << "GPUs differ";
  struct Kind {
    int capability;
    size_t shared;  // KiB of a multiprocessor
  };
  for (const Kind kind : {Kind{80, 164}, {86, 100}, {89, 100}, {90, 228}, {100, 228}, {120, 100}}) {
    ConfigureDevice({.compute_capability = kind.capability});
    const auto device = Open();
    EXPECT_EQ(device->properties().shared_bytes_per_multiprocessor, kind.shared << 10);
    EXPECT_EQ(device->properties().shared_bytes_per_block, (kind.shared - 1) << 10);
  }
}

TEST_F(CudaDeviceTest, CountsMemoryByPurpose) {
  const auto device = Open();
  {
    const Buffer weights = device->Allocate(1000, MemoryPurpose::kWeights).value();
    const Buffer more = device->Allocate(24, MemoryPurpose::kWeights).value();
    const Buffer nothing = device->Allocate(0, MemoryPurpose::kRuntime).value();
    EXPECT_EQ(device->AllocatedBytes()[kWeights], 1024u);
    EXPECT_EQ(device->AllocatedBytes()[kRuntime], 0u);
    EXPECT_EQ(nothing.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(more.data()) % 64, 0u);
  }
  EXPECT_EQ(device->AllocatedBytes()[kWeights], 0u);
}

TEST_F(CudaDeviceTest, KeepsPageLockedMemoryApart) {
  const auto device = Open();
  const size_t own = device->pinned_bytes();
  {
    const Buffer pinned = device->AllocatePinned(4096).value();
    EXPECT_EQ(device->pinned_bytes(), own + 4096);
  }
  EXPECT_EQ(device->pinned_bytes(), own);
}

TEST_F(CudaDeviceTest, NamesBytesWhenMemoryIsShort) {
  const auto device = Open();
  EXPECT_THAT(device->Allocate(size_t{1} << 40, MemoryPurpose::kKvCache),
              IsResourceExhausted("1099511627776 bytes", "are free"));
  if (FailDeviceAllocationAfter(0)) {
    EXPECT_THAT(device->AllocatePinned(64), IsResourceExhausted("64 bytes of pinned"));
  }
  // No fault of the device: it goes on.
  EXPECT_THAT(device->Allocate(64, MemoryPurpose::kKvCache), IsOk());
}

TEST_F(CudaDeviceTest, CannotBeOpenedWithoutStagingMemory) {
  if (!FailDeviceAllocationAfter(0)) GTEST_SKIP() << "a GPU's allocations succeed";
  EXPECT_THAT(CudaDevice::Create({}), IsResourceExhausted("pinned"));
}

TEST_F(CudaDeviceTest, TakesTheSourceOfACopyBeforeItReturns) {
  const auto device = Open();
  for (const size_t bytes : {size_t{1}, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    std::vector<uint8_t> source(bytes);
    // No two stretches of a power of two bytes are alike.
    for (size_t i = 0; i < bytes; ++i) source[i] = static_cast<uint8_t>(i % 251);
    const std::vector<uint8_t> expected = source;
    const Buffer buffer = Memory(*device, bytes);
    ASSERT_THAT(device->CopyToDevice(buffer.data(), source.data(), bytes), IsOk());
    source.assign(bytes, 0xee);
    std::vector<uint8_t> back(bytes);
    ASSERT_THAT(device->CopyToHost(back.data(), buffer.data(), bytes), IsOk());
    EXPECT_EQ(back, expected) << bytes;
  }
}

TEST_F(CudaDeviceTest, CopiesOnTheDeviceInTheOrderOfTheCalls) {
  const auto device = Open();
  const Buffer a = Filled(*device, 1);
  const Buffer b = Filled(*device, 2);
  EXPECT_THAT(device->CopyOnDevice(b.data(), a.data(), a.bytes()), IsOk());
  EXPECT_THAT(AddOne(*device, b, a), IsOk());
  EXPECT_THAT(device->CopyOnDevice(b.data(), a.data(), a.bytes()), IsOk());
  EXPECT_EQ(First(*device, b), 2);
}

TEST_F(CudaDeviceTest, ReplaysWhatItRecordedWithWhatMemoryHoldsThen) {
  const auto device = Open();
  const Buffer in = Filled(*device, 10);
  const Buffer out = Filled(*device, 0);
  int runs = 0;
  const auto step = [&] {
    ++runs;
    return AddOne(*device, in, out);
  };
  EXPECT_THAT(device->RunCaptured(5, step), IsOk());
  EXPECT_EQ(First(*device, out), 11);
  EXPECT_THAT(device->CopyOnDevice(in.data(), out.data(), in.bytes()), IsOk());
  EXPECT_THAT(device->RunCaptured(5, step), IsOk());
  EXPECT_EQ(First(*device, out), 12);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(device->run_counts().recorded, 1);
  EXPECT_EQ(device->run_counts().replayed, 1);
  EXPECT_EQ(device->run_counts().direct, 0);

  EXPECT_THAT(device->DropGraphs(), IsOk());
  EXPECT_THAT(device->RunCaptured(5, step), IsOk());
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(device->run_counts().recorded, 2);
}

TEST_F(CudaDeviceTest, RunsDirectlyWithoutAKeyOrWithGraphsTurnedOff) {
  for (const bool graphs : {true, false}) {
    const auto device = Open({.graphs = graphs});
    const Buffer in = Filled(*device, 10);
    const Buffer out = Filled(*device, 0);
    int runs = 0;
    const auto step = [&] {
      ++runs;
      return AddOne(*device, in, out);
    };
    const uint64_t key = graphs ? 0 : 7;
    EXPECT_THAT(device->RunCaptured(key, step), IsOk());
    EXPECT_THAT(device->RunCaptured(key, step), IsOk());
    EXPECT_EQ(First(*device, out), 11);
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(device->run_counts().recorded, 0);
  }
}

TEST_F(CudaDeviceTest, TheGraphUsedLongestAgoMakesRoom) {
  const auto device = Open({.max_graphs = 3});
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  const auto run = [&](uint64_t key) {
    ASSERT_THAT(device->RunCaptured(key, [&] { return AddOne(*device, in, out); }), IsOk());
  };
  for (const uint64_t key : {1, 2, 3, 1, 4}) run(key);
  EXPECT_EQ(device->run_counts().recorded, 4);
  EXPECT_EQ(device->run_counts().dropped, 1);
  for (const uint64_t key : {1, 3, 4}) run(key);
  EXPECT_EQ(device->run_counts().replayed, 4) << "2 was dropped";
  run(2);
  EXPECT_EQ(device->run_counts().recorded, 5);
  run(3);
  EXPECT_EQ(device->run_counts().replayed, 5) << "1 was dropped";
  EXPECT_EQ(device->run_counts().direct, 0);
  EXPECT_EQ(First(*device, out), 2);
}

// The emulated device reports a graph that is destroyed under way.
TEST_F(CudaDeviceTest, AGraphMakesRoomWhenItHasRun) {
  for (const auto progress : {simt::emulated::Progress::kLazy, simt::emulated::Progress::kRandom}) {
    ConfigureDevice({.progress = progress});
    const auto device = Open({.max_graphs = 1});
    const Buffer a = Filled(*device, 1);
    const Buffer b = Filled(*device, 0);
    for (uint64_t key = 1; key <= 20; ++key) {
      const bool forth = key % 2 == 1;
      ASSERT_THAT(
          device->RunCaptured(key, [&] { return AddOne(*device, forth ? a : b, forth ? b : a); }),
          IsOk());
    }
    EXPECT_EQ(device->run_counts().dropped, 19);
    EXPECT_EQ(First(*device, a), 21);
    EXPECT_THAT(device->RunCaptured(99, [&] { return AddOne(*device, a, b); }), IsOk());
    EXPECT_THAT(device->DropGraphs(), IsOk());
    EXPECT_EQ(First(*device, b), 22);
  }
}

TEST_F(CudaDeviceTest, RecordsAheadWithoutRunning) {
  const auto device = Open({.max_graphs = 2});
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  const auto step = [&] { return AddOne(*device, in, out); };
  const DeviceWatch watch;
  EXPECT_TRUE(device->RecordAhead(1, step).value());
  EXPECT_TRUE(device->RecordAhead(1, step).value());
  EXPECT_TRUE(device->RecordAhead(2, step).value());
  EXPECT_FALSE(device->RecordAhead(3, step).value()) << "no room";
  EXPECT_EQ(First(*device, out), 0);
  watch.ExpectNoKernels();
  EXPECT_GT(device->ahead_time(), absl::ZeroDuration());
  EXPECT_THAT(device->RunCaptured(2, step), IsOk());
  EXPECT_EQ(First(*device, out), 2);
  EXPECT_EQ(device->run_counts().ahead, 2);
  EXPECT_EQ(device->run_counts().recorded, 0);
  EXPECT_EQ(device->run_counts().replayed, 1);
}

TEST_F(CudaDeviceTest, RecordsNothingAheadWithoutGraphsOrTime) {
  for (const CudaOptions& options : {CudaOptions{.graphs = false}, CudaOptions{.max_graphs = 0},
                                     CudaOptions{.record_ahead_ms = 0}}) {
    const auto device = Open(options);
    const auto step = [] { return absl::OkStatus(); };
    EXPECT_FALSE(device->RecordAhead(1, step).value());
    EXPECT_EQ(device->run_counts().ahead, 0);
  }
}

TEST_F(CudaDeviceTest, RecordsAheadWithinHalfTheFreeMemory) {
  if (RunsOnGpu()) GTEST_SKIP() << "GPUs differ in what a graph takes";
  constexpr auto kGraphs = static_cast<size_t>(MemoryPurpose::kGraphs);
  ConfigureDevice({.memory_bytes = 64 << 20, .graph_bytes = 4 << 20});
  const auto device = Open();
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  const auto step = [&] { return AddOne(*device, in, out); };
  uint64_t key = 1;
  for (;; ++key) {
    const auto recorded = device->RecordAhead(key, step);
    ASSERT_THAT(recorded, IsOk());
    if (!*recorded) break;
  }
  EXPECT_EQ(device->run_counts().ahead, 8);
  EXPECT_EQ(device->AllocatedBytes()[kGraphs], size_t{32} << 20);
  // Of later ones as much is reckoned.
  EXPECT_THAT(device->RunCaptured(key, step), IsOk());
  EXPECT_EQ(device->AllocatedBytes()[kGraphs], size_t{36} << 20);
  EXPECT_THAT(device->DropGraphs(), IsOk());
  EXPECT_EQ(device->AllocatedBytes()[kGraphs], 0u);
}

TEST_F(CudaDeviceTest, RunsDirectlyWhereGraphsFindNoMemory) {
  if (RunsOnGpu()) GTEST_SKIP() << "GPUs differ in what a graph takes";
  ConfigureDevice({.memory_bytes = 8 << 20, .graph_bytes = 16 << 20});
  const auto device = Open();
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  const auto step = [&] { return AddOne(*device, in, out); };
  EXPECT_FALSE(device->RecordAhead(1, step).value());
  EXPECT_FALSE(device->RecordAhead(2, step).value());
  for (int call = 0; call < 3; ++call) EXPECT_THAT(device->RunCaptured(1, step), IsOk());
  EXPECT_EQ(First(*device, out), 2);
  EXPECT_EQ(device->run_counts().direct, 3);
  EXPECT_EQ(device->graph_failures().count, 2);
  EXPECT_THAT(device->fault(), IsOk());
}

TEST_F(CudaDeviceTest, RunsDirectlyWhatCannotBeRecorded) {
  const auto device = Open();
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  int runs = 0;
  const auto step = [&] {
    ++runs;
    TLM_RETURN_IF_ERROR(AddOne(*device, in, out));
    return device->Check(cudaStreamSynchronize(device->compute_stream()), "cudaStreamSynchronize");
  };
  for (int call = 0; call < 3; ++call) EXPECT_THAT(device->RunCaptured(9, step), IsOk());
  EXPECT_EQ(First(*device, out), 2);
  // Twice tried and made up for, then not tried any more.
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(device->graph_failures().count, 2);
  EXPECT_EQ(device->run_counts().direct, 3);
  EXPECT_THAT(device->graph_failures().last, HasSubstr("StreamCaptureUnsupported"));
  EXPECT_THAT(device->fault(), IsOk());
}

TEST_F(CudaDeviceTest, ReturnsTheErrorOfWhatItRuns) {
  const auto device = Open();
  const auto step = [] { return InvalidArgument("not this"); };
  EXPECT_THAT(device->RunCaptured(3, step), IsInvalidArgument("not this"));
  EXPECT_THAT(device->Synchronize(), IsOk());
}

TEST_F(CudaDeviceTest, StaysFaultyAfterAFault) {
  const auto recorder = RecordDeviceFailures();
  if (recorder == nullptr) GTEST_SKIP() << "a GPU that failed is lost to the process";
  const auto device = Open();
  const Buffer in = Filled(*device, 1);
  const Buffer out = Filled(*device, 0);
  EXPECT_EQ(LaunchMisaligned({.in = in.as<int32_t>(), .out = out.as<int32_t>()},
                             device->compute_stream()),
            cudaSuccess);
  EXPECT_THAT(device->Synchronize(), IsInternal("cudaErrorLaunchFailure"));
  const absl::Status fault = device->fault();
  EXPECT_THAT(std::string(fault.message()), HasSubstr("CUDA: cudaStreamSynchronize: "));
  EXPECT_EQ(ReasonOf(fault), kDeviceLost);
  int32_t value = 0;
  EXPECT_EQ(device->CopyToHost(&value, in.data(), sizeof(value)), fault);
  EXPECT_EQ(device->CopyToDevice(in.data(), &value, sizeof(value)), fault);
  EXPECT_EQ(device->CopyOnDevice(in.data(), out.data(), 4), fault);
  EXPECT_EQ(device->Allocate(64, MemoryPurpose::kWeights).status(), fault);
  EXPECT_EQ(device->RunCaptured(0, [] { return absl::OkStatus(); }), fault);
  EXPECT_EQ(device->Check(cudaSuccess, "later"), fault);
  EXPECT_EQ(device->Synchronize(), fault);
}

}  // namespace
}  // namespace tlm
