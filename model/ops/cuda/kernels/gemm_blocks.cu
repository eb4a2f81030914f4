// Products of few rows with a matrix in blocks, whose bytes are all that is read of it.
//
// Two warps multiply, four turn blocks into the operands of the tensor cores, one cell of a strip
// (32 rows, 256 of k; block_format.h) ahead of them. In phase i of a block, between two barriers:
//
//   all threads  begin copying cell i + stages - 1 and its part of x, into the ring
//   converters   cell i + 1: ring, elements in float32, bfloat16, operands of buffer (i + 1) % 2
//   multipliers  cell i: operands of buffer i % 2, x from the ring; 16 rows each
//
// Operands lie in shared memory as lanes hold them, 16 bytes a lane and mma. The sums are those of
// gemm_mma.h: an accumulator takes k ascending by 16, from 0.
//
// Bytes: the matrix's strips once, x once for each strip (from L2), the outputs. Estimated limits
// of a phase: the chain of a cell, 16 steps of 33 cycles; the converters, some 400 instructions
// each a cell, of which two blocks an SM issue 800 a scheduler: with 4 bits 10 bytes a cycle and
// SM, 2.4 TB/s of an H200's 4.3; with 8 bits 4.5 TB/s.
#include <algorithm>
#include <cstddef>

#include "model/ops/cuda/kernels/block_values.h"
#include "model/ops/cuda/kernels/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm_tiles.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kMultipliers = kStripRows / 16;
constexpr int kConverters = kMostSpans * kMultipliers;
constexpr int kThreads = (kMultipliers + kConverters) * kWarpLanes;
constexpr int kCellSteps = kCellInputs / kStepInputs;
constexpr int kOperandBytes = kWarpLanes * 16;  // of an mma
constexpr int kOperandsBytes = kMultipliers * kCellSteps * kOperandBytes;
constexpr int kTokenPieces = kCellInputs / kRun;

// What follows from the most rows of x, and the low bits of the weights.
template <int kMost, int kLowBits>
struct BlockShape {
  static constexpr int kTokens = kMost;
  static constexpr int kStages = kTokens <= 8 && kLowBits == 4 ? 6 : 4;
  static constexpr int kTokenTiles = kTokens / 8;
  static constexpr int kTokenBytes = kTokens * kCellInputs * 2;  // of a stage

  // Sums on their way to outputs; see StoreStaged. A strip of a gated matrix has 16 gates and their
  // ups.
  static constexpr int kRows = kStripRows;
  static constexpr int kGates = kGateGroup;
  static constexpr TLM_HOST_DEVICE int At(int token, int row) { return token * (kRows + 4) + row; }
  static constexpr TLM_HOST_DEVICE int TileRow(int /*round*/, int row) { return row; }
  static constexpr int kSumBytes = kTokens * (kRows + 4) * 4;

  static constexpr int SharedBytes(int cell_bytes) {
    return 2 * kOperandsBytes + kSumBytes + kStages * (cell_bytes + kTokenBytes);
  }
};

// Walks the cells of a block's strips: blockIdx.x, + gridDim.x, ...
struct CellCursor {
  int strip = static_cast<int>(blockIdx.x);
  int cell = 0;

  TLM_DEVICE bool Done(const GemmBlocksArgs& args) const { return strip >= args.product.row_tiles; }
  TLM_DEVICE int Spans(const GemmBlocksArgs& args) const {
    const int left = args.matrix.spans - cell * kMostSpans;
    return left < kMostSpans ? left : kMostSpans;
  }
  TLM_DEVICE bool IsLast(const GemmBlocksArgs& args) const {
    return (cell + 1) * kMostSpans >= args.matrix.spans;
  }
  TLM_DEVICE void Advance(const GemmBlocksArgs& args) {
    if (!IsLast(args)) {
      ++cell;
    } else {
      cell = 0;
      strip += static_cast<int>(gridDim.x);
    }
  }
};

// `format`: args.matrix.format, with what is constant; kCellBytes: the most that a cell has.
template <typename Shape, int kCellBytes>
struct BlockRing {
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kCopyBytes = kConverters * kWarpLanes * 16;

  const GemmBlocksArgs& args;
  const StripFormat& format;
  const int cell_bytes = format.cell_bytes(kMostSpans);
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
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

  // Begins copies of a thread's part of a cell: of the blocks if it converts, else of x.
  TLM_DEVICE void Copy(int slot, const CellCursor& at) const {
    if (at.Done(args)) return;
    if (multiplies) {
      CopyTokens(slot, at);
    } else {
      CopyCell(slot, at);
    }
  }
  TLM_DEVICE void CopyCell(int slot, const CellCursor& at) const {
    const int place = ((warp - kMultipliers) * kWarpLanes + lane) * 16;
    const unsigned char* const from = args.matrix.data + at.strip * args.matrix.strip_bytes +
                                      (int64_t{at.cell} * cell_bytes + place);
    unsigned char* const to = Cell(slot) + place;
    const int bytes = format.cell_bytes(at.Spans(args)) - place;
#pragma unroll
    for (int i = 0; i < kCellBytes; i += kCopyBytes) {
      if (i < bytes) CopyAsync16(to + i, from + i);
    }
  }
  // Asks for what follows the first kStages - 1 cells of the block's first strip to be brought to
  // L2.
  TLM_DEVICE void PrefetchCells() const {
    constexpr int kBytes = 1024;  // a thread's
    const int64_t copied = int64_t{Shape::kStages - 1} * cell_bytes;
    const int64_t left = args.matrix.strip_bytes - copied;
    const int64_t share = kPrefetchBytes / gridDim.x / kBytes * kBytes;
    const int64_t bytes = left < share ? left : share;
    const unsigned char* const from =
        args.matrix.data + blockIdx.x * args.matrix.strip_bytes + copied;
    for (int64_t at = int64_t{threadIdx.x} * kBytes; at < bytes; at += kThreads * kBytes) {
      PrefetchToL2(from + at, bytes - at < kBytes ? static_cast<int>(bytes - at) : kBytes);
    }
  }
  // Rows of x that do not exist are zeros in every stage.
  TLM_DEVICE void ClearTokens() const {
    const int exist = static_cast<int>(args.product.m) * kTokenPieces;
    for (int slot = 0; slot < Shape::kStages; ++slot) {
      for (int i = exist + static_cast<int>(threadIdx.x); i < kTokens * kTokenPieces;
           i += kThreads) {
        StoreQuad(Tokens(slot) + i * 16, {});
      }
    }
  }
  // A warp's rows, a lane's piece of each. Pieces are swizzled: piece c of row r stands at
  // c ^ (r % 8).
  TLM_DEVICE void CopyTokens(int slot, const CellCursor& at) const {
    static_assert(kTokenPieces == kWarpLanes);
    const GemmArgs& op = args.product;
    const int input = at.cell * kCellInputs + lane * kRun;
    const bool exists = input < args.matrix.k;
    const auto* const from = static_cast<const uint16_t*>(op.x) + (exists ? input : 0);
#pragma unroll
    for (int first = 0; first < kTokens; first += kMultipliers) {
      const int row = first + warp;
      if (row >= op.m) break;
      CopyAsync16(Tokens(slot) + (row * kTokenPieces + (lane ^ row % 8)) * 16,
                  from + row * op.x_stride, exists);
    }
  }

  // A converter's part of the cell in `slot`: of 16 rows, eight steps.
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

  // Adds a cell's products to a multiplier's sums.
  TLM_DEVICE void Multiply(int slot, int spans, int buffer,
                           float (&sums)[Shape::kTokenTiles][4]) const {
    const unsigned char* operands =
        Operands(buffer) + warp * kCellSteps * kOperandBytes + lane * 16;
    // Of the pieces of 64 inputs, the swizzle moves eight among themselves.
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

  // Writes a multiplier's sums of strip `strip` to where the epilogue expects them. Of a gated
  // matrix the last strip may have fewer gates than 16, which their ups follow at once.
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

template <int kLowBits, int kHighBits, BlockScales kScales, int kTokens>
TLM_KERNEL __launch_bounds__(kThreads, 2) GemmBlocks(const GemmBlocksArgs args) {
  using Shape = BlockShape<kTokens, kLowBits>;
  constexpr int kStages = Shape::kStages;
  LetNextStart();
  const StripFormat format =
      StripFormatOf(kLowBits, kHighBits, kScales, false, args.matrix.format.group_log2);
  constexpr int kCellBytes =
      StripFormatOf(kLowBits, kHighBits, kScales, false, 5).cell_bytes(kMostSpans);
  const BlockRing<Shape, kCellBytes> ring{args, format};
  // The weights of the first stages, which no kernel writes, before the kernels before have ended;
  // they are part of the first group of copies.
  CellCursor copied;
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (!ring.multiplies) ring.Copy(stage, copied);
    copied.Advance(args);
  }
  if constexpr (kTokens <= kPrefetchTokens) ring.PrefetchCells();
  ring.ClearTokens();
  WaitForPrevious();
  CellCursor at;
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (ring.multiplies) ring.Copy(stage, at);
    CopyAsyncCommit();
    at.Advance(args);
  }
  at = CellCursor();  // of what is multiplied, and what is converted
  CellCursor next;
  int slot = kStages - 1;
  int next_slot = 0;
  float sums[Shape::kTokenTiles][4] = {};
#pragma unroll 1
  for (int phase = -1; !at.Done(args); ++phase) {
    CopyAsyncWait<kStages - 3>();
    SyncThreads();
    if (phase >= 0) {
      const int free = slot == 0 ? kStages - 1 : slot - 1;
      ring.Copy(free, copied);
      CopyAsyncCommit();
      copied.Advance(args);
    }
    if (!ring.multiplies) {
      if (!next.Done(args)) ring.Convert(next_slot, next.Spans(args), (phase + 1) % 2);
    } else if (phase >= 0) {
      ring.Multiply(slot, at.Spans(args), phase % 2, sums);
    }
    slot = next_slot;
    next_slot = next_slot + 1 == kStages ? 0 : next_slot + 1;
    next.Advance(args);
    if (phase < 0) continue;
    if (at.IsLast(args)) {
      if (ring.multiplies) {
        ring.Stage(at.strip, sums);
#pragma unroll
        for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[j][c] = 0.0f;
        }
      }
      SyncThreads();
      StoreStaged<Bf16, Shape, kThreads>(
          args.product,
          {.sums = ring.Sums(), .first_row = at.strip * kStripRows, .first_token = 0, .round = 0});
    }
    at.Advance(args);
  }
}

struct Instance {
  int low_bits;
  int high_bits;
  BlockScales scales;
  void (*kernels[kBlockGemmShapes])(GemmBlocksArgs);
};
template <int kLowBits, int kHighBits, BlockScales kScales>
constexpr Instance kOf = {kLowBits,
                          kHighBits,
                          kScales,
                          {GemmBlocks<kLowBits, kHighBits, kScales, kBlockGemmTokens[0]>,
                           GemmBlocks<kLowBits, kHighBits, kScales, kBlockGemmTokens[1]>,
                           GemmBlocks<kLowBits, kHighBits, kScales, kBlockGemmTokens[2]>}};

constexpr Instance kInstances[] = {
    kOf<8, 0, BlockScales::kHalf>,           // Q8_0
    kOf<8, 0, BlockScales::kFloat>,          // I8
    kOf<8, 0, BlockScales::kFloatElements>,  // F8
    kOf<4, 0, BlockScales::kHalf>,           // Q4_0
    kOf<4, 0, BlockScales::kFactorMin>,      // Q4_K
    kOf<4, 0, BlockScales::kFloat>,          // I4
    kOf<4, 1, BlockScales::kFactorMin>,      // Q5_K
    kOf<4, 2, BlockScales::kTwoFactors>,     // Q6_K
};

const Instance* Find(const StripFormat& format) {
  if (format.has_values) return nullptr;
  for (const Instance& instance : kInstances) {
    if (instance.low_bits == format.low_bits && instance.high_bits == format.high_bits &&
        instance.scales == format.scales) {
      return &instance;
    }
  }
  return nullptr;
}

template <int kTokens>
int SharedBytes(bool bytes, int cell) {
  return bytes ? BlockShape<kTokens, 8>::SharedBytes(cell)
               : BlockShape<kTokens, 4>::SharedBytes(cell);
}

// The most that a format of these bits takes: groups of 32.
StripFormat Largest(const Instance& instance) {
  return StripFormatOf(instance.low_bits, instance.high_bits, instance.scales, false, 5);
}

}  // namespace

bool HasGemmBlocks(const StripFormat& format) { return Find(format) != nullptr; }

size_t GemmBlocksSharedBytes(const StripFormat& format, int shape) {
  const int cell = format.cell_bytes(kMostSpans);
  const bool bytes = format.low_bits == 8;
  static_assert(kBlockGemmShapes == 3);
  return static_cast<size_t>(shape == 0   ? SharedBytes<kBlockGemmTokens[0]>(bytes, cell)
                             : shape == 1 ? SharedBytes<kBlockGemmTokens[1]>(bytes, cell)
                                          : SharedBytes<kBlockGemmTokens[2]>(bytes, cell));
}

cudaError_t PrepareGemmBlocks(size_t most_shared_bytes) {
  for (const Instance& instance : kInstances) {
    for (int shape = 0; shape < kBlockGemmShapes; ++shape) {
      const size_t bytes = GemmBlocksSharedBytes(Largest(instance), shape);
      const cudaError_t error =
          AllowSharedMemory(instance.kernels[shape], std::min(bytes, most_shared_bytes));
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchGemmBlocks(const GemmBlocksArgs& args, int shape, int grid, cudaStream_t stream) {
  const Instance* const instance = Find(args.matrix.format);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const LaunchShape launch{
      .grid = dim3(static_cast<unsigned>(grid)),
      .block = dim3(kThreads),
      .shared_bytes = GemmBlocksSharedBytes(args.matrix.format, shape),
  };
  return Launch(instance->kernels[shape], launch, stream, args);
}

}  // namespace tlm
