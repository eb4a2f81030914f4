// Sums of known bits, and the same products with every tile shape and at two places of a tile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/arithmetic_parts.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_probe.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"

namespace tlm {
namespace {

// One product, at place k of a sum over 32, which takes two mma.
struct KnownTerm {
  int k;
  float w, x;
};
constexpr int kMaxTerms = 4;

// A sum and its value on the tensor cores of Hopper (terms truncated to 25 bits after the largest
// one's exponent, 16 products at a time) and of Ampere (24 bits, 8 products at a time). Operands
// are exact in bfloat16 and float16.
struct KnownSum {
  const char* name;
  float hopper;
  float ampere;
  std::array<KnownTerm, kMaxTerms> terms;
};

constexpr float kSmall = 0x1.02p-12f;   // 2^-12 (1 + 2^-7)
constexpr float kTiny = 0x1.0404p-24f;  // its square
constexpr float k12 = 0x1p-12f, k13 = 0x1p-13f, k14 = 0x1p-14f, k24 = 0x1p-24f, k25 = 0x1p-25f;
constexpr float kLarge = 0x1p15f;

constexpr KnownSum kKnownSums[] = {
    {"zero times 8 beside a small product", kTiny, kTiny, {{{0, kSmall, kSmall}, {1, 0, 8}}}},
    {"8 times zero beside a small product", kTiny, kTiny, {{{0, kSmall, kSmall}, {1, 8, 0}}}},
    {"zeros times 2^15 beside a small product",
     kTiny,
     kTiny,
     {{{5, kSmall, kSmall}, {0, 0, kLarge}, {7, kLarge, 0}, {15, 0, kLarge}}}},
    {"zeros times 2^15 behind a small sum",
     kTiny,
     kTiny,
     {{{0, kSmall, kSmall}, {16, 0, kLarge}, {31, kLarge, 0}}}},
    {"truncation towards zero", 1, 1, {{{0, 1, 1}, {1, k12, k12}, {2, k12, k13}}}},
    {"truncation of a negative sum", -1, -1, {{{0, -1, 1}, {1, -k12, k12}, {2, -k12, k13}}}},
    {"a term of 2^-24 beside 1", k24, k24, {{{0, 1, 1}, {1, -1, 1}, {2, k12, k12}}}},
    {"a term of 2^-25 beside 1", k25, 0, {{{0, 1, 1}, {1, -1, 1}, {2, k12, k13}}}},
    {"a term of 2^-26 beside 1", 0, 0, {{{0, 1, 1}, {1, -1, 1}, {2, k13, k13}}}},
    {"a term of 2^-24 beside 2.25", k24, k24, {{{0, 1.5, 1.5}, {1, -1.5, 1.5}, {2, k12, k12}}}},
    {"a term of 2^-25 beside 2.25", k25, 0, {{{0, 1.5, 1.5}, {1, -1.5, 1.5}, {2, k12, k13}}}},
    {"16 products in one sum or two", k24, 0, {{{0, 1, 1}, {1, k12, k12}, {8, -1, 1}}}},
    {"k ascending", k25, 0, {{{0, 1, 1}, {16, -1, 1}, {17, k12, k13}}}},
    {"k not descending", k24, 0, {{{16, 1, 1}, {0, -1, 1}, {1, k12, k13}}}},
    {"a small sum ahead of larger terms", k24, k24, {{{0, k12, k12}, {16, 1, 1}, {17, -1, 1}}}},
    {"a sum that vanishes", 0, 0, {{{0, k14, k14}, {1, -k14, k14}}}},
};
constexpr int64_t kKnownSumCount = sizeof(kKnownSums) / sizeof(kKnownSums[0]);
static_assert(kKnownSumCount % 8 == 0);

// A product of matrices, [m, k] by [n, k], with contiguous rows.
struct CheckShape {
  int64_t m, n, k;

  constexpr int64_t outputs() const { return m * n; }
};
// The known sums: row i of w and of x hold the terms of kKnownSums[i], so its result is element i
// of the diagonal.
constexpr CheckShape kTable{kKnownSumCount, kKnownSumCount, 32};
// Random numbers: several tiles of every shape but the largest, and pipeline stages that end within
// k.
constexpr CheckShape kRandom{24, 40, 160};
constexpr int64_t kMaxInputs = std::max(kTable.n * kTable.k, kRandom.n* kRandom.k);  // n >= m
constexpr int64_t kMaxOutputs = std::max(kTable.outputs(), kRandom.outputs());

// The same products at another place in their tiles: without the first kShiftX rows of x and
// kShiftW rows of w.
constexpr int64_t kShiftX = 3;
constexpr int64_t kShiftW = 8;

// The results of all tile shapes for one CheckShape.
struct TileResults {
  std::vector<float> first;                           // outputs of the first tile
  std::array<uint32_t, kMmaTileCount> differences{};  // number for each other tile, in 16-bit words
};

class ProductChecker {
 public:
  ProductChecker(CudaDevice& device, DType dtype)
      : device_(device), dtype_(dtype), stream_(device.compute_stream()) {}

  absl::Status Allocate();
  absl::Status Check(ArithmeticFindings* findings);

 private:
  absl::Status FillTable(bool partners);
  absl::Status FillRandom();
  // Multiplies without the first rows of x and w. Rows of out are shape.n apart.
  absl::Status RunTile(const CheckShape& shape, int tile, const Buffer& out, int64_t first_x = 0,
                       int64_t first_w = 0);
  // Does it once more, into out_, and counts in *count the words that differ from first_.
  absl::Status CompareTile(const CheckShape& shape, int tile, uint32_t* count, int64_t first_x = 0,
                           int64_t first_w = 0);
  absl::StatusOr<TileResults> RunTiles(const CheckShape& shape);
  absl::StatusOr<std::vector<float>> Outputs(const CheckShape& shape, const Buffer& from);
  absl::StatusOr<std::string> FaultOfZeros(const TileResults& sums);
  absl::StatusOr<std::string> FaultOfPlaces();
  absl::Status Set(const Buffer& buffer, int value) {
    return device_.Check(cudaMemsetAsync(buffer.data(), value, buffer.bytes(), stream_),
                         "cudaMemsetAsync");
  }

  CudaDevice& device_;
  const DType dtype_;
  const cudaStream_t stream_;
  Buffer x_, w_;  // large enough for both shapes
  Buffer first_;  // outputs of the first tile
  Buffer out_;    // outputs of another tile
  Buffer count_;  // number of words in which they differ, by tile
};

absl::Status ProductChecker::Allocate() {
  TLM_RETURN_IF_ERROR(device_.Check(PrepareGemmMma(dtype_), "PrepareGemmMma"));
  return AllocateAll(device_, {{&x_, 2 * kMaxInputs},
                               {&w_, 2 * kMaxInputs},
                               {&first_, 4 * kMaxOutputs},
                               {&out_, 4 * kMaxOutputs},
                               {&count_, 4 * kMmaTileCount}});
}

// Without `partners`, both factors of a product are zero if one of them is.
absl::Status ProductChecker::FillTable(bool partners) {
  std::vector<uint16_t> x(static_cast<size_t>(kTable.m * kTable.k));
  std::vector<uint16_t> w(x.size());
  for (int64_t row = 0; row < kKnownSumCount; ++row) {
    for (const KnownTerm& term : kKnownSums[row].terms) {
      if (term.w == 0.0f && term.x == 0.0f) continue;  // an unused element of the array
      if (!partners && (term.w == 0.0f || term.x == 0.0f)) continue;
      x[static_cast<size_t>(row * kTable.k + term.k)] = Encode(dtype_, term.x);
      w[static_cast<size_t>(row * kTable.k + term.k)] = Encode(dtype_, term.w);
    }
  }
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(x_.data(), x.data(), 2 * x.size()));
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(w_.data(), w.data(), 2 * w.size()));
  // GEMM kernels load weights before earlier kernels have ended, because elsewhere no kernel writes
  // weights. So this waits.
  return device_.Synchronize();
}

absl::Status ProductChecker::FillRandom() {
  const ProbeInputs inputs{.x = x_.data(),
                           .w = w_.data(),
                           .m = kRandom.m,
                           .n = kRandom.n,
                           .k = kRandom.k,
                           .w_stride = kRandom.k};
  TLM_RETURN_IF_ERROR(
      device_.Check(LaunchProbeInputs(inputs, dtype_, stream_), "LaunchProbeInputs"));
  return device_.Synchronize();
}

absl::Status ProductChecker::RunTile(const CheckShape& shape, int tile, const Buffer& out,
                                     int64_t first_x, int64_t first_w) {
  const int64_t m = shape.m - first_x;
  const int64_t n = shape.n - first_w;
  const GemmArgs args{.x = x_.as<uint16_t>() + first_x * shape.k,
                      .x_stride = shape.k,
                      .m = m,
                      .w = w_.as<uint16_t>() + first_w * shape.k,
                      .w_stride = shape.k,
                      .n = n,
                      .k = shape.k,
                      .output = {.out = out.data(), .out_stride = shape.n, .out_float32 = true},
                      .row_tiles = static_cast<int32_t>(CeilDiv(n, kMmaTiles[tile].rows)),
                      .token_tiles = static_cast<int32_t>(CeilDiv(m, kMmaTiles[tile].tokens))};
  // Half as many thread blocks as tiles, so that some continue from one tile to the next.
  const int grid = (args.row_tiles * args.token_tiles + 1) / 2;
  return device_.Check(LaunchGemmMma(args, dtype_, tile, grid, stream_), "LaunchGemmMma");
}

absl::Status ProductChecker::CompareTile(const CheckShape& shape, int tile, uint32_t* count,
                                         int64_t first_x, int64_t first_w) {
  TLM_RETURN_IF_ERROR(Set(out_, 0xff));
  TLM_RETURN_IF_ERROR(RunTile(shape, tile, out_, first_x, first_w));
  const ProbeCompareArgs args{.a = first_.as<float>() + first_x * shape.n + first_w,
                              .b = out_.data(),
                              .rows = shape.m - first_x,
                              .words = 2 * (shape.n - first_w),
                              .a_stride = 2 * shape.n,
                              .b_stride = 2 * shape.n,
                              .differences = count};
  return device_.Check(LaunchProbeCompare(args, stream_), "LaunchProbeCompare");
}

absl::StatusOr<std::vector<float>> ProductChecker::Outputs(const CheckShape& shape,
                                                           const Buffer& from) {
  std::vector<float> outputs(static_cast<size_t>(shape.outputs()));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(outputs.data(), from.data(), 4 * outputs.size()));
  return outputs;
}

absl::StatusOr<TileResults> ProductChecker::RunTiles(const CheckShape& shape) {
  TileResults results;
  TLM_RETURN_IF_ERROR(Set(count_, 0));
  TLM_RETURN_IF_ERROR(RunTile(shape, 0, first_));
  for (int tile = 1; tile < kMmaTileCount; ++tile) {
    TLM_RETURN_IF_ERROR(CompareTile(shape, tile, count_.as<uint32_t>() + tile));
  }
  TLM_ASSIGN_OR_RETURN(results.first, Outputs(shape, first_));
  TLM_RETURN_IF_ERROR(
      device_.CopyToHost(results.differences.data(), count_.data(), sizeof(results.differences)));
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

uint32_t SumBits(const std::vector<float>& outputs, int64_t i) {
  return std::bit_cast<uint32_t>(outputs[static_cast<size_t>(i * kTable.n + i)]);
}

bool IsOf(float KnownSum::*kind, const std::vector<float>& outputs) {
  for (int64_t i = 0; i < kKnownSumCount; ++i) {
    if (SumBits(outputs, i) != std::bit_cast<uint32_t>(kKnownSums[i].*kind)) return false;
  }
  return true;
}

// Requires that the known sums have been computed.
absl::StatusOr<std::string> ProductChecker::FaultOfZeros(const TileResults& sums) {
  TLM_RETURN_IF_ERROR(FillTable(/*partners=*/false));
  TLM_RETURN_IF_ERROR(RunTile(kTable, 0, out_));
  TLM_ASSIGN_OR_RETURN(const std::vector<float> without, Outputs(kTable, out_));
  for (int64_t i = 0; i < kKnownSumCount; ++i) {
    const uint32_t bits = SumBits(sums.first, i);
    const uint32_t expected = SumBits(without, i);
    if (bits == expected) continue;
    return fmt::format("{}: {:08x}, {:08x} beside zero times zero", kKnownSums[i].name, bits,
                       expected);
  }
  return "";
}

// Requires that the random numbers have been multiplied, and that first_ has the first tile's
// outputs.
absl::StatusOr<std::string> ProductChecker::FaultOfPlaces() {
  uint32_t differences = 0;
  TLM_RETURN_IF_ERROR(Set(count_, 0));
  TLM_RETURN_IF_ERROR(CompareTile(kRandom, 0, count_.as<uint32_t>(), kShiftX, kShiftW));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(&differences, count_.data(), sizeof(differences)));
  if (differences == 0) return "";
  return fmt::format("{} words of products differ with their place in a tile", differences);
}

absl::Status ProductChecker::Check(ArithmeticFindings* findings) {
  TLM_RETURN_IF_ERROR(FillTable(/*partners=*/true));
  TLM_ASSIGN_OR_RETURN(const TileResults sums, RunTiles(kTable));
  TLM_ASSIGN_OR_RETURN(const std::string zeros, FaultOfZeros(sums));
  TLM_RETURN_IF_ERROR(FillRandom());
  TLM_ASSIGN_OR_RETURN(const TileResults random, RunTiles(kRandom));
  TLM_ASSIGN_OR_RETURN(const std::string places, FaultOfPlaces());
  for (const TileResults* results : {&sums, &random}) {
    findings->bits.append(reinterpret_cast<const char*>(results->first.data()),
                          4 * results->first.size());
  }
  findings->faults = {zeros, FaultOfTiles(sums), FaultOfTiles(random), places};
  findings->unknown = !IsOf(&KnownSum::hopper, sums.first) && !IsOf(&KnownSum::ampere, sums.first);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProducts(CudaDevice& device, DType dtype, ArithmeticFindings* findings) {
  ProductChecker checker(device, dtype);
  TLM_RETURN_IF_ERROR(checker.Allocate());
  return checker.Check(findings);
}

}  // namespace tlm
