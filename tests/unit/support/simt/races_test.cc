// What the emulator says of races, whatever the order of threads and the values.
#include "model/ops/cuda/kernels/simt.h"
#include "tests/unit/support/simt/kernel_fixture.h"

#ifdef TLM_SIMT_RACES

namespace tlm::simt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RacesTest : public KernelTest {
 protected:
  // FailureOf two blocks of 32 threads.
  template <typename Args>
  std::string FailureOfTwo(void (*kernel)(Args), const std::type_identity_t<Args>& args) {
    emulated::FailureRecorder failures;
    EXPECT_EQ(Run(kernel, 2, 32, 256, args), cudaSuccess);
    cudaStreamSynchronize(stream_);
    return failures.messages().empty() ? "" : failures.messages()[0];
  }
};

// What orders the accesses of two threads.
enum class Order { kNothing, kShuffle, kSyncWarp, kSyncThreads };

TLM_DEVICE void Wait(Order order) {
  switch (order) {
    case Order::kNothing:
      return;
    case Order::kShuffle:
      Shuffle(0, 0);
      return;
    case Order::kSyncWarp:
      SyncWarp();
      return;
    case Order::kSyncThreads:
      SyncThreads();
      return;
  }
}

struct SharedArgs {
  uint32_t* out;
  unsigned distance;
  Order order;
  Order second = Order::kNothing;
};

// Every thread reads what one so far away has stored, and stores the same value there again.
TLM_KERNEL PassOn(const SharedArgs args) {
  auto* shared = SharedMemory<uint32_t>();
  shared[threadIdx.x] = 7;
  Wait(args.order);
  uint32_t& other = shared[(threadIdx.x + args.distance) % blockDim.x];
  const uint32_t value = other;
  Wait(args.second);
  shared[threadIdx.x] = 7;
  args.out[threadIdx.x] = value;
}

TEST_F(RacesTest, BarriersAloneOrderSharedMemory) {
  DeviceArray<uint32_t> out(64);
  const auto failure = [&](unsigned distance, Order order, Order second) {
    return FailureOf(PassOn, 64, 256, {out.data(), distance, order, second});
  };
  constexpr unsigned kOwn = 0, kOfWarp = 1, kOfBlock = 32;
  EXPECT_EQ(failure(kOwn, Order::kNothing, Order::kNothing), "");
  EXPECT_EQ(failure(kOfBlock, Order::kSyncThreads, Order::kSyncThreads), "");
  for (const Order order : {Order::kNothing, Order::kShuffle, Order::kSyncWarp}) {
    EXPECT_THAT(failure(kOfBlock, order, Order::kSyncThreads), HasSubstr("without a barrier"));
    EXPECT_THAT(failure(kOfBlock, Order::kSyncThreads, order),
                AllOf(HasSubstr("PassOn"), HasSubstr("without a barrier")));
  }
  for (const Order order : {Order::kNothing, Order::kShuffle}) {
    EXPECT_THAT(failure(kOfWarp, order, Order::kSyncThreads), HasSubstr("without a barrier"));
    EXPECT_THAT(failure(kOfWarp, Order::kSyncThreads, order), HasSubstr("without a barrier"));
  }
}

TLM_KERNEL PassOnInWarp(const SharedArgs args) {
  if (threadIdx.x < 32) PassOn(args);
}

TEST_F(RacesTest, SyncWarpOrdersAWarp) {
  DeviceArray<uint32_t> out(32);
  EXPECT_EQ(FailureOf(PassOnInWarp, 32, 128, {out.data(), 1, Order::kSyncWarp, Order::kSyncWarp}),
            "");
}

TLM_KERNEL Load(const SharedArgs args) {
  auto* shared = SharedMemory<Quad>();
  shared[threadIdx.x] = {{1, 2, 3, 4}};
  Wait(args.order);
  uint32_t matrices[4];
  LoadMatrices(matrices, &shared[threadIdx.x]);
  args.out[threadIdx.x] = matrices[0];
}

TEST_F(RacesTest, MatricesAreLoadedByTheWholeWarp) {
  DeviceArray<uint32_t> out(32);
  for (const Order order : {Order::kNothing, Order::kShuffle}) {
    EXPECT_THAT(FailureOf(Load, 32, 512, {out.data(), 0, order}), HasSubstr("without a barrier"));
  }
  EXPECT_EQ(FailureOf(Load, 32, 512, {out.data(), 0, Order::kSyncWarp}), "");
}

struct CopyArgs {
  const Quad* in;
  uint32_t* out;
  Order order;
};

// Thread 0 copies to where another thread has read zeros, which are copied.
TLM_KERNEL CopyOver(const CopyArgs args) {
  auto* shared = SharedMemory<Quad>();
  if (threadIdx.x == 0) *shared = {};
  SyncThreads();
  if (threadIdx.x == 33) args.out[0] = shared->word[0];
  Wait(args.order);
  if (threadIdx.x == 0) CopyAsync16(shared, args.in);
  CopyAsyncCommit();
  CopyAsyncWait<0>();
}

TEST_F(RacesTest, CopiesStoreFromTheirBeginOn) {
  DeviceArray<Quad> in(std::vector<Quad>(1));
  DeviceArray<uint32_t> out(1);
  EXPECT_EQ(FailureOf(CopyOver, 64, 16, {in.data(), out.data(), Order::kSyncThreads}), "");
  // One of the two comes first; the seed says which.
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    emulated::Configure({.seed = seed});
    EXPECT_THAT(FailureOf(CopyOver, 64, 16, {in.data(), out.data(), Order::kNothing}),
                HasSubstr("shared"));
  }
}

// --- Between blocks. ---

struct TicketArgs {
  uint32_t* ticket;
  uint32_t* parts;
  uint32_t* sum;
  bool releases;
  bool acquires;
};

// The block that is done last adds what the blocks have stored.
TLM_KERNEL AddParts(const TicketArgs args) {
  auto* last = SharedMemory<uint32_t>();
  if (threadIdx.x == 5) args.parts[blockIdx.x] = 1;
  SyncThreads();
  if (threadIdx.x == 0) {
    if (args.releases) FenceDevice();
    *last = AtomicAdd(args.ticket, 1u) + 1 == gridDim.x;
    if (args.acquires) FenceDevice();
  }
  SyncThreads();
  if (*last == 0 || threadIdx.x != 7) return;
  *args.ticket = 0;
  *args.sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) *args.sum += args.parts[i];
}

TEST_F(RacesTest, FencesAndAnAtomicOrderBlocks) {
  DeviceArray<uint32_t> ticket(std::vector<uint32_t>{0}), parts(2), sum(1);
  const auto failure = [&](bool releases, bool acquires) {
    EXPECT_EQ(cudaMemset(ticket.data(), 0, 4), cudaSuccess);
    return FailureOfTwo(AddParts, {ticket.data(), parts.data(), sum.data(), releases, acquires});
  };
  EXPECT_EQ(failure(true, true), "");
  EXPECT_THAT(sum.Read(), testing::ElementsAre(2));
  EXPECT_THAT(failure(false, true), AllOf(HasSubstr("AddParts"), HasSubstr("FenceDevice")));
  EXPECT_THAT(failure(true, false), HasSubstr("FenceDevice"));
}

struct StoreArgs {
  uint16_t* out;
  unsigned distance;
};

TLM_KERNEL StoreApart(const StoreArgs args) {
  if (threadIdx.x == 0) args.out[blockIdx.x * args.distance] = 1;
}

TEST_F(RacesTest, BlocksStoreToPlacesOfTheirOwn) {
  DeviceArray<uint16_t> out(2);
  EXPECT_EQ(FailureOfTwo(StoreApart, {out.data(), 1}), "");
  EXPECT_THAT(FailureOfTwo(StoreApart, {out.data(), 0}), HasSubstr("stores to what thread 0"));
}

// --- Between kernels. ---

struct FlagArgs {
  uint32_t* flag;
  uint32_t* out;
};

TLM_KERNEL StoreFlag(const FlagArgs args) {
  WaitForPrevious();
  *args.flag = 1;
}
TLM_KERNEL LoadEarly(const FlagArgs args) {
  const uint32_t flag = *args.flag;
  WaitForPrevious();
  *args.out = flag;
}
TLM_KERNEL StoreEarly(const FlagArgs args) {
  *args.out = 1;
  WaitForPrevious();
}

TEST_F(RacesTest, NothingIsLoadedEarlyThatAnEarlierKernelStores) {
  // The value is the same.
  DeviceArray<uint32_t> flag(std::vector<uint32_t>{1}), other(std::vector<uint32_t>{1}), out(1);
  for (const bool same : {false, true}) {
    emulated::FailureRecorder failures;
    const FlagArgs stored = {flag.data(), nullptr};
    const FlagArgs loaded = {same ? flag.data() : other.data(), out.data()};
    ASSERT_EQ(Run(StoreFlag, 1, 1, 0, stored, true), cudaSuccess);
    ASSERT_EQ(Run(LoadEarly, 1, 1, 0, loaded, true), cudaSuccess);
    cudaStreamSynchronize(stream_);
    ASSERT_EQ(failures.messages().size(), same ? 1u : 0u);
    if (same) {
      EXPECT_THAT(failures.messages()[0], AllOf(HasSubstr("StoreFlag"), HasSubstr("LoadEarly")));
    }
  }
}

TEST_F(RacesTest, NothingIsStoredEarly) {
  DeviceArray<uint32_t> out(1);
  EXPECT_THAT(FailureOf(StoreEarly, 1, 0, {nullptr, out.data()}, true),
              AllOf(HasSubstr("StoreEarly"), HasSubstr("before WaitForPrevious")));
}

}  // namespace
}  // namespace tlm::simt

#endif
