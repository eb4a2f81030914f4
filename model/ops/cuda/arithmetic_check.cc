#include "model/ops/cuda/arithmetic_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/base/sha256.h"
#include "model/ops/cuda/gemm_plan.h"
#include "model/ops/cuda/kernels/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm_probe.h"
#include "model/ops/cuda/kernels/gemm_tiles.h"

namespace tlm {
namespace {

// One product at place k of a sum over 32, that is of two mma after each other.
struct KnownTerm {
  int k;
  float w, x;
};
constexpr int kMostTerms = 4;

// A sum and what it is on the tensor cores of Hopper (terms truncated to 25 bits behind the largest
// one's exponent, 16 products at a time) and of Ampere (24 bits, 8 products at a time). Operands
// are exact in bfloat16 and float16.
struct KnownSum {
  const char* name;
  std::array<KnownTerm, kMostTerms> terms;
  float hopper;
  float ampere;
};

// 2^-12 (1 + 2^-7), and its square.
constexpr float kSmall = 0x1.02p-12f;
constexpr float kSmallSquared = 0x1.0404p-24f;

constexpr KnownSum kKnownSums[] = {
    {"zero times 8 beside a small product",
     {{{0, kSmall, kSmall}, {1, 0.0f, 8.0f}}},
     kSmallSquared,
     kSmallSquared},
    {"8 times zero beside a small product",
     {{{0, kSmall, kSmall}, {1, 8.0f, 0.0f}}},
     kSmallSquared,
     kSmallSquared},
    {"zeros times 2^15 beside a small product",
     {{{5, kSmall, kSmall}, {0, 0.0f, 0x1p15f}, {7, 0x1p15f, 0.0f}, {15, 0.0f, 0x1p15f}}},
     kSmallSquared,
     kSmallSquared},
    {"zeros times 2^15 behind a small sum",
     {{{0, kSmall, kSmall}, {16, 0.0f, 0x1p15f}, {31, 0x1p15f, 0.0f}}},
     kSmallSquared,
     kSmallSquared},
    {"truncation towards zero",
     {{{0, 1, 1}, {1, 0x1p-12f, 0x1p-12f}, {2, 0x1p-12f, 0x1p-13f}}},
     1,
     1},
    {"truncation of a negative sum",
     {{{0, -1, 1}, {1, -0x1p-12f, 0x1p-12f}, {2, -0x1p-12f, 0x1p-13f}}},
     -1,
     -1},
    {"a term of 2^-24 beside 1",
     {{{0, 1, 1}, {1, -1, 1}, {2, 0x1p-12f, 0x1p-12f}}},
     0x1p-24f,
     0x1p-24f},
    {"a term of 2^-25 beside 1", {{{0, 1, 1}, {1, -1, 1}, {2, 0x1p-12f, 0x1p-13f}}}, 0x1p-25f, 0},
    {"a term of 2^-26 beside 1", {{{0, 1, 1}, {1, -1, 1}, {2, 0x1p-13f, 0x1p-13f}}}, 0, 0},
    {"a term of 2^-24 beside 2.25",
     {{{0, 1.5f, 1.5f}, {1, -1.5f, 1.5f}, {2, 0x1p-12f, 0x1p-12f}}},
     0x1p-24f,
     0x1p-24f},
    {"a term of 2^-25 beside 2.25",
     {{{0, 1.5f, 1.5f}, {1, -1.5f, 1.5f}, {2, 0x1p-12f, 0x1p-13f}}},
     0x1p-25f,
     0},
    {"16 products in one sum or two",
     {{{0, 1, 1}, {1, 0x1p-12f, 0x1p-12f}, {8, -1, 1}}},
     0x1p-24f,
     0},
    {"k ascending", {{{0, 1, 1}, {16, -1, 1}, {17, 0x1p-12f, 0x1p-13f}}}, 0x1p-25f, 0},
    {"k not descending", {{{16, 1, 1}, {0, -1, 1}, {1, 0x1p-12f, 0x1p-13f}}}, 0x1p-24f, 0},
    {"a small sum ahead of larger terms",
     {{{0, 0x1p-12f, 0x1p-12f}, {16, 1, 1}, {17, -1, 1}}},
     0x1p-24f,
     0x1p-24f},
    {"a sum that vanishes", {{{0, 0x1p-14f, 0x1p-14f}, {1, -0x1p-14f, 0x1p-14f}}}, 0, 0},
};
constexpr int64_t kKnownSumCount = sizeof(kKnownSums) / sizeof(kKnownSums[0]);
static_assert(kKnownSumCount % 8 == 0);

// A product of matrices, [m, k] by [n, k]; rows follow each other.
struct CheckShape {
  int64_t m, n, k;

  constexpr int64_t inputs() const { return (m + n) * k; }
  constexpr int64_t outputs() const { return m * n; }
};
// The sums: w's row i and x's row i hold those of kKnownSums[i], whose result is the i-th of the
// diagonal.
constexpr CheckShape kTable{kKnownSumCount, kKnownSumCount, 32};
// Random numbers: several tiles of every kind but the largest, and stages that end within k.
constexpr CheckShape kRandom{24, 40, 160};
constexpr int64_t kMostOutputs = std::max(kTable.outputs(), kRandom.outputs());

constexpr size_t kPieceAlignment = 256;

// Memory on the device, in one piece.
struct CheckMemory {
  uint16_t* x;  // of the larger shape
  uint16_t* w;
  float* first;     // of the first tile
  float* out;       // of another
  uint32_t* count;  // of words in which they differ, by tile
  Buffer buffer;
};

absl::StatusOr<CheckMemory> AllocateMemory(CudaDevice& device) {
  constexpr size_t kInputBytes = 2 * std::max(kTable.inputs(), kRandom.inputs());
  constexpr size_t kOutputBytes = 4 * kMostOutputs;
  constexpr size_t kCountBytes = 4 * kMmaTileCount;
  const auto aligned = [](size_t bytes) {
    return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  };
  const size_t inputs = aligned(kInputBytes);
  const size_t outputs = aligned(kOutputBytes);
  CheckMemory memory;
  TLM_ASSIGN_OR_RETURN(
      memory.buffer,
      device.Allocate(2 * inputs + 2 * outputs + aligned(kCountBytes), MemoryPurpose::kRuntime));
  char* const begin = memory.buffer.as<char>();
  memory.x = reinterpret_cast<uint16_t*>(begin);
  memory.w = reinterpret_cast<uint16_t*>(begin + inputs);
  memory.first = reinterpret_cast<float*>(begin + 2 * inputs);
  memory.out = reinterpret_cast<float*>(begin + 2 * inputs + outputs);
  memory.count = reinterpret_cast<uint32_t*>(begin + 2 * inputs + 2 * outputs);
  return memory;
}

// TileResults of one shape in one type.
struct TileResults {
  std::vector<float> first;
  std::array<uint32_t, kMmaTileCount> differences{};
};

class ArithmeticChecker {
 public:
  ArithmeticChecker(CudaDevice& device, const CheckMemory& memory, DType dtype)
      : device_(device), memory_(memory), dtype_(dtype), stream_(device.compute_stream()) {}

  // The fault, or ""; appends the bits to `bits`.
  absl::StatusOr<std::string> Check(std::string* bits);

 private:
  absl::Status FillTable();
  absl::Status FillRandom();
  absl::Status RunTile(const CheckShape& shape, int tile, float* out);
  absl::StatusOr<TileResults> RunTiles(const CheckShape& shape);
  uint16_t Encode(float value) const {
    return dtype_ == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }

  CudaDevice& device_;
  const CheckMemory& memory_;
  const DType dtype_;
  const cudaStream_t stream_;
};

absl::Status ArithmeticChecker::FillTable() {
  std::vector<uint16_t> x(static_cast<size_t>(kTable.m * kTable.k));
  std::vector<uint16_t> w(x.size());
  for (int64_t row = 0; row < kKnownSumCount; ++row) {
    for (const KnownTerm& term : kKnownSums[row].terms) {
      if (term.w == 0.0f && term.x == 0.0f) continue;  // the array's unused end
      x[static_cast<size_t>(row * kTable.k + term.k)] = Encode(term.x);
      w[static_cast<size_t>(row * kTable.k + term.k)] = Encode(term.w);
    }
  }
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(memory_.x, x.data(), 2 * x.size()));
  return device_.CopyToDevice(memory_.w, w.data(), 2 * w.size());
}

absl::Status ArithmeticChecker::FillRandom() {
  const ProbeFillArgs x{
      .data = memory_.x, .rows = kRandom.m, .cols = kRandom.k, .stride = kRandom.k, .seed = 2};
  const ProbeFillArgs w{.data = memory_.w,
                        .rows = kRandom.n,
                        .cols = kRandom.k,
                        .stride = kRandom.k,
                        .seed = 1,
                        .second_half = -1.0f};
  for (const ProbeFillArgs& args : {x, w}) {
    TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeFill(args, dtype_, stream_), "LaunchProbeFill"));
  }
  return absl::OkStatus();
}

absl::Status ArithmeticChecker::RunTile(const CheckShape& shape, int tile, float* out) {
  const GemmArgs args{
      .x = memory_.x,
      .x_stride = shape.k,
      .m = shape.m,
      .w = memory_.w,
      .w_stride = shape.k,
      .n = shape.n,
      .k = shape.k,
      .output = {.out = out, .out_stride = shape.n, .out_float32 = true},
      .row_tiles = static_cast<int32_t>(CeilDiv(shape.n, kMmaTiles[tile].rows)),
      .token_tiles = static_cast<int32_t>(CeilDiv(shape.m, kMmaTiles[tile].tokens))};
  // Half as many blocks as tiles: some go on from one tile to the next.
  const int grid = (args.row_tiles * args.token_tiles + 1) / 2;
  return device_.Check(LaunchGemmMma(args, dtype_, tile, grid, stream_), "LaunchGemmMma");
}

absl::StatusOr<TileResults> ArithmeticChecker::RunTiles(const CheckShape& shape) {
  TileResults results;
  const auto set = [this](void* data, int value, size_t bytes) {
    return device_.Check(cudaMemsetAsync(data, value, bytes, stream_), "cudaMemsetAsync");
  };
  // Products fetch weights before earlier kernels have ended: elsewhere no kernel writes any.
  TLM_RETURN_IF_ERROR(device_.Synchronize());
  TLM_RETURN_IF_ERROR(set(memory_.count, 0, sizeof(results.differences)));
  TLM_RETURN_IF_ERROR(RunTile(shape, 0, memory_.first));
  for (int tile = 1; tile < kMmaTileCount; ++tile) {
    TLM_RETURN_IF_ERROR(set(memory_.out, 0xff, 4 * static_cast<size_t>(shape.outputs())));
    TLM_RETURN_IF_ERROR(RunTile(shape, tile, memory_.out));
    TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeCompare({.a = memory_.first,
                                                          .b = memory_.out,
                                                          .rows = shape.m,
                                                          .words = 2 * shape.n,
                                                          .a_stride = 2 * shape.n,
                                                          .b_stride = 2 * shape.n,
                                                          .differences = memory_.count + tile},
                                                         stream_),
                                      "LaunchProbeCompare"));
  }
  results.first.resize(static_cast<size_t>(shape.outputs()));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(results.first.data(), memory_.first,
                                         sizeof(float) * results.first.size()));
  TLM_RETURN_IF_ERROR(
      device_.CopyToHost(results.differences.data(), memory_.count, sizeof(results.differences)));
  return results;
}

std::string FaultOfTiles(const TileResults& results) {
  for (int tile = 1; tile < kMmaTileCount; ++tile) {
    if (results.differences[static_cast<size_t>(tile)] == 0) continue;
    return fmt::format("tiles of {} x {} and {} x {} give different bits", kMmaTiles[tile].rows,
                       kMmaTiles[tile].tokens, kMmaTiles[0].rows, kMmaTiles[0].tokens);
  }
  return "";
}

// Against the kind of tensor core that `sums` differ from least.
std::string FaultOfSums(const TileResults& results) {
  const auto actual = [&results](int64_t i) {
    return results.first[static_cast<size_t>(i * kTable.n + i)];
  };
  const auto compare = [&](const char* kind, float KnownSum::*expected) {
    std::pair<int, std::string> differences;
    for (int64_t i = 0; i < kKnownSumCount; ++i) {
      const auto bits = std::bit_cast<uint32_t>(actual(i));
      const auto expected_bits = std::bit_cast<uint32_t>(kKnownSums[i].*expected);
      if (bits == expected_bits) continue;
      if (differences.first++ == 0) {
        differences.second =
            fmt::format("{}: {:08x}, {:08x} on {}", kKnownSums[i].name, bits, expected_bits, kind);
      }
    }
    return differences;
  };
  return std::min(compare("Hopper", &KnownSum::hopper), compare("Ampere", &KnownSum::ampere))
      .second;
}

absl::StatusOr<std::string> ArithmeticChecker::Check(std::string* bits) {
  TLM_RETURN_IF_ERROR(FillTable());
  TLM_ASSIGN_OR_RETURN(const TileResults sums, RunTiles(kTable));
  TLM_RETURN_IF_ERROR(FillRandom());
  TLM_ASSIGN_OR_RETURN(const TileResults random, RunTiles(kRandom));
  for (const TileResults* results : {&sums, &random}) {
    bits->append(reinterpret_cast<const char*>(results->first.data()),
                 sizeof(float) * results->first.size());
  }
  for (std::string fault : {FaultOfSums(sums), FaultOfTiles(sums), FaultOfTiles(random)}) {
    if (!fault.empty()) return fault;
  }
  return std::string();
}

}  // namespace

std::string ArithmeticCheck::FaultOf(DType activations) const {
  if (activations == DType::kBF16) return bf16;
  return activations == DType::kF16 ? f16 : "";
}

absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device) {
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  TLM_ASSIGN_OR_RETURN(const CheckMemory memory, AllocateMemory(device));
  ArithmeticCheck check;
  std::string bits;
  TLM_ASSIGN_OR_RETURN(check.bf16, ArithmeticChecker(device, memory, DType::kBF16).Check(&bits));
  TLM_ASSIGN_OR_RETURN(check.f16, ArithmeticChecker(device, memory, DType::kF16).Check(&bits));
  constexpr size_t kDigits = 16;
  TLM_ASSIGN_OR_RETURN(check.probe, Sha256Hex(bits));
  check.probe.resize(kDigits);
  return check;
}

}  // namespace tlm
