#include "model/ops/cpu/int8_matmul.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/ops/cpu/matmul.h"

namespace tlm {
namespace {

// Less work than this is not worth handing to another thread: some microseconds.
constexpr int64_t kMinInt8TaskProducts = 262144;
constexpr int64_t kMinTaskElements = 4096;
// More rows are processed in several passes, large enough that rereading the weights costs little.
constexpr int64_t kMaxScratchBytes = int64_t{4} << 20;
constexpr int64_t kMinScratchRows = 64;
// The panels that kernels compute at a time; of gated matrices both halves.
constexpr int64_t kTilePanels = 4;
constexpr int64_t kCachedRowBytes = 640 << 10;
// A multiple of the rows that kernels take at a time.
constexpr int64_t kPartRowGranule = 96;

// Of the values of rows: an odd number of lines, so that the rows of a tile do not share a few sets
// of the caches.
int64_t ValueStride(int64_t inputs) { return Int8PaddedInputs(inputs) | kInt8InputStep; }

int64_t RowBytes(int64_t inputs) {
  return ValueStride(inputs) +
         Int8Groups(inputs) * static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
}

Int8Rows RowsIn(const Buffer& scratch, int64_t rows, int64_t inputs) {
  auto* const values = scratch.as<int8_t>();
  auto* const scales = reinterpret_cast<float*>(values + rows * ValueStride(inputs));
  return {.values = values,
          .stride = ValueStride(inputs),
          .scales = scales,
          .offsets = reinterpret_cast<int32_t*>(scales + rows * Int8Groups(inputs))};
}

Int8Rows RowsFrom(const Int8Rows& rows, int64_t first, int64_t inputs) {
  const int64_t groups = first * Int8Groups(inputs);
  return {.values = rows.values + first * rows.stride,
          .stride = rows.stride,
          .scales = rows.scales + groups,
          .offsets = rows.offsets + groups};
}

// Rows of a task: all, or parts of about the same size that stay in an L2 cache while a thread goes
// through its panels.
int64_t Int8PartRows(int64_t count, int64_t inputs) {
  const int64_t most = std::max(kPartRowGranule, kCachedRowBytes / RowBytes(inputs));
  return DivideUp(DivideUp(count, DivideUp(count, most)), kPartRowGranule) * kPartRowGranule;
}

}  // namespace

size_t CpuInt8MatMul::ScratchBytes(int64_t rows, int64_t inputs) {
  if (inputs == 0) return 0;
  const int64_t most = std::max(kMinScratchRows, kMaxScratchBytes / RowBytes(inputs));
  return static_cast<size_t>(std::min(rows, most) * RowBytes(inputs));
}

absl::Status CpuInt8MatMul::Reserve(int64_t rows, int64_t inputs) {
  TLM_ASSIGN_OR_RETURN(scratch_,
                       device_.Allocate(ScratchBytes(rows, inputs), MemoryPurpose::kActivations));
  return absl::OkStatus();
}

void CpuInt8MatMul::MatMul(const Rows& x, const Int8Matrix& w, const Epilogue& epilogue,
                           const Rows& out) {
  TLM_CHECK(!w.gated() && out.cols == w.n() && out.rows == x.rows);
  Run(x, w, EpilogueArgsOf(epilogue, out));
}

void CpuInt8MatMul::MatMulGated(const Rows& x, const Int8Matrix& w, const float* bias,
                                const Rows& out) {
  TLM_CHECK(w.gated() && w.n() == 2 * out.cols && out.rows == x.rows);
  Run(x, w, GatedEpilogueArgsOf(bias, out));
}

void CpuInt8MatMul::Run(const Rows& x, const Int8Matrix& w, const EpilogueArgs& epilogue) {
  TLM_CHECK(x.dtype == DType::kF32 && x.cols == w.k());
  const int64_t most = static_cast<int64_t>(scratch_.bytes()) / RowBytes(w.k());
  TLM_CHECK(x.rows == 0 || most > 0);
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t count = std::min(most, x.rows - first);
    const Int8Rows rows = RowsIn(scratch_, count, w.k());
    Quantize(x, first, rows, count);
    Multiply(rows, first, count, w, epilogue);
  }
}

void CpuInt8MatMul::Quantize(const Rows& x, int64_t first, const Int8Rows& rows, int64_t count) {
  const int64_t rows_per_task = DivideUp(kMinTaskElements, x.cols);
  pool_.ParallelFor(DivideUp(count, rows_per_task), [&](int64_t task) {
    kernels_.quantize_rows({.x = x.as<float>() + first * x.stride,
                            .x_stride = x.stride,
                            .k = x.cols,
                            .begin = task * rows_per_task,
                            .end = std::min(count, (task + 1) * rows_per_task),
                            .rows = rows});
  });
}

void CpuInt8MatMul::Multiply(const Int8Rows& rows, int64_t first, int64_t count,
                             const Int8Matrix& w, const EpilogueArgs& epilogue) {
  // Each weight is read by one thread; stripes are small enough to balance the threads.
  const int64_t tiles = DivideUp(w.panels(), kTilePanels);
  const int64_t tile_products = count * w.k() * kTilePanels * kPanel;
  const int64_t tiles_per_task = std::max(tiles / (int64_t{pool_.threads()} * 8),
                                          DivideUp(kMinInt8TaskProducts, tile_products));
  const int64_t panels_per_task = tiles_per_task * kTilePanels;
  const int64_t stripes = DivideUp(w.panels(), panels_per_task);
  const int64_t part_rows = Int8PartRows(count, w.k());
  pool_.ParallelFor(stripes * DivideUp(count, part_rows), [&](int64_t task) {
    const int64_t row = task / stripes * part_rows;
    const int64_t panel = task % stripes * panels_per_task;
    kernels_.matmul_int8({.x = RowsFrom(rows, row, w.k()),
                          .row_count = std::min(part_rows, count - row),
                          .first_row = first + row,
                          .w = w.data(),
                          .k = w.k(),
                          .panel_begin = panel,
                          .panel_end = std::min(w.panels(), panel + panels_per_task),
                          .epilogue = epilogue});
  });
}

}  // namespace tlm
