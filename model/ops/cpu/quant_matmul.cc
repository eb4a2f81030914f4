#include "model/ops/cpu/quant_matmul.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/ops/cpu/matmul.h"

namespace tlm {
namespace {

// Less work than this, some microseconds, is not worth handing to another thread.
constexpr int64_t kMinQuantTaskProducts = 262144;
constexpr int64_t kMinTaskElements = 4096;
// More rows are processed in several passes, large enough that rereading the weights costs little.
constexpr int64_t kMaxScratchBytes = int64_t{4} << 20;
constexpr int64_t kMinScratchRows = 64;
// Panels that kernels compute at a time; gated matrices count both halves.
constexpr int64_t kTilePanels = 4;
constexpr int64_t kCachedRowBytes = 640 << 10;
// A multiple of the rows that kernels compute at a time.
constexpr int64_t kPartRowGranule = 96;
constexpr int64_t kSmallestGroup = 32;

// Distance between rows of values: an odd number of lines, so that the rows of a tile do not share
// a few sets of the caches.
int64_t ValueStride(int64_t inputs) { return QuantPaddedInputs(inputs) | kQuantStep; }

// Bytes of one row, for groups of any size.
int64_t RowBytes(int64_t inputs) {
  const int64_t padded = QuantPaddedInputs(inputs);
  return ValueStride(inputs) +
         padded / kSmallestGroup * static_cast<int64_t>(sizeof(float) + sizeof(int32_t)) +
         (padded / 16 + padded / 32) * static_cast<int64_t>(sizeof(int16_t));
}

int64_t GroupsOf(const QuantMatrix& w) {
  return (QuantPaddedInputs(w.k()) + w.group() - 1) / w.group();
}

QuantRows RowsIn(const Buffer& scratch, int64_t rows, const QuantMatrix& w) {
  auto* const values = scratch.as<int8_t>();
  auto* const scales = reinterpret_cast<float*>(values + rows * ValueStride(w.k()));
  auto* const group_sums = reinterpret_cast<int32_t*>(scales + rows * GroupsOf(w));
  auto* const sums16 = reinterpret_cast<int16_t*>(group_sums + rows * GroupsOf(w));
  return {.values = values,
          .stride = ValueStride(w.k()),
          .scales = scales,
          .group_sums = group_sums,
          .sums16 = sums16,
          .sums32 = sums16 + rows * QuantPaddedInputs(w.k()) / 16};
}

QuantRows RowsFrom(const QuantRows& rows, int64_t first, const QuantMatrix& w) {
  const int64_t groups = first * GroupsOf(w);
  return {.values = rows.values + first * rows.stride,
          .stride = rows.stride,
          .scales = rows.scales + groups,
          .group_sums = rows.group_sums + groups,
          .sums16 = rows.sums16 + first * QuantPaddedInputs(w.k()) / 16,
          .sums32 = rows.sums32 + first * QuantPaddedInputs(w.k()) / 32};
}

// Rows of a task: all, or parts of about the same size that stay in an L2 cache while a thread
// reads its panels.
int64_t QuantPartRows(int64_t count, int64_t inputs) {
  const int64_t most = std::max(kPartRowGranule, kCachedRowBytes / RowBytes(inputs));
  return DivideUp(DivideUp(count, DivideUp(count, most)), kPartRowGranule) * kPartRowGranule;
}

// Returns the epilogue for the outputs of one segment.
EpilogueArgs EpilogueOf(const QuantMatrix::Segment& segment, const QuantMatrix& w,
                        EpilogueArgs epilogue) {
  if (w.gated()) return epilogue;
  const int64_t element_bytes = epilogue.out_type == Storage::kF32 ? 4 : 2;
  if (epilogue.bias != nullptr) epilogue.bias += segment.first_output;
  epilogue.out = static_cast<char*>(epilogue.out) + segment.first_output * element_bytes;
  epilogue.outputs = segment.n;
  return epilogue;
}

}  // namespace

size_t CpuQuantMatMul::ScratchBytes(int64_t rows, int64_t inputs) {
  if (inputs == 0) return 0;
  const int64_t most = std::max(kMinScratchRows, kMaxScratchBytes / RowBytes(inputs));
  return static_cast<size_t>(std::min(rows, most) * RowBytes(inputs));
}

absl::Status CpuQuantMatMul::Reserve(int64_t rows, int64_t inputs) {
  const size_t bytes = ScratchBytes(rows, inputs);
  if (bytes <= scratch_.bytes()) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(scratch_, device_.Allocate(bytes, MemoryPurpose::kActivations));
  return absl::OkStatus();
}

void CpuQuantMatMul::MatMul(const Rows& x, const QuantMatrix& w, const Epilogue& epilogue,
                            const Rows& out) {
  TLM_CHECK(!w.gated() && out.cols == w.n() && out.rows == x.rows);
  Run(x, w, EpilogueArgsOf(epilogue, out));
}

void CpuQuantMatMul::MatMulGated(const Rows& x, const QuantMatrix& w, const float* bias,
                                 const Rows& out) {
  TLM_CHECK(w.gated() && w.n() == 2 * out.cols && out.rows == x.rows);
  Run(x, w, GatedEpilogueArgsOf(bias, out));
}

void CpuQuantMatMul::Run(const Rows& x, const QuantMatrix& w, const EpilogueArgs& epilogue) {
  TLM_CHECK(x.dtype == DType::kF32 && x.cols == w.k());
  const int64_t most = static_cast<int64_t>(scratch_.bytes()) / RowBytes(w.k());
  TLM_CHECK(x.rows == 0 || most > 0);
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t count = std::min(most, x.rows - first);
    const QuantRows rows = RowsIn(scratch_, count, w);
    Quantize(x, w, first, rows, count);
    Multiply(rows, first, count, w, epilogue);
  }
}

void CpuQuantMatMul::Quantize(const Rows& x, const QuantMatrix& w, int64_t first,
                              const QuantRows& rows, int64_t count) {
  const int64_t rows_per_task = DivideUp(kMinTaskElements, x.cols);
  pool_.ParallelFor(DivideUp(count, rows_per_task), [&](int64_t task) {
    kernels_.quantize_rows({.x = x.as<float>() + first * x.stride,
                            .x_stride = x.stride,
                            .input_order = w.input_order(),
                            .k = x.cols,
                            .group = w.group(),
                            .begin = task * rows_per_task,
                            .end = std::min(count, (task + 1) * rows_per_task),
                            .rows = rows});
  });
}

void CpuQuantMatMul::Multiply(const QuantRows& rows, int64_t first, int64_t count,
                              const QuantMatrix& w, const EpilogueArgs& epilogue) {
  // Each weight is read by one thread; stripes are small enough to balance the threads.
  const int64_t tiles = DivideUp(w.panels(), kTilePanels);
  const int64_t tile_products = count * w.k() * kTilePanels * kPanel;
  const int64_t tiles_per_task = std::max(tiles / (int64_t{pool_.threads()} * 8),
                                          DivideUp(kMinQuantTaskProducts, tile_products));
  const int64_t panels_per_task = tiles_per_task * kTilePanels;
  int64_t stripes = 0;
  for (const QuantMatrix::Segment& segment : w.segments()) {
    stripes += DivideUp(segment.panels, panels_per_task);
  }
  const int64_t part_rows = QuantPartRows(count, w.k());
  pool_.ParallelFor(stripes * DivideUp(count, part_rows), [&](int64_t task) {
    const int64_t row = task / stripes * part_rows;
    int64_t stripe = task % stripes;
    const QuantMatrix::Segment* segment = w.segments().data();
    for (; stripe >= DivideUp(segment->panels, panels_per_task); ++segment) {
      stripe -= DivideUp(segment->panels, panels_per_task);
    }
    const int64_t panel = stripe * panels_per_task;
    kernels_.matmul_quant({.x = RowsFrom(rows, row, w),
                           .row_count = std::min(part_rows, count - row),
                           .first_row = first + row,
                           .w = segment->data.data(),
                           .layout = segment->layout,
                           .k = w.k(),
                           .panel_begin = panel,
                           .panel_end = std::min(segment->panels, panel + panels_per_task),
                           .epilogue = EpilogueOf(*segment, w, epilogue)});
  });
}

}  // namespace tlm
