#include "model/ops/cuda/arithmetic_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/base/sha256.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/batch/attention_plan.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/attention/prepare_attention.h"
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
  std::array<KnownTerm, kMaxTerms> terms;
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

// A product of matrices, [m, k] by [n, k], with contiguous rows.
struct CheckShape {
  int64_t m, n, k;

  constexpr int64_t inputs() const { return (m + n) * k; }
  constexpr int64_t outputs() const { return m * n; }
};
// The known sums: row i of w and of x hold the terms of kKnownSums[i], so its result is element i
// of the diagonal.
constexpr CheckShape kTable{kKnownSumCount, kKnownSumCount, 32};
// Random numbers: several tiles of every shape but the largest, and pipeline stages that end within
// k.
constexpr CheckShape kRandom{24, 40, 160};
constexpr int64_t kMaxOutputs = std::max(kTable.outputs(), kRandom.outputs());

// The same products at another place in their tiles: without the first kShiftX rows of x and
// kShiftW rows of w.
constexpr int64_t kShiftX = 3;
constexpr int64_t kShiftW = 8;
constexpr CheckShape kShifted{kRandom.m - kShiftX, kRandom.n - kShiftW, kRandom.k};

using Bits = std::vector<uint16_t>;  // elements of 16 bits

uint16_t Encode(DType dtype, float value) {
  return dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
}

// Divides one device buffer into parts, 256-byte aligned.
class CheckMemory {
 public:
  static absl::StatusOr<CheckMemory> Allocate(CudaDevice& device,
                                              std::initializer_list<size_t> bytes) {
    CheckMemory memory;
    size_t all = 0;
    for (const size_t piece : bytes) {
      memory.begins_.push_back(all);
      all += (piece + kAlignment - 1) / kAlignment * kAlignment;
    }
    TLM_ASSIGN_OR_RETURN(memory.buffer_, device.Allocate(all, MemoryPurpose::kRuntime));
    return memory;
  }
  template <typename T = void>
  T* piece(size_t i) const {
    return reinterpret_cast<T*>(buffer_.as<char>() + begins_[i]);
  }

 private:
  static constexpr size_t kAlignment = 256;
  std::vector<size_t> begins_;
  Buffer buffer_;
};

// --- Products. ---

// The results of all tile shapes for one CheckShape.
struct TileResults {
  std::vector<float> first;                           // outputs of the first tile
  std::array<uint32_t, kMmaTileCount> differences{};  // number for each other tile, in 16-bit words
};

class ProductChecker {
 public:
  static absl::StatusOr<ProductChecker> Create(CudaDevice& device, DType dtype);

  // Appends differences to `faults` and all results to `bits`. Returns whether the arithmetic is
  // unknown.
  absl::StatusOr<bool> Check(std::vector<std::string>* faults, std::string* bits);

 private:
  ProductChecker(CudaDevice& device, DType dtype, CheckMemory memory)
      : device_(device),
        dtype_(dtype),
        stream_(device.compute_stream()),
        memory_(std::move(memory)),
        x_(memory_.piece<uint16_t>(0)),
        w_(memory_.piece<uint16_t>(1)),
        first_(memory_.piece<float>(2)),
        out_(memory_.piece<float>(3)),
        count_(memory_.piece<uint32_t>(4)) {}

  absl::Status FillTable(bool partners);
  absl::Status FillRandom();
  absl::Status RunTile(const CheckShape& shape, int tile, int64_t first_x, int64_t first_w,
                       int64_t out_stride, float* out);
  absl::Status RunTile(const CheckShape& shape, int tile, float* out) {
    return RunTile(shape, tile, 0, 0, shape.n, out);
  }
  absl::Status Set(void* data, int value, size_t bytes) {
    return device_.Check(cudaMemsetAsync(data, value, bytes, stream_), "cudaMemsetAsync");
  }
  // Adds to *count the number of words in which out_ differs from `expected`.
  absl::Status Compare(const CheckShape& shape, const float* expected, int64_t stride,
                       uint32_t* count);
  absl::StatusOr<TileResults> RunTiles(const CheckShape& shape);
  absl::StatusOr<std::vector<float>> Outputs(const CheckShape& shape, const float* from);
  absl::StatusOr<std::string> FaultOfZeros(const TileResults& sums);
  absl::StatusOr<std::string> FaultOfPlaces();

  CudaDevice& device_;
  const DType dtype_;
  const cudaStream_t stream_;
  CheckMemory memory_;
  uint16_t* const x_;  // large enough for both shapes
  uint16_t* const w_;
  float* const first_;     // outputs of the first tile
  float* const out_;       // outputs of another tile
  uint32_t* const count_;  // number of words in which they differ, by tile
};

absl::StatusOr<ProductChecker> ProductChecker::Create(CudaDevice& device, DType dtype) {
  constexpr size_t kInputBytes = 2 * std::max(kTable.inputs(), kRandom.inputs());
  constexpr size_t kOutputBytes = 4 * kMaxOutputs;
  TLM_RETURN_IF_ERROR(device.Check(PrepareGemmMma(dtype), "PrepareGemmMma"));
  TLM_ASSIGN_OR_RETURN(CheckMemory memory,
                       CheckMemory::Allocate(device, {kInputBytes, kInputBytes, kOutputBytes,
                                                      kOutputBytes, 4 * kMmaTileCount}));
  return ProductChecker(device, dtype, std::move(memory));
}

// Without `partners`, both factors of a product are zero if one of them is.
absl::Status ProductChecker::FillTable(bool partners) {
  Bits x(static_cast<size_t>(kTable.m * kTable.k));
  Bits w(x.size());
  for (int64_t row = 0; row < kKnownSumCount; ++row) {
    for (const KnownTerm& term : kKnownSums[row].terms) {
      if (term.w == 0.0f && term.x == 0.0f) continue;  // an unused element of the array
      if (!partners && (term.w == 0.0f || term.x == 0.0f)) continue;
      x[static_cast<size_t>(row * kTable.k + term.k)] = Encode(dtype_, term.x);
      w[static_cast<size_t>(row * kTable.k + term.k)] = Encode(dtype_, term.w);
    }
  }
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(x_, x.data(), 2 * x.size()));
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(w_, w.data(), 2 * w.size()));
  // GEMM kernels load weights before earlier kernels have ended, because elsewhere no kernel writes
  // weights. So this waits.
  return device_.Synchronize();
}

absl::Status ProductChecker::FillRandom() {
  // Half of the sums cancel, which shows every intermediate rounding; half grow, which shows the
  // bits that are lost at the end.
  const ProbeFillArgs x{.data = x_,
                        .rows = kRandom.m,
                        .cols = kRandom.k,
                        .stride = kRandom.k,
                        .seed = 2,
                        .cancelling_rows = 2};
  const ProbeFillArgs w{.data = w_,
                        .rows = kRandom.n,
                        .cols = kRandom.k,
                        .stride = kRandom.k,
                        .seed = 1,
                        .second_half = -1.0f};
  for (const ProbeFillArgs& args : {x, w}) {
    TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeFill(args, dtype_, stream_), "LaunchProbeFill"));
  }
  return device_.Synchronize();
}

absl::Status ProductChecker::RunTile(const CheckShape& shape, int tile, int64_t first_x,
                                     int64_t first_w, int64_t out_stride, float* out) {
  const GemmArgs args{
      .x = x_ + first_x * shape.k,
      .x_stride = shape.k,
      .m = shape.m,
      .w = w_ + first_w * shape.k,
      .w_stride = shape.k,
      .n = shape.n,
      .k = shape.k,
      .output = {.out = out, .out_stride = out_stride, .out_float32 = true},
      .row_tiles = static_cast<int32_t>(CeilDiv(shape.n, kMmaTiles[tile].rows)),
      .token_tiles = static_cast<int32_t>(CeilDiv(shape.m, kMmaTiles[tile].tokens))};
  // Half as many thread blocks as tiles, so that some continue from one tile to the next.
  const int grid = (args.row_tiles * args.token_tiles + 1) / 2;
  return device_.Check(LaunchGemmMma(args, dtype_, tile, grid, stream_), "LaunchGemmMma");
}

absl::Status ProductChecker::Compare(const CheckShape& shape, const float* expected, int64_t stride,
                                     uint32_t* count) {
  return device_.Check(LaunchProbeCompare({.a = expected,
                                           .b = out_,
                                           .rows = shape.m,
                                           .words = 2 * shape.n,
                                           .a_stride = 2 * stride,
                                           .b_stride = 2 * stride,
                                           .differences = count},
                                          stream_),
                       "LaunchProbeCompare");
}

absl::StatusOr<std::vector<float>> ProductChecker::Outputs(const CheckShape& shape,
                                                           const float* from) {
  std::vector<float> outputs(static_cast<size_t>(shape.outputs()));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(outputs.data(), from, sizeof(float) * outputs.size()));
  return outputs;
}

absl::StatusOr<TileResults> ProductChecker::RunTiles(const CheckShape& shape) {
  TileResults results;
  TLM_RETURN_IF_ERROR(Set(count_, 0, sizeof(results.differences)));
  TLM_RETURN_IF_ERROR(RunTile(shape, 0, first_));
  for (int tile = 1; tile < kMmaTileCount; ++tile) {
    TLM_RETURN_IF_ERROR(Set(out_, 0xff, 4 * static_cast<size_t>(shape.outputs())));
    TLM_RETURN_IF_ERROR(RunTile(shape, tile, out_));
    TLM_RETURN_IF_ERROR(Compare(shape, first_, shape.n, count_ + tile));
  }
  TLM_ASSIGN_OR_RETURN(results.first, Outputs(shape, first_));
  TLM_RETURN_IF_ERROR(
      device_.CopyToHost(results.differences.data(), count_, sizeof(results.differences)));
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
  TLM_RETURN_IF_ERROR(Set(count_, 0, sizeof(differences)));
  TLM_RETURN_IF_ERROR(Set(out_, 0xff, 4 * static_cast<size_t>(kRandom.outputs())));
  TLM_RETURN_IF_ERROR(RunTile(kShifted, 0, kShiftX, kShiftW, kRandom.n, out_));
  TLM_RETURN_IF_ERROR(Compare(kShifted, first_ + kShiftX * kRandom.n + kShiftW, kRandom.n, count_));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(&differences, count_, sizeof(differences)));
  if (differences == 0) return "";
  return fmt::format("{} words of products differ with their place in a tile", differences);
}

absl::StatusOr<bool> ProductChecker::Check(std::vector<std::string>* faults, std::string* bits) {
  TLM_RETURN_IF_ERROR(FillTable(/*partners=*/true));
  TLM_ASSIGN_OR_RETURN(const TileResults sums, RunTiles(kTable));
  TLM_ASSIGN_OR_RETURN(std::string zeros, FaultOfZeros(sums));
  TLM_RETURN_IF_ERROR(FillRandom());
  TLM_ASSIGN_OR_RETURN(const TileResults random, RunTiles(kRandom));
  TLM_ASSIGN_OR_RETURN(std::string places, FaultOfPlaces());
  for (const TileResults* results : {&sums, &random}) {
    bits->append(reinterpret_cast<const char*>(results->first.data()),
                 sizeof(float) * results->first.size());
  }
  *faults = {std::move(zeros), FaultOfTiles(sums), FaultOfTiles(random), std::move(places)};
  return !IsOf(&KnownSum::hopper, sums.first) && !IsOf(&KnownSum::ampere, sums.first);
}

// --- Attention. ---

// A sequence; attention is computed for its last tokens. As one run they make a wide unit and a
// narrow one, as single tokens only narrow ones. Some tokens begin a KV tile, others end one.
constexpr int64_t kKeys = 144;
constexpr int64_t kQueries = 20;
constexpr int64_t kQueryHeads = 4;  // with one KV head
constexpr int64_t kTiles = (kKeys + kAttentionTile - 1) / kAttentionTile;
constexpr int64_t kBlocks = 4;  // thread blocks of the grid
constexpr BatchLimits kAttentionLimits{.max_tokens = kQueries,
                                       .max_sequences = kQueries,
                                       .max_logits_rows = 1,
                                       .max_context = kTiles * kAttentionTile};
// With this scale a key's first element is the exponent of its weight, because a query's first
// element is 8.
constexpr float kScale = 0x1.62e43p-4f;  // ln 2 / 8

// Ways to divide the same rows into work.
struct Division {
  const char* name;
  bool alone;          // each token is a sequence of its own in the batch
  int64_t unit_tiles;  // KV tiles per unit
};
constexpr Division kDivisions[] = {
    {"in one run", false, kTiles},
    {"in one run, in cut items", false, 1},
    {"of tokens that come alone", true, kTiles},
    {"of tokens that come alone, in cut items", true, 1},
};
constexpr size_t kDivisionCount = sizeof(kDivisions) / sizeof(kDivisions[0]);

enum class Inputs { kPeaked, kRandom };

class Random {
 public:
  // A magnitude in [2^low, 2^high), with a random sign.
  float Number(int low, int high) {
    const uint64_t bits = bits_();
    const auto fraction = static_cast<uint32_t>(bits) & 0x807fffffu;
    const int exponent = low + static_cast<int>((bits >> 32) % static_cast<uint64_t>(high - low));
    return std::bit_cast<float>(fraction | static_cast<uint32_t>(127 + exponent) << 23);
  }
  int Below(int limit) { return static_cast<int>(bits_() % static_cast<uint64_t>(limit)); }

 private:
  std::mt19937_64 bits_;
};

// [kKeys][kQueryHeads queries, a key, a value][head_dim]. Peaked: the first key of a tile has
// weight 1 and value 0. Of every 16 keys, which are the places of an mma, the last six have weight
// 0 and values far larger than all other terms. The others, with weights of 2^-13 to 2^-10, make up
// the sum.
Bits AttentionInputs(DType dtype, int64_t head_dim, Inputs inputs) {
  Random random;
  Bits bits;
  for (int64_t position = 0; position < kKeys; ++position) {
    const bool peaked = inputs == Inputs::kPeaked;
    const bool first = position % kAttentionTile == 0;
    const bool zero = position % 16 >= 10;
    float exponent = static_cast<float>(-random.Below(8));
    if (peaked) exponent = first ? 0.0f : zero ? -200.0f : exponent / 2 - 10.0f;
    for (int64_t head = 0; head < kQueryHeads; ++head) {
      bits.push_back(Encode(dtype, 8.0f));
      for (int64_t d = 1; d < head_dim; ++d) bits.push_back(Encode(dtype, random.Number(-2, 0)));
    }
    bits.push_back(Encode(dtype, exponent));
    for (int64_t d = 1; d < head_dim; ++d) {
      bits.push_back(Encode(dtype, peaked ? random.Number(-6, -3) : random.Number(-3, 0)));
    }
    for (int64_t d = 0; d < head_dim; ++d) {
      const float value = !peaked ? random.Number(-4, 4)
                          : first ? 0.0f
                          : zero  ? random.Number(13, 14)
                                  : random.Number(-4, 0);
      bits.push_back(Encode(dtype, value));
    }
  }
  return bits;
}

class AttentionChecker {
 public:
  static absl::StatusOr<AttentionChecker> Create(CudaDevice& device,
                                                 const ArithmeticQuestion& question);

  // Appends differences to `faults` and the results to `bits`.
  absl::Status Check(std::vector<std::string>* faults, std::string* bits);

 private:
  AttentionChecker(CudaDevice& device, const ArithmeticQuestion& question)
      : device_(device), question_(question) {}

  AttentionPlanner PlannerOf(const Division& division) const;
  // The block tables of kQueries sequences, all with the same blocks.
  static std::vector<int32_t> Tables();
  absl::Status WriteWork(size_t division);
  absl::Status WritePositions();
  absl::Status StoreInputs(Inputs inputs);
  absl::StatusOr<Bits> Run(size_t division);

  int64_t columns() const { return (kQueryHeads + 2) * question_.head_dim; }
  size_t out_elements() const {
    return static_cast<size_t>(kQueries * kQueryHeads * question_.head_dim);
  }

  CudaDevice& device_;
  const ArithmeticQuestion question_;
  size_t work_bytes_ = 0;  // per division
  std::optional<CheckMemory> memory_;
  uint16_t* qkv_ = nullptr;       // [kKeys, columns()]
  void* cache_ = nullptr;         // kTiles KV blocks
  int32_t* tables_ = nullptr;     // Tables()
  int32_t* positions_ = nullptr;  // [kKeys], and as many zeros
  char* work_ = nullptr;          // the work of each division
  char* scratch_ = nullptr;
  uint16_t* out_ = nullptr;  // [kQueries, kQueryHeads * head_dim]
};

AttentionPlanner AttentionChecker::PlannerOf(const Division& division) const {
  const AttentionGrid grid{
      .mma = true, .blocks = kBlocks, .max_rows = MmaAttentionRows(question_.head_dim)};
  return AttentionPlanner(
      kAttentionLimits,
      {.num_heads = kQueryHeads, .num_kv_heads = 1, .head_dim = question_.head_dim}, grid,
      AttentionPlanner::Options{.unit_tiles = division.unit_tiles});
}

std::vector<int32_t> AttentionChecker::Tables() {
  std::vector<int32_t> tables;
  for (int64_t sequence = 0; sequence < kQueries; ++sequence) {
    for (int32_t block = 0; block < kTiles; ++block) tables.push_back(kTiles - 1 - block);
  }
  return tables;
}

absl::StatusOr<AttentionChecker> AttentionChecker::Create(CudaDevice& device,
                                                          const ArithmeticQuestion& question) {
  AttentionChecker checker(device, question);
  const auto dim = static_cast<size_t>(question.head_dim);
  const size_t row_bytes = question.fp8_cache ? dim + 1 : 2 * dim;
  size_t scratch_bytes = 0;
  size_t ticket_bytes = 0;
  for (const Division& division : kDivisions) {
    const AttentionPlanner planner = checker.PlannerOf(division);
    checker.work_bytes_ = std::max(checker.work_bytes_, (planner.work_bytes() + 63) / 64 * 64);
    scratch_bytes = std::max(scratch_bytes, planner.scratch_bytes());
    ticket_bytes = std::max(ticket_bytes, planner.ticket_bytes());
  }
  const std::vector<int32_t> tables = Tables();
  TLM_ASSIGN_OR_RETURN(
      checker.memory_,
      CheckMemory::Allocate(device, {2 * static_cast<size_t>(kKeys * checker.columns()),
                                     2 * static_cast<size_t>(kTiles * kAttentionTile) * row_bytes,
                                     tables.size() * sizeof(int32_t), 2 * kKeys * sizeof(int32_t),
                                     kDivisionCount * checker.work_bytes_, scratch_bytes,
                                     2 * checker.out_elements()}));
  const CheckMemory& memory = *checker.memory_;
  checker.qkv_ = memory.piece<uint16_t>(0);
  checker.cache_ = memory.piece(1);
  checker.tables_ = memory.piece<int32_t>(2);
  checker.positions_ = memory.piece<int32_t>(3);
  checker.work_ = memory.piece<char>(4);
  checker.scratch_ = memory.piece<char>(5);
  checker.out_ = memory.piece<uint16_t>(6);
  TLM_RETURN_IF_ERROR(
      device.Check(cudaMemsetAsync(checker.scratch_, 0, ticket_bytes, device.compute_stream()),
                   "cudaMemsetAsync"));
  TLM_RETURN_IF_ERROR(
      device.CopyToDevice(checker.tables_, tables.data(), tables.size() * sizeof(int32_t)));
  TLM_RETURN_IF_ERROR(checker.WritePositions());
  for (size_t i = 0; i < kDivisionCount; ++i) TLM_RETURN_IF_ERROR(checker.WriteWork(i));
  return checker;
}

absl::Status AttentionChecker::WritePositions() {
  std::vector<int32_t> positions(2 * kKeys);
  std::iota(positions.begin(), positions.begin() + kKeys, 0);
  return device_.CopyToDevice(positions_, positions.data(), positions.size() * sizeof(int32_t));
}

absl::Status AttentionChecker::WriteWork(size_t division) {
  Batch batch;
  batch.max_blocks = kTiles;
  batch.block_tables = Tables();
  batch.sequences = kQueries;
  for (int32_t i = 0; i < kQueries; ++i) {
    batch.token_ids.push_back(0);
    batch.positions.push_back(static_cast<int32_t>(kKeys - kQueries) + i);
    batch.sequence_of.push_back(kDivisions[division].alone ? i : 0);
  }
  std::vector<AttentionUnit> work(work_bytes_ / sizeof(AttentionUnit));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(work));
  TLM_ASSIGN_OR_RETURN(const size_t used, PlannerOf(kDivisions[division]).Plan(batch, 0, bytes));
  return device_.CopyToDevice(work_ + division * work_bytes_, work.data(), used);
}

// Stores keys and values in the cache; the queries stay in qkv_.
absl::Status AttentionChecker::StoreInputs(Inputs inputs) {
  const Bits bits = AttentionInputs(question_.activations, question_.head_dim, inputs);
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(qkv_, bits.data(), 2 * bits.size()));
  // Kernels read tables and work before earlier ones have ended.
  TLM_RETURN_IF_ERROR(device_.Synchronize());
  const PrepareAttentionArgs args{.qkv = qkv_,
                                  .qkv_stride = columns(),
                                  .num_heads = kQueryHeads,
                                  .num_kv_heads = 1,
                                  .head_dim = static_cast<int32_t>(question_.head_dim),
                                  .positions = positions_,
                                  .table_of = positions_ + kKeys,
                                  .block_tables = tables_,
                                  .cache = cache_,
                                  .tokens = kKeys,
                                  .fp8 = question_.fp8_cache};
  TLM_RETURN_IF_ERROR(
      device_.Check(LaunchPrepareAttention(args, question_.activations, device_.compute_stream()),
                    "LaunchPrepareAttention"));
  // Attention likewise reads a cache from before the batch while earlier kernels run.
  return device_.Synchronize();
}

absl::StatusOr<Bits> AttentionChecker::Run(size_t division) {
  const cudaStream_t stream = device_.compute_stream();
  const AttentionScratch scratch = PlannerOf(kDivisions[division]).Scratch(scratch_);
  const AttentionArgs args{.q = qkv_ + (kKeys - kQueries) * columns(),
                           .q_stride = columns(),
                           .out = out_,
                           .out_stride = kQueryHeads * question_.head_dim,
                           .cache = cache_,
                           .block_tables = tables_,
                           .num_kv_heads = 1,
                           .group = kQueryHeads,
                           .head_dim = static_cast<int32_t>(question_.head_dim),
                           .scale = kScale,
                           .blocks = kBlocks,
                           .work = work_ + division * work_bytes_,
                           .tickets = scratch.tickets,
                           .partial_stats = scratch.partial_stats,
                           .partial_values = scratch.partial_values,
                           .fp8 = question_.fp8_cache};
  Bits out(out_elements());
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaMemsetAsync(out_, 0xff, 2 * out.size(), stream), "cudaMemsetAsync"));
  TLM_RETURN_IF_ERROR(device_.Check(
      LaunchAttention(args, question_.activations, /*mma=*/true, stream), "LaunchAttention"));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(out.data(), out_, 2 * out.size()));
  return out;
}

absl::Status AttentionChecker::Check(std::vector<std::string>* faults, std::string* bits) {
  for (const Inputs inputs : {Inputs::kPeaked, Inputs::kRandom}) {
    TLM_RETURN_IF_ERROR(StoreInputs(inputs));
    TLM_ASSIGN_OR_RETURN(const Bits first, Run(0));
    bits->append(reinterpret_cast<const char*>(first.data()), 2 * first.size());
    for (size_t i = 1; i < kDivisionCount; ++i) {
      TLM_ASSIGN_OR_RETURN(const Bits other, Run(i));
      size_t differences = 0;
      for (size_t e = 0; e < other.size(); ++e) differences += other[e] == first[e] ? 0 : 1;
      if (differences == 0) continue;
      faults->push_back(
          fmt::format("attention of {} scores: {} of {} outputs {} differ from those {}",
                      inputs == Inputs::kPeaked ? "peaked" : "random", differences, other.size(),
                      kDivisions[i].name, kDivisions[0].name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device,
                                                const ArithmeticQuestion& question) {
  ArithmeticCheck check;
  if (question.activations == DType::kF32) return check;
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  std::string bits;
  std::vector<std::string> faults;
  {
    TLM_ASSIGN_OR_RETURN(ProductChecker products,
                         ProductChecker::Create(device, question.activations));
    TLM_ASSIGN_OR_RETURN(check.unknown, products.Check(&faults, &bits));
  }
  if (question.head_dim > 0) {
    TLM_ASSIGN_OR_RETURN(AttentionChecker attention, AttentionChecker::Create(device, question));
    TLM_RETURN_IF_ERROR(attention.Check(&faults, &bits));
  }
  std::erase(faults, "");
  check.fault = fmt::format("{}", fmt::join(faults, "; "));
  constexpr size_t kDigits = 16;
  TLM_ASSIGN_OR_RETURN(check.probe, Sha256Hex(bits));
  check.probe.resize(kDigits);
  return check;
}

}  // namespace tlm
