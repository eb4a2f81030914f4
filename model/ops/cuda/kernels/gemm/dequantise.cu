#include <array>
#include <cstddef>
#include <utility>

#include "model/ops/cuda/kernels/gemm/block_values.h"
#include "model/ops/cuda/kernels/gemm/dequantise.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

// One thread block per cell; a thread converts a lane's share of a row's span.
constexpr int kCellThreads = kMaxSpans * kStripRows * kStepLanes;
constexpr int kEmbedThreads = 128;
// Row pitch of the cell's values in shared memory: 16 bytes more than a row, so that a warp's
// simultaneous stores go to different banks.
constexpr int kPitch = kCellInputs + kRun;
constexpr size_t kCellShared = size_t{kStripRows} * kPitch * sizeof(uint16_t);

TLM_DEVICE int SpansOf(const BlockMatrixArgs& matrix, int cell) {
  const int left = matrix.spans - cell * kMaxSpans;
  return left < kMaxSpans ? left : kMaxSpans;
}
TLM_DEVICE const unsigned char* CellOf(const BlockMatrixArgs& matrix, int strip, int cell) {
  return matrix.data + strip * matrix.strip_bytes +
         int64_t{cell} * matrix.format.cell_bytes(kMaxSpans);
}

// Converts this thread's 32 elements; `to` is the tile's first value.
TLM_DEVICE void ConvertShare(const StripFormat& format, const unsigned char* cell, int spans,
                             uint16_t* to) {
  const int span = static_cast<int>(threadIdx.x) / (kStripRows * kStepLanes);
  const int row = static_cast<int>(threadIdx.x) / kStepLanes % kStripRows;
  const int lane = static_cast<int>(threadIdx.x) % kStepLanes;
  if (span >= spans) return;
  SpanShare<1> share;
  share.Load(format, cell, spans, span, row, 0, lane);
  uint16_t* const at = to + row * kPitch + span * kSpanInputs + 2 * lane;
  share.Convert(format, static_cast<int>(threadIdx.x) % kWarpLanes,
                [at](int unit, const uint32_t(&pairs)[1][2][2]) {
#pragma unroll
                  for (int step = 0; step < 2; ++step) {
                    auto* const words =
                        reinterpret_cast<uint32_t*>(at + (unit * 2 + step) * kStepInputs);
                    words[0] = pairs[0][step][0];
                    words[4] = pairs[0][step][1];
                  }
                });
}

// Stores eight elements of a row of the tile, from input `first` on, to their places in the row at
// `out`, which has room for all eight.
TLM_DEVICE void StorePiece(const BlockMatrixArgs& matrix, const uint16_t* from, int first,
                           uint16_t* out) {
  Quad quad = LoadQuad(from);
  if (matrix.input_order == nullptr) {
    if (first + kRun > matrix.k) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        if (first + i >= matrix.k) quad.word[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
      }
    }
    StoreQuad(out + first, quad);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const bool exists = first + i < matrix.k;
    const int input = exists ? matrix.input_order[first + i] : first + i;
    out[input] = exists ? static_cast<uint16_t>(quad.word[i / 2] >> (16 * (i % 2))) : uint16_t{0};
  }
}

// The format's fields are constants of kind kKind, except the group size.
template <int kKind>
TLM_KERNEL __launch_bounds__(kCellThreads) Dequantise(const DequantiseArgs args) {
  LetNextStart();
  constexpr StripKind kFields = kStripKinds[kKind];
  const StripFormat format = FormatOfKind(kFields, args.matrix.format.group_log2);
  const int first_strip = args.first_row / kStripRows;
  const int cell = static_cast<int>(blockIdx.x);
  const int strip = first_strip + static_cast<int>(blockIdx.y);
  const int spans = SpansOf(args.matrix, cell);
  uint16_t* const tile = SharedMemory<uint16_t>();
  // Runs before the wait: no kernel writes weights.
  ConvertShare(format, CellOf(args.matrix, strip, cell), spans, tile);
  WaitForPrevious();
  SyncThreads();
  constexpr int kRowPieces = kCellInputs / kRun;
  for (int i = static_cast<int>(threadIdx.x); i < kStripRows * kRowPieces; i += kCellThreads) {
    const int row = strip * kStripRows + i / kRowPieces - args.first_row;
    const int piece = i % kRowPieces;
    const int first = cell * kCellInputs + piece * kRun;
    if (row < 0 || row >= args.rows || first >= args.out_stride) continue;
    StorePiece(args.matrix, tile + i / kRowPieces * kPitch + piece * kRun, first,
               static_cast<uint16_t*>(args.out) + int64_t{row} * args.out_stride);
  }
}

// The integers of a lane's four elements, loaded word by word.
TLM_DEVICE void StepBits(const StripFormat& format, const unsigned char* cell, int spans, int span,
                         int step, int row, int lane, int (&q)[4]) {
  const bool bytes = format.low_bits == 8;
  const int piece = row * kStepLanes + lane;
  const int half = bytes ? step / 4 * kStripRows * kStepLanes : 0;
  const uint32_t low = ValueAt<uint32_t>(cell + format.high_at(span) + (half + piece) * 16 +
                                         (bytes ? step % 4 : step / 2) * 4);
  uint32_t high = 0;
  if (format.high_bits > 0) {
    const unsigned char* const above =
        cell + format.high_at(spans) + format.entries_at(span) - format.high_at(span);
    const int word = format.high_bits > 1 ? step / 4 : 0;
    high = ValueAt<uint32_t>(above + (piece * format.high_bits + word) * 4);
  }
  StepIntegers(format, low, high, step, q);
}

// One thread block per token; thread i takes shares i, i + 128, ... of the row.
TLM_KERNEL __launch_bounds__(kEmbedThreads) EmbedBlocks(const EmbedBlocksArgs args) {
  LetNextStart();
  WaitForPrevious();
  const BlockMatrixArgs& table = args.table;
  const int64_t token = blockIdx.x;
  int row = args.rows[token];
  if (row < 0) row = args.others == nullptr ? 0 : args.others[-1 - row];
  float* const out = args.out + token * args.out_stride;
  // A share is the four elements of a lane in a step.
  for (int share = static_cast<int>(threadIdx.x); share < table.spans * kSpanSteps * kStepLanes;
       share += kEmbedThreads) {
    const int lane = share % kStepLanes;
    const int step = share / kStepLanes % kSpanSteps;
    const int span = share / (kStepLanes * kSpanSteps);
    const int cell = span / kMaxSpans;
    const int spans = SpansOf(table, cell);
    const unsigned char* const from = CellOf(table, row / kStripRows, cell);
    int q[4];
    StepBits(table.format, from, spans, span % kMaxSpans, step, row % kStripRows, lane, q);
    const StepScale scale =
        ScaleOf(table.format, from, spans, span % kMaxSpans * kSpanSteps + step, row % kStripRows);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = span * kSpanInputs + step * kStepInputs + 2 * lane + i % 2 + i / 2 * 8;
      if (at >= table.k) continue;
      float* const to = out + (table.input_order == nullptr ? at : table.input_order[at]);
      const float value = ToFloat(FromFloat<Bf16>(ElementOf(table.format, q[i], scale)));
      *to = args.adds ? *to + value : value;
    }
  }
}

using Kernel = void (*)(DequantiseArgs);
template <int... kKinds>
constexpr std::array<Kernel, kStripKindCount> KernelsOf(
    std::integer_sequence<int, kKinds...> /*kinds*/) {
  return {Dequantise<kKinds>...};
}
constexpr auto kKernels = KernelsOf(std::make_integer_sequence<int, kStripKindCount>());

}  // namespace

cudaError_t LoadDequantise(const StripFormat& format) {
  const int kind = KindOf(format);
  if (kind == kStripKindCount) return cudaErrorInvalidValue;
  return LoadKernels(kKernels[static_cast<size_t>(kind)], EmbedBlocks);
}

cudaError_t LaunchDequantise(const DequantiseArgs& args, cudaStream_t stream) {
  const int first_strip = args.first_row / kStripRows;
  const int end_strip = (args.first_row + args.rows + kStripRows - 1) / kStripRows;
  const int cells = (args.matrix.spans + kMaxSpans - 1) / kMaxSpans;
  if (args.rows <= 0 || cells == 0) return cudaSuccess;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(cells), static_cast<unsigned>(end_strip - first_strip)),
      .block = dim3(kCellThreads),
      .shared_bytes = kCellShared,
  };
  const int kind = KindOf(args.matrix.format);
  if (kind == kStripKindCount) return cudaErrorInvalidValue;
  return Launch(kKernels[static_cast<size_t>(kind)], shape, stream, args);
}

cudaError_t LaunchEmbedBlocks(const EmbedBlocksArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.tokens)),
                          .block = dim3(kEmbedThreads),
                          .overlaps_previous = false};
  return Launch(EmbedBlocks, shape, stream, args);
}

}  // namespace tlm
