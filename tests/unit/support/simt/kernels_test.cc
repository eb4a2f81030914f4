// Correct kernels give correct results whatever the order of threads, warps and blocks.
#include <bit>
#include <numeric>
#include <random>

#include "model/ops/cuda/kernels/simt.h"
#include "tests/support/simt/mma_model.h"
#include "tests/unit/support/simt/kernel_fixture.h"

namespace tlm::simt {
namespace {

class KernelsTest : public KernelTest, public testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override { emulated::Configure({.seed = GetParam()}); }
};

// --- Sum of a block through shuffles and shared memory; blocks are summed by the last one. ---

struct SumArgs {
  const float* values;  // [gridDim.x * blockDim.x]
  float* partial;       // [gridDim.x]
  uint32_t* arrived;
  float* sum;
};

TLM_KERNEL Sum(const SumArgs args) {
  WaitForPrevious();
  float value = args.values[blockIdx.x * blockDim.x + threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  float* const warps = SharedMemory<float>();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  SyncThreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += warps[w];
  args.partial[blockIdx.x] = sum;
  FenceDevice();
  if (AtomicAdd(args.arrived, 1) != gridDim.x - 1) return;
  float total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += args.partial[b];
  *args.sum = total;
}

TEST_P(KernelsTest, SumsBlocks) {
  std::vector<float> values(7 * 256);
  std::iota(values.begin(), values.end(), 1.0f);
  DeviceArray<float> in(values), partial(7), sum(1);
  DeviceArray<uint32_t> arrived(std::vector<uint32_t>{0});
  ASSERT_EQ(Run(Sum, 7, 256, 8 * sizeof(float),
                {in.data(), partial.data(), arrived.data(), sum.data()}, true),
            cudaSuccess);
  EXPECT_EQ(sum.Read()[0], 1792.0f * 1793.0f / 2);
}

// --- Transpose of 32 x 32 through shared memory, threads in two dimensions. ---

struct TransposeArgs {
  const uint32_t* in;
  uint32_t* out;
};

TLM_KERNEL Transpose(const TransposeArgs args) {
  auto* tile = SharedMemory<uint32_t>();
  for (unsigned y = threadIdx.y; y < 32; y += blockDim.y) {
    tile[y * 33 + threadIdx.x] = args.in[y * 32 + threadIdx.x];
  }
  SyncThreads();
  for (unsigned y = threadIdx.y; y < 32; y += blockDim.y) {
    args.out[y * 32 + threadIdx.x] = tile[threadIdx.x * 33 + y];
  }
}

TEST_P(KernelsTest, TransposesThroughSharedMemory) {
  std::vector<uint32_t> values(1024);
  std::iota(values.begin(), values.end(), 0u);
  DeviceArray<uint32_t> in(values), out(1024);
  ASSERT_EQ(Run(Transpose, 1, dim3(32, 8), 33 * 32 * 4, {in.data(), out.data()}), cudaSuccess);
  const std::vector<uint32_t> result = out.Read();
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(result[i], i % 32 * 32u + i / 32u);
}

// --- A ring of asynchronous copies: each thread adds its neighbour's 16 bytes. ---

struct PipelineArgs {
  const uint32_t* in;  // [steps][threads][4]
  uint32_t* out;       // [threads]
  int steps;
};

TLM_KERNEL Pipeline(const PipelineArgs args) {
  constexpr int kStages = 3;
  auto* ring = SharedMemory<Quad>();  // [kStages][threads]
  const int threads = blockDim.x;
  const int me = threadIdx.x;
  const auto begin = [&](int step) {
    const bool valid = step < args.steps;
    CopyAsync16(&ring[step % kStages * threads + me],
                args.in + (size_t{valid ? unsigned(step) : 0} * threads + me) * 4, valid);
    CopyAsyncCommit();
  };
  for (int step = 0; step < kStages - 1; ++step) begin(step);
  uint32_t sum = 0;
  for (int step = 0; step < args.steps; ++step) {
    CopyAsyncWait<kStages - 2>();
    SyncThreads();
    begin(step + kStages - 1);
    const Quad quad = ring[step % kStages * threads + (me + 1) % threads];
    sum += quad.word[0] + quad.word[3];
  }
  CopyAsyncWait<0>();
  SyncThreads();
  const Quad zeros = ring[args.steps % kStages * threads + (me + 1) % threads];
  args.out[me] = sum + zeros.word[1];
}

TEST_P(KernelsTest, CopiesAsynchronously) {
  constexpr int kSteps = 9, kThreads = 96;
  std::vector<uint32_t> values(kSteps * kThreads * 4);
  std::iota(values.begin(), values.end(), 5u);
  DeviceArray<uint32_t> in(values), out(kThreads);
  ASSERT_EQ(Run(Pipeline, 1, kThreads, 3 * kThreads * 16, {in.data(), out.data(), kSteps}),
            cudaSuccess);
  const std::vector<uint32_t> result = out.Read();
  for (int t = 0; t < kThreads; ++t) {
    uint32_t expected = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int at = (step * kThreads + (t + 1) % kThreads) * 4;
      expected += values[at] + values[at + 3];
    }
    EXPECT_EQ(result[t], expected);
  }
}

// --- A product of [16, 16] and [16, 8] through shared memory, LoadMatrices and MultiplyAdd. ---

struct ProductArgs {
  const uint16_t* a;  // [16, 16]
  const uint16_t* b;  // [8, 16]: column-major, or [16, 8] if transposed
  const float* c;     // [16, 8]
  float* out;         // [16, 8]
  bool transposed;
};

template <typename T>
TLM_KERNEL Product(const ProductArgs args) {
  auto* a = SharedMemory<uint16_t>();
  auto* b = a + 16 * 16;
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 16; i += 32) a[i] = args.a[i];
  for (int i = lane; i < 16 * 8; i += 32) b[i] = args.b[i];
  SyncWarp();
  uint32_t fa[4], fb[4];
  // Matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
  LoadMatrices(fa, a + (lane % 16) * 16 + lane / 16 * 8);
  if (args.transposed) {
    LoadMatricesTransposed(fb, b + (lane % 16) * 8);
  } else {
    LoadMatrices(fb, b + (lane % 8) * 16 + lane / 8 % 2 * 8);
  }
  const int row = lane / 4, column = lane % 4 * 2;
  float c[4] = {args.c[row * 8 + column], args.c[row * 8 + column + 1],
                args.c[(row + 8) * 8 + column], args.c[(row + 8) * 8 + column + 1]};
  MultiplyAdd<T>(c, fa, {fb[0], fb[1]});
  args.out[row * 8 + column] = c[0];
  args.out[row * 8 + column + 1] = c[1];
  args.out[(row + 8) * 8 + column] = c[2];
  args.out[(row + 8) * 8 + column + 1] = c[3];
}

template <typename T>
struct Format;
template <>
struct Format<Bf16> {
  static constexpr MmaInput kInput = MmaInput::kBf16;
};
template <>
struct Format<F16> {
  static constexpr MmaInput kInput = MmaInput::kF16;
};

template <typename T>
void ExpectProduct(uint64_t seed, bool transposed,
                   const std::function<void(const ProductArgs&)>& run) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(256), b(128), b_stored(128);
  for (uint16_t& v : a) v = FromFloat<T>(normal(random)).bits;
  for (uint16_t& v : b) v = FromFloat<T>(normal(random)).bits;
  std::vector<float> c(128);
  for (float& v : c) v = normal(random);
  for (int k = 0; k < 16; ++k) {
    for (int j = 0; j < 8; ++j) b_stored[transposed ? k * 8 + j : j * 16 + k] = b[j * 16 + k];
  }
  DeviceArray<uint16_t> da(a), db(b_stored);
  DeviceArray<float> dc(c), out(128);
  run({da.data(), db.data(), dc.data(), out.data(), transposed});
  const std::vector<float> result = out.Read();
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(result[i * 8 + j],
                MmaDot(kHopperMma, Format<T>::kInput, &a[i * 16], &b[j * 16], 16, c[i * 8 + j]));
    }
  }
}

TEST_P(KernelsTest, MultipliesMatrices) {
  for (const bool transposed : {false, true}) {
    ExpectProduct<Bf16>(GetParam(), transposed, [&](const ProductArgs& args) {
      ASSERT_EQ(Run(Product<Bf16>, 1, 32, (256 + 128) * 2, args), cudaSuccess);
    });
    ExpectProduct<F16>(GetParam(), transposed, [&](const ProductArgs& args) {
      ASSERT_EQ(Run(Product<F16>, 1, 32, (256 + 128) * 2, args), cudaSuccess);
    });
  }
}

// --- Exchanges within a warp. ---

struct ExchangeArgs {
  uint64_t* shuffled;  // [32]
  uint32_t* ballots;   // [32]
  float* sums;         // [32]
};

TLM_KERNEL ExchangeValues(const ExchangeArgs args) {
  const int lane = threadIdx.x;
  args.shuffled[lane] = Shuffle(uint64_t{1} << (lane + 20), (lane + 3) % 32);
  args.ballots[lane] = Ballot(lane % 3 == 0);
  float sum = static_cast<float>(lane);
  for (int mask = 1; mask < 32; mask *= 2) sum += ShuffleXor(sum, mask);
  args.sums[lane] = sum;
}

TEST_P(KernelsTest, ExchangesWithinAWarp) {
  DeviceArray<uint64_t> shuffled(32);
  DeviceArray<uint32_t> ballots(32);
  DeviceArray<float> sums(32);
  ASSERT_EQ(Run(ExchangeValues, 1, 32, 0, {shuffled.data(), ballots.data(), sums.data()}),
            cudaSuccess);
  const auto values = shuffled.Read();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(values[lane], uint64_t{1} << ((lane + 3) % 32 + 20));
  }
  EXPECT_THAT(ballots.Read(), testing::Each(0x49249249u));
  EXPECT_THAT(sums.Read(), testing::Each(496.0f));
}

INSTANTIATE_TEST_SUITE_P(Orders, KernelsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace tlm::simt
