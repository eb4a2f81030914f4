#include <cstdint>

#include "model/ops/cuda/kernels/gemm/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kPieceBytes = 16;

struct SimtArgs {
  GemmArgs op;
  bool wide;  // x is moved in 16-byte accesses
};

template <typename T, int kTile>
struct SimtShape {
  static constexpr int kRows = kSimtTiles[kTile].rows;
  static constexpr int kTokens = kSimtTiles[kTile].tokens;
  static constexpr int kRowThreads = kSimtTiles[kTile].row_threads;
  static constexpr int kTokenThreads = kGemmThreads / kRowThreads;
  static constexpr int kStages = kSimtTiles[kTile].stages;
  static constexpr int kRowSums = kRows / kRowThreads;  // per thread, along rows
  static constexpr int kTokenSums = kTokens / kTokenThreads;
  static constexpr int kUnroll = kRowSums * kTokenSums > 4 ? 1 : 4;  // for the loop over pieces
  static constexpr int kElements = kPieceBytes / static_cast<int>(sizeof(T));  // per piece
  static constexpr int kPieces = kSimtTiles[kTile].row_bytes / kPieceBytes;    // per row
  static constexpr int kPitch = kSimtTiles[kTile].row_bytes + kPieceBytes;
  static constexpr int kStageBytes = kSimtTiles[kTile].stage_bytes();
  static constexpr int kStageK = kPieces * kElements;

  // The staging area of the epilogue reuses the stages' memory.
  static constexpr int kGates = kGateGroup;
  static constexpr TLM_HOST_DEVICE int At(int token, int row) { return token * (kRows + 4) + row; }
  static constexpr TLM_HOST_DEVICE int TileRow(int /*round*/, int row) { return row; }
  static_assert(kTokens * (kRows + 4) * 4 <= kSimtTiles[kTile].shared_bytes());

  static_assert(kRowSums * kRowThreads == kRows && kTokenSums * kTokenThreads == kTokens);
  static_assert(kRows % (2 * kGateGroup) == 0);
};

// Element i of a piece, as stored.
TLM_DEVICE float Element(const Quad& piece, int i, float) { return FloatOfBits(piece.word[i]); }
template <typename T>
TLM_DEVICE float Element(const Quad& piece, int i, T) {
  return ToFloat(T{static_cast<uint16_t>(piece.word[i / 2] >> (16 * (i % 2)))});
}

template <typename T, int kTile>
struct SimtBlock {
  using Shape = SimtShape<T, kTile>;

  const SimtArgs& args;
  int row_tile;
  int token_tile;

  TLM_DEVICE explicit SimtBlock(const SimtArgs& a)
      : args(a),
        row_tile(static_cast<int>(blockIdx.x) / a.op.token_tiles),
        token_tile(static_cast<int>(blockIdx.x) % a.op.token_tiles) {}

  TLM_DEVICE unsigned char* Row(int slot, int row) const {
    return SharedMemory<unsigned char>() + slot * Shape::kStageBytes + row * Shape::kPitch;
  }

  // Returns the stored row of the matrix at row `place` of the tile; -1: no row.
  TLM_DEVICE int64_t WeightRow(int place) const {
    const int64_t stored = int64_t{row_tile} * Shape::kRows + place;
    if (args.op.gated) {
      constexpr int kPlaces = 2 * kGateGroup;
      return GatedRow(args.op.n, stored / kPlaces, static_cast<int>(stored % kPlaces));
    }
    return stored < args.op.n ? stored : -1;
  }

  // Begins copying the weights of the stage at `k`; zeros for weights that do not exist.
  TLM_DEVICE void CopyWeights(int slot, int64_t k) const {
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * Shape::kPieces;
         i += kGemmThreads) {
      const int place = i / Shape::kPieces;
      const int piece = i % Shape::kPieces;
      const int64_t at = k + piece * Shape::kElements;
      const int64_t row = WeightRow(place);
      const bool exists = row >= 0 && at < args.op.k;
      const T* const from =
          static_cast<const T*>(args.op.w) + (exists ? row * args.op.w_stride + at : 0);
      CopyAsync16(Row(slot, place) + piece * kPieceBytes, from, exists);
    }
  }

  // The same for x, whose rows may end anywhere and need not be aligned.
  TLM_DEVICE void CopyTokens(int slot, int64_t k) const {
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kTokens * Shape::kPieces;
         i += kGemmThreads) {
      const int place = i / Shape::kPieces;
      const int piece = i % Shape::kPieces;
      const int64_t at = k + piece * Shape::kElements;
      const int64_t token = int64_t{token_tile} * Shape::kTokens + place;
      unsigned char* const to = Row(slot, Shape::kRows + place) + piece * kPieceBytes;
      const bool exists = token < args.op.m && at < args.op.k;
      const T* const from =
          static_cast<const T*>(args.op.x) + (exists ? token * args.op.x_stride + at : 0);
      if (!exists || (args.wide && at + Shape::kElements <= args.op.k)) {
        CopyAsync16(to, exists ? static_cast<const void*>(from) : args.op.w, exists);
        continue;
      }
#pragma unroll
      for (int e = 0; e < Shape::kElements; ++e) {
        reinterpret_cast<T*>(to)[e] = at + e < args.op.k ? from[e] : T{};
      }
    }
  }
};

template <typename T, int kTile>
struct SimtSums {
  using Shape = SimtShape<T, kTile>;

  float sums[Shape::kRowSums][Shape::kTokenSums] = {};
  const int row = static_cast<int>(threadIdx.x) % Shape::kRowThreads;
  const int token = static_cast<int>(threadIdx.x) / Shape::kRowThreads;

  // Adds the products of `pieces` pieces of a stage, one after the other.
  TLM_DEVICE void Add(const SimtBlock<T, kTile>& block, int slot, int pieces) {
    const unsigned char* const weights = block.Row(slot, row);
    const unsigned char* const tokens = block.Row(slot, Shape::kRows + token);
#pragma unroll Shape::kUnroll
    for (int piece = 0; piece < pieces; ++piece) {
      Quad w[Shape::kRowSums];
      Quad x[Shape::kTokenSums];
#pragma unroll
      for (int i = 0; i < Shape::kRowSums; ++i) {
        w[i] = LoadQuad(weights + i * Shape::kRowThreads * Shape::kPitch + piece * kPieceBytes);
      }
#pragma unroll
      for (int j = 0; j < Shape::kTokenSums; ++j) {
        x[j] = LoadQuad(tokens + j * Shape::kTokenThreads * Shape::kPitch + piece * kPieceBytes);
      }
#pragma unroll
      for (int e = 0; e < Shape::kElements; ++e) {
#pragma unroll
        for (int i = 0; i < Shape::kRowSums; ++i) {
#pragma unroll
          for (int j = 0; j < Shape::kTokenSums; ++j) {
            sums[i][j] = Fma(Element(w[i], e, T{}), Element(x[j], e, T{}), sums[i][j]);
          }
        }
      }
    }
  }

  // Writes the sums to the staging area.
  TLM_DEVICE void Stage(float* staging) const {
#pragma unroll
    for (int j = 0; j < Shape::kTokenSums; ++j) {
#pragma unroll
      for (int i = 0; i < Shape::kRowSums; ++i) {
        staging[Shape::At(token + j * Shape::kTokenThreads, row + i * Shape::kRowThreads)] =
            sums[i][j];
      }
    }
  }
};

template <typename T, int kTile>
TLM_KERNEL __launch_bounds__(kGemmThreads, 4) GemmSimt(const SimtArgs args) {
  using Shape = SimtShape<T, kTile>;
  constexpr int kAhead = Shape::kStages - 1;
  LetNextStart();
  const SimtBlock<T, kTile> block(args);
  const int64_t k = args.op.k;
  // The first stages are one cp.async group, each later stage is one: after the wait of step s,
  // stage s has arrived.
  for (int stage = 0; stage < kAhead; ++stage) block.CopyWeights(stage, stage * Shape::kStageK);
  WaitForPrevious();
  for (int stage = 0; stage < kAhead; ++stage) block.CopyTokens(stage, stage * Shape::kStageK);
  for (int stage = 0; stage < kAhead; ++stage) CopyAsyncCommit();
  SimtSums<T, kTile> sums;
  const bool active = int64_t{block.token_tile} * Shape::kTokens + sums.token < args.op.m;
  int slot = 0;
  for (int64_t begin = 0; begin < k; begin += Shape::kStageK) {
    CopyAsyncWait<Shape::kStages - 2>();
    SyncThreads();
    const int64_t ahead = begin + kAhead * Shape::kStageK;
    const int target = slot == 0 ? kAhead : slot - 1;
    if (ahead < k) {
      block.CopyWeights(target, ahead);
      block.CopyTokens(target, ahead);
    }
    CopyAsyncCommit();
    const int64_t left = (k - begin + Shape::kElements - 1) / Shape::kElements;
    if (active) {
      sums.Add(block, slot, left < Shape::kPieces ? static_cast<int>(left) : Shape::kPieces);
    }
    slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
  }
  float* const staging = SharedMemory<float>();
  SyncThreads();  // all reads of the stages are done
  if (active) sums.Stage(staging);
  SyncThreads();
  StoreStaged<T, Shape, kGemmThreads>(args.op, {.sums = staging,
                                                .first_row = block.row_tile * Shape::kRows,
                                                .first_token = block.token_tile * Shape::kTokens,
                                                .round = 0});
}

using Kernel = void (*)(SimtArgs);

template <int kTile>
Kernel KernelOf(DType dtype) {
  if (dtype == DType::kF32) return GemmSimt<float, kTile>;
  if (dtype == DType::kBF16) return GemmSimt<Bf16, kTile>;
  return GemmSimt<F16, kTile>;
}

Kernel KernelOf(DType dtype, int tile) {
  static_assert(kSimtTileCount == 2);
  return tile == 0 ? KernelOf<0>(dtype) : KernelOf<1>(dtype);
}

}  // namespace

cudaError_t PrepareGemmSimt(DType dtype) {
  for (int tile = 0; tile < kSimtTileCount; ++tile) {
    const cudaError_t error =
        AllowSharedMemory(KernelOf(dtype, tile), kSimtTiles[tile].shared_bytes());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchGemmSimt(const GemmArgs& args, DType dtype, int tile, cudaStream_t stream) {
  const int64_t elements = kPieceBytes / static_cast<int64_t>(DTypeBytes(dtype));
  const bool wide =
      reinterpret_cast<uintptr_t>(args.x) % kPieceBytes == 0 && args.x_stride % elements == 0;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.row_tiles * args.token_tiles)),
      .block = dim3(kGemmThreads),
      .shared_bytes = static_cast<size_t>(kSimtTiles[tile].shared_bytes()),
      .overlaps_previous = !args.w_is_written,
  };
  return Launch(KernelOf(dtype, tile), shape, stream, SimtArgs{args, wide});
}

}  // namespace tlm
