// GEMM of few rows of x with a matrix in blocks. It reads the matrix only as the blocks' own bytes.
//
// A thread block has six warps. Two multiply. Four convert blocks into tensor-core operands, one
// cell of a strip (32 rows, 256 of k; block_format.h) ahead of the multiplying warps. Phase i, from
// one barrier to the next:
//
//   converters   begin copying cell i + stages - 1 into the ring
//                convert cell i + 1: from the ring to bfloat16 (block_values.h), to operand buffer
//                (i + 1) % 2
//   multipliers  begin copying the part of x for cell i + stages - 1
//                multiply cell i: operand buffer i % 2, x from the ring; 16 rows each
//
// Operands are in shared memory in the order of mma fragments, 16 bytes per lane and mma. Additions
// have the order of gemm_mma.h: an accumulator starts at 0 and takes k ascending by 16.
//
// Bytes: the matrix's strips once, x once per strip (from L2), the outputs.
//
// Estimates of November 2026; nothing here is measured. For one row of x, with two thread blocks on
// an SM of an H200: clocks that an SM takes per cell, and their share of the clocks for the cell's
// 16,384 bytes in bfloat16 (883: 4.3 TB/s are 18.6 bytes a clock at 1.755 GHz).
//
//              instructions of a    clocks,  clocks,              share of
//              cell's warp          by       by issue             bfloat16
//              (per weight)         bytes
//   Q8_0       220 (3.4)            469     1,400: 500 to 590    0.57 to 0.66
//   F8         265 (4.1)            455     1,590: 570 to 660    0.64 to 0.75
//   I8         260 (4.1)            450     1,570: 560 to 650    0.63 to 0.74
//              325 (5.1), long              1,820: 650 to 760    0.74 to 0.86
//   Q4_0       223 (3.5)            248     1,420: 510 to 590    0.57 to 0.67
//   I4         275 (4.3)            230     1,620: 580 to 680    0.66 to 0.77
//              350 (5.5), long              1,930: 690 to 800    0.78 to 0.91
//   Q4_K       314 (4.9)            255     1,780: 640 to 740    0.72 to 0.84
//   Q6_K       319 (5.0)            362     1,800: 640 to 750    0.73 to 0.85
//   Q5_K       360 (5.6)            310     1,970: 700 to 820    0.80 to 0.93
//
//  - "Instructions": executed by a converter, in the code of sm_90a, from the end of its
//    copies to the end of its stores, for 64 weights per lane. "long": for scales of more than 11
//    bits (TakesFast).
//  - "By issue": first the instructions of all warps, 4 (62 + these) + 2 * 140; then the clocks
//  that
//    4 schedulers take at 0.6 to 0.7 instructions a clock each.
//  - The chain of dependent mma of a cell, 16 of 33 clocks, takes 264 clocks per cell with two
//    thread blocks on an SM, and 528 with one, as with matrices of up to 132 strips: a share of at
//    least 0.60.
//
// So the issue rate is the limit, except for matrices with few strips, where the chain is the
// limit. Hence 4 bits take less memory than 8, but not less time. With one thread block per SM a
// converter's path, some 280 to 420 instructions at 0.5 to 0.7 a clock, is about as long as the
// chain, so more converters would only wait for the chain.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "model/ops/cuda/kernels/gemm/block_values.h"
#include "model/ops/cuda/kernels/gemm/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kMultipliers = kStripRows / 16;
constexpr int kConverters = kMaxSpans * kMultipliers;
constexpr int kThreads = (kMultipliers + kConverters) * kWarpLanes;
constexpr int kCellSteps = kCellInputs / kStepInputs;
constexpr int kOperandBytes = kWarpLanes * 16;  // per mma
constexpr int kOperandsBytes = kMultipliers * kCellSteps * kOperandBytes;
constexpr int kTokenPieces = kCellInputs / kRun;

// Constants that follow from the largest number of rows of x and from the weights' low bits.
template <int kMax, int kLowBits>
struct BlockShape {
  static constexpr int kTokens = kMax;
  static constexpr int kStages = kTokens <= 8 && kLowBits == 4 ? 6 : 4;
  static constexpr int kTokenTiles = kTokens / 8;
  static constexpr int kTokenBytes = kTokens * kCellInputs * 2;  // per stage

  // The staging area of the epilogue; see StoreStaged. A strip of a gated matrix has 16 gates and
  // their ups.
  static constexpr int kRows = kStripRows;
  static constexpr int kGates = kGateGroup;
  static constexpr TLM_HOST_DEVICE int At(int token, int row) { return token * (kRows + 4) + row; }
  static constexpr TLM_HOST_DEVICE int TileRow(int /*round*/, int row) { return row; }
  static constexpr int kSumBytes = kTokens * (kRows + 4) * 4;

  static constexpr int SharedBytes(int cell_bytes) {
    return 2 * kOperandsBytes + kSumBytes + kStages * (cell_bytes + kTokenBytes);
  }
};

// Counts that follow from a matrix's inputs and from the strips of this thread block, which are
// blockIdx.x, blockIdx.x + gridDim.x, ...
struct CellCounts {
  int cells;       // cells per strip
  int last_spans;  // spans in a strip's last cell
  int all_cells;   // cells of all strips of this thread block

  TLM_DEVICE explicit CellCounts(const GemmBlocksArgs& args) {
    cells = (args.matrix.spans + kMaxSpans - 1) / kMaxSpans;
    last_spans = args.matrix.spans - (cells - 1) * kMaxSpans;
    const int grid = static_cast<int>(gridDim.x);
    const int after = args.product.row_tiles - static_cast<int>(blockIdx.x);
    all_cells = after <= 0 ? 0 : (after + grid - 1) / grid * cells;
  }
};

// Walks the cells of a thread block's strips.
struct CellCursor {
  int left;      // cells of the thread block from here on
  int in_strip;  // cells of the strip from here on

  TLM_DEVICE explicit CellCursor(const CellCounts& counts)
      : left(counts.all_cells), in_strip(counts.cells) {}
  TLM_DEVICE bool Done() const { return left <= 0; }
  TLM_DEVICE bool IsLast() const { return in_strip == 1; }
  TLM_DEVICE int Spans(const CellCounts& counts) const {
    return IsLast() ? counts.last_spans : kMaxSpans;
  }
  TLM_DEVICE void Advance(const CellCounts& counts) {
    --left;
    in_strip = IsLast() ? counts.cells : in_strip - 1;
  }
};

// `format` is args.matrix.format, whose fields are mostly constants; kCellBytes is the largest size
// of a cell.
template <typename Shape, int kCellBytes>
struct BlockRing {
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kCopyBytes = kConverters * kWarpLanes * 16;

  const GemmBlocksArgs& args;
  const StripFormat& format;
  const CellCounts counts{args};
  const int cell_bytes = format.cell_bytes(kMaxSpans);
  // Read from lane 0, so that the compiler sees that it is uniform in the warp.
  const int warp = Shuffle(static_cast<int>(threadIdx.x) / kWarpLanes, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const bool multiplies = warp < kMultipliers;

  TLM_DEVICE unsigned char* Operands(int buffer) const {
    return SharedMemory<unsigned char>() + buffer * kOperandsBytes;
  }
  TLM_DEVICE float* Sums() const {
    return reinterpret_cast<float*>(SharedMemory<unsigned char>() + 2 * kOperandsBytes);
  }
  TLM_DEVICE unsigned char* Cell(int slot) const {
    return SharedMemory<unsigned char>() + 2 * kOperandsBytes + Shape::kSumBytes +
           slot * (cell_bytes + Shape::kTokenBytes);
  }
  TLM_DEVICE unsigned char* Tokens(int slot) const { return Cell(slot) + cell_bytes; }

  // The source of a thread's copies: blocks if it converts, else x.
  struct Source : CellCursor {
    const unsigned char* from;
    int64_t step;  // to the next cell
    int64_t wrap;  // from a strip's end to the next strip of this thread block

    TLM_DEVICE void Advance(const CellCounts& all) {
      from += step;
      if (IsLast()) from += wrap;
      CellCursor::Advance(all);
    }
  };
  TLM_DEVICE Source FirstSource() const {
    const GemmArgs& op = args.product;
    if (multiplies) {
      constexpr int kStep = kCellInputs * 2;
      return {CellCursor(counts),
              static_cast<const unsigned char*>(op.x) + (warp * op.x_stride + lane * kRun) * 2,
              kStep, -int64_t{counts.cells} * kStep};
    }
    const int place = ((warp - kMultipliers) * kWarpLanes + lane) * 16;
    return {CellCursor(counts), args.matrix.data + blockIdx.x * args.matrix.strip_bytes + place,
            cell_bytes, gridDim.x * args.matrix.strip_bytes - int64_t{counts.cells} * cell_bytes};
  }
  // Begins a stage's copies.
  TLM_DEVICE void Copy(int slot, const Source& source) const {
    if (source.Done()) return;
    if (multiplies) {
      CopyTokens(slot, source);
    } else {
      CopyCell(slot, source);
    }
  }
  TLM_DEVICE void CopyCell(int slot, const Source& source) const {
    const int place = ((warp - kMultipliers) * kWarpLanes + lane) * 16;
    unsigned char* const to = Cell(slot) + place;
    const int bytes =
        (source.Spans(counts) < kMaxSpans ? format.cell_bytes(1) : cell_bytes) - place;
#pragma unroll
    for (int i = 0; i < kCellBytes; i += kCopyBytes) {
      if (i < bytes) CopyAsync16(to + i, source.from + i);
    }
  }
  // Prefetches to L2 the data after the first kStages - 1 cells of the thread block's first strip.
  TLM_DEVICE void PrefetchCells() const {
    constexpr int kBytes = 1024;  // per thread and instruction
    const int64_t copied = int64_t{Shape::kStages - 1} * cell_bytes;
    const int64_t left = args.matrix.strip_bytes - copied;
    const int64_t share = kPrefetchBytes / gridDim.x / kBytes * kBytes;
    const int64_t bytes = left < share ? left : share;
    const unsigned char* const from =
        args.matrix.data + blockIdx.x * args.matrix.strip_bytes + copied;
#pragma unroll 1
    for (int64_t at = int64_t{threadIdx.x} * kBytes; at < bytes; at += kThreads * kBytes) {
      PrefetchToL2(from + at, bytes - at < kBytes ? static_cast<int>(bytes - at) : kBytes);
    }
  }
  // Zeroes, in every stage, the missing rows of x.
  TLM_DEVICE void ClearTokens() const {
    const int exist = static_cast<int>(args.product.m) * kTokenPieces;
#pragma unroll 1
    for (int slot = 0; slot < Shape::kStages; ++slot) {
#pragma unroll 1
      for (int i = exist + static_cast<int>(threadIdx.x); i < kTokens * kTokenPieces;
           i += kThreads) {
        StoreQuad(Tokens(slot) + i * 16, {});
      }
    }
  }
  // Copies a warp's rows, one piece per lane and row. Pieces are swizzled: piece c of row r is at c
  // ^ (r % 8).
  TLM_DEVICE void CopyTokens(int slot, const Source& source) const {
    static_assert(kTokenPieces == kWarpLanes);
    const GemmArgs& op = args.product;
    const bool exists =
        (counts.cells - source.in_strip) * kCellInputs + lane * kRun < args.matrix.k;
    unsigned char* const to = Tokens(slot);
#pragma unroll
    for (int first = 0; first < kTokens; first += kMultipliers) {
      const int row = first + warp;
      if (row >= op.m) break;
      CopyAsync16(to + (row * kTokenPieces + (lane ^ row % 8)) * 16,
                  exists ? source.from + first * op.x_stride * 2 : op.x, exists);
    }
  }

  // Converts this warp's part of the cell in `slot`: 16 rows, eight steps.
  TLM_DEVICE void Convert(int slot, int spans, int buffer) const {
    const int converter = warp - kMultipliers;
    const int rows = converter % kMultipliers;
    const int span = converter / kMultipliers;
    if (span >= spans) return;
    const unsigned char* const cell = Cell(slot);
    const int upper = rows * 16 + lane / kStepLanes;
    unsigned char* const to =
        Operands(buffer) + (rows * kCellSteps + span * kSpanSteps) * kOperandBytes + lane * 16;
    SpanShare<2> share;
    share.Load(format, cell, spans, span, upper, 8, lane % kStepLanes);
    share.Convert(format, lane, [to](int unit, const uint32_t(&pairs)[2][2][2]) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        StoreQuad(to + (unit * 2 + step) * kOperandBytes,
                  {{pairs[0][step][0], pairs[1][step][0], pairs[0][step][1], pairs[1][step][1]}});
      }
    });
  }

  // Adds a cell's products to this warp's sums.
  TLM_DEVICE void Multiply(int slot, int spans, int buffer,
                           float (&sums)[Shape::kTokenTiles][4]) const {
    const unsigned char* operands =
        Operands(buffer) + warp * kCellSteps * kOperandBytes + lane * 16;
    // The swizzle permutes the eight pieces of 64 inputs among themselves.
    const unsigned char* tokens[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      tokens[i] = Tokens(slot) + (lane % 8 * kTokenPieces + ((4 * i + lane / 8) ^ lane % 8)) * 16;
    }
#pragma unroll 1
    for (int span = 0; span < spans; ++span) {
#pragma unroll
      for (int pair = 0; pair < kSpanSteps / 2; ++pair) {
        uint32_t x[Shape::kTokenTiles][4];
#pragma unroll
        for (int j = 0; j < Shape::kTokenTiles; ++j) {
          LoadMatrices(x[j], tokens[pair % 2] + (j * 8 * kTokenPieces + pair / 2 * 8) * 16);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Quad w = LoadQuad(operands + (pair * 2 + half) * kOperandBytes);
#pragma unroll
          for (int j = 0; j < Shape::kTokenTiles; ++j) {
            const uint32_t pieces[2] = {x[j][half * 2], x[j][half * 2 + 1]};
            MultiplyAdd<Bf16>(sums[j], w.word, pieces);
          }
        }
      }
      operands += kSpanSteps * kOperandBytes;
      tokens[0] += kSpanInputs * 2;
      tokens[1] += kSpanInputs * 2;
    }
  }

  // Writes this warp's sums of strip `strip` to the staging area. In a gated matrix the last strip
  // may have fewer than 16 gates, and their ups follow directly.
  TLM_DEVICE void Stage(int strip, const float (&sums)[Shape::kTokenTiles][4]) const {
    const int upper = warp * 16 + lane / kStepLanes;
    const int left = static_cast<int>(args.product.n) - strip * kStripRows;
    const int gates = args.product.gated && left < kStripRows ? left / 2 : kGateGroup;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      int row = upper + c / 2 * 8;
      if (row >= 2 * gates) continue;
      if (row >= gates) row += kGateGroup - gates;
#pragma unroll
      for (int j = 0; j < Shape::kTokenTiles; ++j) {
        Sums()[Shape::At(j * 8 + lane % kStepLanes * 2 + c % 2, row)] = sums[j][c];
      }
    }
  }
};

// The format of this kind with the largest cells: groups of 32 inputs.
constexpr TLM_HOST_DEVICE StripFormat LargestOf(const StripKind& kind) {
  return FormatOfKind(kind, 5);
}

template <int kKind, int kTokens>
TLM_KERNEL __launch_bounds__(kThreads, 2) GemmBlocks(const GemmBlocksArgs args) {
  constexpr StripKind kFields = kStripKinds[kKind];
  using Shape = BlockShape<kTokens, kFields.low_bits>;
  constexpr int kStages = Shape::kStages;
  LetNextStart();
  const StripFormat format = FormatOfKind(kFields, args.matrix.format.group_log2);
  constexpr int kCellBytes = LargestOf(kFields).cell_bytes(kMaxSpans);
  const BlockRing<Shape, kCellBytes> ring{args, format};
  // Copies the weights of the first stages before the previous kernels have ended, because no
  // kernel writes them. They belong to the first cp.async group.
  auto source = ring.FirstSource();
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (!ring.multiplies) {
      ring.Copy(stage, source);
      source.Advance(ring.counts);
    }
  }
  if constexpr (kTokens <= kPrefetchTokens) ring.PrefetchCells();
  ring.ClearTokens();
  WaitForPrevious();
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (ring.multiplies) {
      ring.Copy(stage, source);
      source.Advance(ring.counts);
    }
    CopyAsyncCommit();
  }
  CellCursor at(ring.counts);    // the cell to multiply
  CellCursor next(ring.counts);  // the cell to convert
  int strip = static_cast<int>(blockIdx.x);
  int slot = kStages - 1;
  int next_slot = 0;
  float sums[Shape::kTokenTiles][4] = {};
#pragma unroll 1
  for (int phase = -1; !at.Done(); ++phase) {
    CopyAsyncWait<kStages - 3>();
    SyncThreads();
    if (phase >= 0) {
      ring.Copy(slot == 0 ? kStages - 1 : slot - 1, source);
      CopyAsyncCommit();
      source.Advance(ring.counts);
    }
    if (!ring.multiplies) {
      if (!next.Done()) ring.Convert(next_slot, next.Spans(ring.counts), (phase + 1) % 2);
    } else if (phase >= 0) {
      ring.Multiply(slot, at.Spans(ring.counts), phase % 2, sums);
    }
    slot = next_slot;
    next_slot = next_slot + 1 == kStages ? 0 : next_slot + 1;
    next.Advance(ring.counts);
    if (phase < 0) continue;
    if (at.IsLast()) {
      if (ring.multiplies) {
        ring.Stage(strip, sums);
#pragma unroll
        for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[j][c] = 0.0f;
        }
      }
      SyncThreads();
      StoreStaged<Bf16, Shape, kThreads>(
          args.product,
          {.sums = ring.Sums(), .first_row = strip * kStripRows, .first_token = 0, .round = 0});
      strip += static_cast<int>(gridDim.x);
    }
    at.Advance(ring.counts);
  }
}

using Kernel = void (*)(GemmBlocksArgs);
using Kernels = std::array<Kernel, kBlockGemmShapes>;
template <int... kKinds>
constexpr std::array<Kernels, kStripKindCount> KernelsOf(
    std::integer_sequence<int, kKinds...> /*kinds*/) {
  return {Kernels{GemmBlocks<kKinds, kBlockGemmTokens[0]>, GemmBlocks<kKinds, kBlockGemmTokens[1]>,
                  GemmBlocks<kKinds, kBlockGemmTokens[2]>}...};
}
constexpr auto kKernels = KernelsOf(std::make_integer_sequence<int, kStripKindCount>());

template <int kTokens>
int SharedBytes(bool bytes, int cell) {
  return bytes ? BlockShape<kTokens, 8>::SharedBytes(cell)
               : BlockShape<kTokens, 4>::SharedBytes(cell);
}

}  // namespace

size_t GemmBlocksSharedBytes(const StripFormat& format, int shape) {
  const int cell = format.cell_bytes(kMaxSpans);
  const bool bytes = format.low_bits == 8;
  static_assert(kBlockGemmShapes == 3);
  return static_cast<size_t>(shape == 0   ? SharedBytes<kBlockGemmTokens[0]>(bytes, cell)
                             : shape == 1 ? SharedBytes<kBlockGemmTokens[1]>(bytes, cell)
                                          : SharedBytes<kBlockGemmTokens[2]>(bytes, cell));
}

cudaError_t PrepareGemmBlocks(const StripFormat& format, size_t most_shared_bytes) {
  const int kind = KindOf(format);
  if (kind == kStripKindCount) return cudaErrorInvalidValue;
  for (int shape = 0; shape < kBlockGemmShapes; ++shape) {
    const size_t bytes =
        GemmBlocksSharedBytes(LargestOf(kStripKinds[static_cast<size_t>(kind)]), shape);
    const cudaError_t error =
        AllowSharedMemory(kKernels[static_cast<size_t>(kind)][static_cast<size_t>(shape)],
                          std::min(bytes, most_shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchGemmBlocks(const GemmBlocksArgs& args, int shape, int grid, cudaStream_t stream) {
  const int kind = KindOf(args.matrix.format);
  if (kind == kStripKindCount) return cudaErrorInvalidValue;
  const LaunchShape launch{
      .grid = dim3(static_cast<unsigned>(grid)),
      .block = dim3(kThreads),
      .shared_bytes = GemmBlocksSharedBytes(args.matrix.format, shape),
  };
  return Launch(kKernels[static_cast<size_t>(kind)][static_cast<size_t>(shape)], launch, stream,
                args);
}

}  // namespace tlm
