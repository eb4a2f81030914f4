// What hardware breaks in silence, or by luck not at all, shows here.
#include <cstdlib>

#include "model/ops/cuda/kernels/simt.h"
#include "tests/unit/support/simt/kernel_fixture.h"

namespace tlm::simt {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

class DefectsTest : public KernelTest {};

// Each thread passes its number to a neighbour `step` further, by way of shared memory.
struct NeighbourArgs {
  uint32_t* out;
  unsigned step;
  bool block_waits;
  bool warp_waits;
};

TLM_KERNEL Neighbour(const NeighbourArgs args) {
  auto* shared = SharedMemory<uint32_t>();
  shared[threadIdx.x] = threadIdx.x;
  if (args.block_waits) SyncThreads();
  if (args.warp_waits) SyncWarp();
  args.out[threadIdx.x] = shared[(threadIdx.x + args.step) % blockDim.x];
}

constexpr uint32_t kPoison = 0xffffffffu;

TEST_F(DefectsTest, ReadsPoisonWhereTheBlockDoesNotWait) {
  DeviceArray<uint32_t> out(128);
  ASSERT_EQ(Run(Neighbour, 1, 128, 512, {out.data(), 32, false, true}), cudaSuccess);
  EXPECT_THAT(out.Read(), Contains(kPoison));
  ASSERT_EQ(Run(Neighbour, 1, 128, 512, {out.data(), 32, true, false}), cudaSuccess);
  EXPECT_THAT(out.Read(), Not(Contains(kPoison)));
}

TEST_F(DefectsTest, ReadsPoisonWhereTheWarpDoesNotWait) {
  DeviceArray<uint32_t> out(32);
  ASSERT_EQ(Run(Neighbour, 1, 32, 128, {out.data(), 1, false, false}), cudaSuccess);
  EXPECT_THAT(out.Read(), Contains(kPoison));
  ASSERT_EQ(Run(Neighbour, 1, 32, 128, {out.data(), 1, false, true}), cudaSuccess);
  EXPECT_THAT(out.Read(), Not(Contains(kPoison)));
}

struct CopyArgs {
  const Quad* in;
  uint32_t* out;
  int pending;  // what is waited for; negative: nothing
};

TLM_KERNEL CopyAndRead(const CopyArgs args) {
  auto* shared = SharedMemory<Quad>();
  CopyAsync16(&shared[threadIdx.x], &args.in[threadIdx.x]);
  CopyAsyncCommit();
  if (args.pending == 0) CopyAsyncWait<0>();
  if (args.pending == 1) CopyAsyncWait<1>();
  SyncThreads();
  args.out[threadIdx.x] = shared[threadIdx.x].word[0];
  CopyAsyncWait<0>();
}

TEST_F(DefectsTest, ReadsPoisonBeforeTheCopyIsWaitedFor) {
  DeviceArray<Quad> in(std::vector<Quad>(32, Quad{{7, 7, 7, 7}}));
  DeviceArray<uint32_t> out(32);
  for (const int pending : {-1, 1}) {
    ASSERT_EQ(Run(CopyAndRead, 1, 32, 512, {in.data(), out.data(), pending}), cudaSuccess);
    EXPECT_THAT(out.Read(), Each(kPoison));
  }
  ASSERT_EQ(Run(CopyAndRead, 1, 32, 512, {in.data(), out.data(), 0}), cudaSuccess);
  EXPECT_THAT(out.Read(), Each(7u));
}

TLM_KERNEL CopyAndLeave(const CopyArgs args) {
  CopyAsync16(&SharedMemory<Quad>()[threadIdx.x], &args.in[threadIdx.x]);
  CopyAsyncCommit();
}

TEST_F(DefectsTest, ReportsCopiesInFlightAtTheEnd) {
  DeviceArray<Quad> in(32);
  EXPECT_THAT(FailureOf(CopyAndLeave, 32, 512, {in.data(), nullptr, 0}),
              AllOf(HasSubstr("CopyAndLeave"), HasSubstr("in flight")));
}

struct PrefetchArgs {
  const Quad* in;
  int first;
  int bytes;
};

TLM_KERNEL Prefetch(const PrefetchArgs args) { PrefetchToL2(args.in + args.first, args.bytes); }

TEST_F(DefectsTest, ReportsPrefetchesOutsideMemory) {
  DeviceArray<Quad> in(32);
  EXPECT_EQ(FailureOf(Prefetch, 1, 0, {in.data(), 0, 512}), "");
  EXPECT_EQ(FailureOf(Prefetch, 1, 0, {in.data(), 31, 16}), "");
  for (const PrefetchArgs& args :
       {PrefetchArgs{in.data(), 0, 528}, PrefetchArgs{in.data(), 31, 32},
        PrefetchArgs{in.data(), -1, 16}, PrefetchArgs{in.data(), 0, 24},
        PrefetchArgs{in.data(), 0, 0}, PrefetchArgs{in.data(), 0, -16}}) {
    EXPECT_THAT(FailureOf(Prefetch, 1, 0, args),
                AllOf(HasSubstr("Prefetch"), HasSubstr("are prefetched")));
  }
}

TEST_F(DefectsTest, ReadsPoisonFromMemoryThatWasNotWritten) {
  DeviceArray<uint32_t> never_written(4);
  EXPECT_THAT(never_written.Read(), Each(kPoison));
}

// --- Overlap with the previous kernel. ---

struct OverlapArgs {
  uint32_t* flag;
  uint32_t* out;
  uint32_t value;
  bool waits_first;
  bool waits;
};

TLM_KERNEL WriteFlag(const OverlapArgs args) {
  WaitForPrevious();
  *args.flag = args.value;
}
TLM_KERNEL ReadFlag(const OverlapArgs args) {
  if (args.waits_first) WaitForPrevious();
  const uint32_t flag = *args.flag;
  if (args.waits) WaitForPrevious();
  args.out[threadIdx.x] = flag;
}

TEST_F(DefectsTest, ReportsAThreadThatNeverWaitsForThePreviousKernel) {
  DeviceArray<uint32_t> flag(1), out(64);
  EXPECT_THAT(FailureOf(ReadFlag, 64, 0, {flag.data(), out.data(), 0, false, false}, true),
              AllOf(HasSubstr("ReadFlag"), HasSubstr("WaitForPrevious")));
  EXPECT_EQ(FailureOf(ReadFlag, 64, 0, {flag.data(), out.data(), 0, false, false}, false), "");
}

struct LeaveArgs {
  bool block_1_waits;
  uint32_t leaving_from;  // threads of the other block from here on
};
TLM_KERNEL Leave(const LeaveArgs args) {
  if ((blockIdx.x == 1) != args.block_1_waits && threadIdx.x >= args.leaving_from) return;
  WaitForPrevious();
}

// One block that waits keeps the kernel from ending before the previous one.
TEST_F(DefectsTest, ABlockButTheFirstMayEndWithoutWaiting) {
  EXPECT_EQ(FailureOf(Leave, 64, 0, {false, 64}, true), "");
  EXPECT_EQ(Run(Leave, 2, 64, 0, {false, 0}, true), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (const LeaveArgs& args : {LeaveArgs{true, 0}, LeaveArgs{false, 32}, LeaveArgs{false, 63}}) {
    emulated::FailureRecorder failures;
    EXPECT_EQ(Run(Leave, 2, 64, 0, args, true), cudaSuccess);
    cudaStreamSynchronize(stream_);
    EXPECT_THAT(failures.messages(), ElementsAre(HasSubstr("ended without WaitForPrevious")));
  }
}

TEST_F(DefectsTest, ReadsOldDataBeforeWaitingForThePreviousKernel) {
  for (const bool waits_first : {false, true}) {
    DeviceArray<uint32_t> flag(std::vector<uint32_t>{1}), out(64);
    const OverlapArgs args = {flag.data(), out.data(), 2, waits_first, true};
    ASSERT_EQ(Run(WriteFlag, 1, 1, 0, args, true), cudaSuccess);
    ASSERT_EQ(Run(ReadFlag, 1, 64, 0, args, true), cudaSuccess);
    EXPECT_THAT(out.Read(), Each(waits_first ? 2u : 1u));
  }
}

TLM_KERNEL CopyFlag(const OverlapArgs args) {
  if (args.waits_first) WaitForPrevious();
  auto* shared = SharedMemory<uint32_t>();
  CopyAsync16(shared + 4 * threadIdx.x, args.flag);
  CopyAsyncCommit();
  WaitForPrevious();
  CopyAsyncWait<0>();
  args.out[threadIdx.x] = shared[4 * threadIdx.x];
}

TEST_F(DefectsTest, CopiesOldDataBeforeWaitingForThePreviousKernel) {
  for (const bool waits_first : {false, true}) {
    DeviceArray<uint32_t> flag(std::vector<uint32_t>{1, 0, 0, 0}), out(64);
    const OverlapArgs args = {flag.data(), out.data(), 2, waits_first, true};
    ASSERT_EQ(Run(WriteFlag, 1, 1, 0, args, true), cudaSuccess);
    ASSERT_EQ(Run(CopyFlag, 1, 64, 1024, args, true), cudaSuccess);
    EXPECT_THAT(out.Read(), Each(waits_first ? 2u : 1u));
  }
}

struct BetweenArgs {
  bool lets_next_start_first;
};
TLM_KERNEL Between(const BetweenArgs args) {
  if (args.lets_next_start_first) LetNextStart();
  WaitForPrevious();
  if (!args.lets_next_start_first) LetNextStart();
}

// A kernel that lets the next one start before it has waited itself no longer stands between that
// one and those before.
TEST_F(DefectsTest, ReadsOldDataOfTheKernelBeforeThePrevious) {
  for (const bool first : {false, true}) {
    DeviceArray<uint32_t> flag(std::vector<uint32_t>{1}), out(64);
    const OverlapArgs args = {flag.data(), out.data(), 2, false, true};
    ASSERT_EQ(Run(WriteFlag, 1, 1, 0, args, true), cudaSuccess);
    ASSERT_EQ(Run(Between, 2, 32, 0, {first}, true), cudaSuccess);
    ASSERT_EQ(Run(ReadFlag, 1, 64, 0, args, true), cudaSuccess);
    EXPECT_THAT(out.Read(), Each(first ? 1u : 2u));
  }
}

TEST_F(DefectsTest, ALaunchWithoutTheAttributeWaitsByItself) {
  DeviceArray<uint32_t> flag(std::vector<uint32_t>{1}), out(64);
  const OverlapArgs args = {flag.data(), out.data(), 2, false, false};
  ASSERT_EQ(Run(WriteFlag, 1, 1, 0, args), cudaSuccess);
  ASSERT_EQ(Run(ReadFlag, 1, 64, 0, args), cudaSuccess);
  EXPECT_THAT(out.Read(), Each(2u));
}

TEST_F(DefectsTest, BarriersBeforeTheWaitWorkInABlockThatBeginsEarly) {
  struct Args {
    uint32_t* flag;
    uint32_t* out;
  };
  DeviceArray<uint32_t> flag(std::vector<uint32_t>{1}), out(64);
  const auto kernel = +[](const Args args) {
    auto* shared = SharedMemory<uint32_t>();
    shared[threadIdx.x] = threadIdx.x;
    SyncThreads();
    uint32_t value = shared[63 - threadIdx.x];
    if (threadIdx.x % 2 == 0) WaitForPrevious();
    value = Shuffle(value, static_cast<int>(threadIdx.x));
    WaitForPrevious();
    SyncThreads();
    args.out[threadIdx.x] = value + *args.flag;
  };
  ASSERT_EQ(Run(WriteFlag, 1, 1, 0, {flag.data(), nullptr, 100, true, true}, true), cudaSuccess);
  ASSERT_EQ(Run(kernel, 3, 64, 256, {flag.data(), out.data()}, true), cudaSuccess);
  const auto values = out.Read();
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(values[t], 163 - t);
  EXPECT_GT(emulated::ReadCounts().early_blocks, 0u);
}

// --- Lanes and warps that go different ways. ---

struct BranchArgs {
  int kind;
};

TLM_KERNEL Branch(const BranchArgs args) {
  const bool first = threadIdx.x < 16;
  switch (args.kind) {
    case 0:
      first ? SyncWarp() : SyncThreads();
      return;
    case 1:
      first ? static_cast<void>(Ballot(true)) : static_cast<void>(Shuffle(1, 0));
      return;
    case 2:
      if (first) SyncWarp();
      return;
    case 3:
      if (threadIdx.x < 32) SyncThreads();
      return;
    default:
      SyncThreads();
  }
}

TEST_F(DefectsTest, ReportsLanesThatGoDifferentWays) {
  EXPECT_THAT(FailureOf(Branch, 32, 0, {0}),
              AllOf(HasSubstr("Branch"), HasSubstr("0 SyncWarp"), HasSubstr("31 SyncThreads")));
  EXPECT_THAT(FailureOf(Branch, 32, 0, {1}), AllOf(HasSubstr("0 Ballot"), HasSubstr("31 Shuffle")));
  EXPECT_THAT(FailureOf(Branch, 32, 0, {2}), AllOf(HasSubstr("0 SyncWarp"), HasSubstr("31 ended")));
}

TEST_F(DefectsTest, ReportsABarrierThatNotAllWarpsReach) {
  EXPECT_THAT(FailureOf(Branch, 64, 0, {3}),
              AllOf(HasSubstr("warp 0 at SyncThreads"), HasSubstr("warp 1 ended")));
  EXPECT_EQ(FailureOf(Branch, 64, 0, {4}), "");
}

TEST_F(DefectsTest, ReportsACollectiveInAnIncompleteWarp) {
  struct Args {};
  EXPECT_THAT(FailureOf(+[](const Args) { Ballot(true); }, 40, 0, {}),
              HasSubstr("Ballot in a warp of 8 lanes"));
}

TEST_F(DefectsTest, AFailedKernelStopsThoseAfterIt) {
  DeviceArray<uint32_t> flag(std::vector<uint32_t>{1});
  {
    emulated::FailureRecorder failures;
    ASSERT_EQ(Run(Branch, 1, 32, 0, {0}), cudaSuccess);
    ASSERT_EQ(Run(WriteFlag, 1, 1, 0, {flag.data(), nullptr, 2, true, true}), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    EXPECT_EQ(failures.messages().size(), 1u);
  }
  EXPECT_THAT(flag.Read(), Each(1u));
}

TEST_F(DefectsTest, ReportsALaunchIntoAGraphOfWhatHasNotBeenLoaded) {
  for (const bool loaded : {true, false}) {
    emulated::Configure({});
    emulated::FailureRecorder failures;
    if (loaded) {
      EXPECT_EQ(Run(Branch, 1, 64, 0, {4}), cudaSuccess);
    }
    const uint64_t before = emulated::ReadCounts().loaded;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(Run(Branch, 1, 64, 0, {4}), loaded ? cudaSuccess : cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(emulated::ReadCounts().loaded, before);
    if (loaded) {
      EXPECT_TRUE(failures.messages().empty());
    } else {
      ASSERT_EQ(failures.messages().size(), 1u);
      EXPECT_THAT(failures.messages()[0],
                  HasSubstr("Branch(tlm::simt::(anonymous namespace)::BranchArgs) is launched into "
                            "a graph before it was loaded"));
    }
  }
}

TEST_F(DefectsTest, AbortsWhereFailuresAreNotRecorded) {
  EXPECT_DEATH(
      {
        Run(Branch, 1, 32, 0, {0});
        cudaStreamSynchronize(stream_);
      },
      "Branch.*lanes of a warp went different ways");
}

// --- Memory. ---

struct AccessArgs {
  unsigned char* global;
  int kind;
  int offset;
};

TLM_KERNEL Access(const AccessArgs args) {
  auto* shared = SharedMemory<unsigned char>();
  uint32_t out[4];
  switch (args.kind) {
    case 1:
      CopyAsync16(shared, args.global + args.offset);
      break;
    case 2:
      CopyAsync16(shared + args.offset, args.global);
      break;
    case 3:
      LoadMatrices(out, shared + args.offset);
      return;
    case 4:
      AtomicAdd(reinterpret_cast<uint64_t*>(args.global + args.offset), uint64_t{1});
      return;
    case 5:
      shared[args.offset] = 1;
      return;
    default:
      args.global[args.offset] = 1;
      return;
  }
  CopyAsyncCommit();
  CopyAsyncWait<0>();
}

TEST_F(DefectsTest, ReportsMisalignedAccesses) {
  DeviceArray<unsigned char> global(64);
  for (const int kind : {1, 2, 3}) {
    const unsigned threads = kind == 3 ? 32 : 1;
    EXPECT_EQ(FailureOf(Access, threads, 128, {global.data(), kind, 16}), "") << kind;
    EXPECT_THAT(FailureOf(Access, threads, 128, {global.data(), kind, 8}), HasSubstr("misaligned"))
        << kind;
  }
  EXPECT_THAT(FailureOf(Access, 32, 128, {global.data(), 4, 4}), HasSubstr("misaligned"));
  EXPECT_EQ(FailureOf(Access, 32, 128, {global.data(), 4, 8}), "");
}

TEST_F(DefectsTest, ReportsReadsOutsideOfTheDevicesMemory) {
  DeviceArray<unsigned char> global(64);
  EXPECT_THAT(FailureOf(Access, 32, 128, {global.data(), 1, 64}),
              HasSubstr("do not lie in memory of the device"));
  alignas(16) unsigned char of_the_host[16] = {};
  EXPECT_THAT(FailureOf(Access, 32, 128, {of_the_host, 1, 0}),
              HasSubstr("do not lie in memory of the device"));
}

TEST_F(DefectsTest, ReportsAccessesOutsideOfSharedMemory) {
  DeviceArray<unsigned char> global(64);
  for (const int kind : {2, 3}) {
    EXPECT_THAT(FailureOf(Access, 32, 128, {global.data(), kind, 128}),
                HasSubstr("outside of the block's shared memory"));
  }
}

#if !defined(__SANITIZE_ADDRESS__)
// AddressSanitizer, where it is on, stops at the store itself.
TEST_F(DefectsTest, ReportsStoresPastTheEndOfSharedMemory) {
  EXPECT_THAT(FailureOf(Access, 32, 128, {nullptr, 5, 128}), HasSubstr("past the end"));
  EXPECT_EQ(FailureOf(Access, 32, 128, {nullptr, 5, 127}), "");
}

#if !defined(__SANITIZE_THREAD__)
// Under ThreadSanitizer memory is the heap's, without a guard.
TEST_F(DefectsTest, CrashesWithTheKernelsNameFarOutsideOfAnAllocation) {
  DeviceArray<unsigned char> global(64);
  EXPECT_DEATH(
      {
        Run(Access, 1, 32, 128, {global.data(), 6, 1 << 12});
        cudaStreamSynchronize(stream_);
      },
      "Access.*memory that is not there");
}

TEST_F(DefectsTest, ReportsStoresAroundAllocationsWhenTheyAreFreed) {
  for (const int offset : {-1, 100}) {
    emulated::FailureRecorder failures;
    unsigned char* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
    ASSERT_EQ(Run(Access, 1, 1, 128, {memory, 6, offset}), cudaSuccess);
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_THAT(failures.messages(), Contains(HasSubstr("allocation of 100 bytes")));
  }
}
#endif
#endif

TEST_F(DefectsTest, CrashesWhereHostCodeTouchesTheDevicesMemory) {
  if (!emulated::HostAccessIsCaught()) GTEST_SKIP() << "needs memory protection keys";
  DeviceArray<uint32_t> array(std::vector<uint32_t>{5});
  EXPECT_DEATH(array.data()[0] = 1, "host code touches the device's memory");
  EXPECT_DEATH(std::exit(array.data()[0] == 5), "host code touches the device's memory");
  EXPECT_THAT(array.Read(), Each(5u));
}

TEST_F(DefectsTest, LimitsSharedMemory) {
  const AccessArgs args = {nullptr, 5, 0};
  EXPECT_EQ(Run(Access, 1, 32, 48 << 10, args), cudaSuccess);
  EXPECT_EQ(Run(Access, 1, 32, (48 << 10) + 1, args), cudaErrorInvalidValue);
  constexpr auto kSize = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(Access, kSize, (227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(Access, kSize, 227 << 10), cudaSuccess);
  EXPECT_EQ(Run(Access, 1, 32, 227 << 10, args), cudaSuccess);
  EXPECT_EQ(Run(Access, 1, 32, (227 << 10) + 1, args), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(DefectsTest, RefusesShapesThatTheDeviceRefuses) {
  const AccessArgs args = {nullptr, 5, 0};
  EXPECT_EQ(Run(Access, 0, 32, 16, args), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Run(Access, 1, 0, 16, args), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Run(Access, 1, 1025, 16, args), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Run(Access, dim3(1, 65536), 32, 16, args), cudaErrorInvalidConfiguration);
}

}  // namespace
}  // namespace tlm::simt
