#include "model/ops/cpu/matmul.h"

#include <algorithm>
#include <optional>

#include "model/base/errors.h"

namespace tlm {
namespace {

// Rows multiplied in one pass over the weights: enough rows that weights are seldom read, and few
// enough to stay in a cache.
constexpr int64_t kBlockRows = 192;
constexpr int64_t kMinBlockRows = 48;
constexpr int64_t kBlockUnits = 196608;
// Panels of a task, a multiple of the kernels' panel group; tasks of less than about two
// microseconds get more.
constexpr int64_t kTaskPanels = 4;
constexpr int64_t kMinTaskProducts = 32768;
// Rows that stay together if the kernel sets no tile.
constexpr int64_t kPartRows = 32;
// Products with this many rows take as long as reading the weights.
constexpr int64_t kRowsOfMemory = 8;
// One thread packs fewer units than this faster than many threads.
constexpr int64_t kUnitsOfOneThread = 16384;

// Returns a tile size at which no tile of `rows` is much smaller than the others.
int64_t EvenTile(int64_t rows, int64_t most) { return DivideUp(rows, DivideUp(rows, most)); }

int64_t ElementBytes(Storage type) { return type == Storage::kF32 ? 4 : 2; }

const void* RowOf(const MatMulArgs& args, int64_t row) {
  return static_cast<const char*>(args.x) + row * args.x_stride * ElementBytes(args.x_type);
}

// Returns up to `count` rows from `first` on, which begins a tile.
MatMulArgs RowsOf(const MatMulArgs& all, int64_t first, int64_t count) {
  MatMulArgs args = all;
  args.x = RowOf(all, first);
  args.rows = std::min(count, all.rows - first);
  if (all.packed_x != nullptr) args.packed_x += first * UnitsOf(all.x_type, all.k);
  args.epilogue.out = static_cast<char*>(all.epilogue.out) +
                      first * all.epilogue.out_stride * ElementBytes(all.epilogue.out_type);
  return args;
}

// Returns the rows of a task of `args`: all of them, or fewer if `stripes` of panels are too few
// for the threads, or if the kernel requires it.
int64_t PartRows(const MatMulArgs& args, const MatMulNeeds& needs, int64_t stripes, int threads) {
  const int64_t granule = args.tile_rows > 0 ? args.tile_rows : kPartRows;
  const int64_t granules = DivideUp(args.rows, granule);
  const int64_t parts = std::min(granules, DivideUp(2 * int64_t{threads}, stripes));
  const int64_t of_part = DivideUp(granules, parts);
  if (needs.part_bytes == 0) return of_part * granule;
  const int64_t granule_bytes = granule * args.k * ElementBytes(args.x_type);
  const int64_t most = std::max<int64_t>(2, needs.part_bytes / granule_bytes);
  return std::min(of_part, EvenTile(granules, most)) * granule;
}

ElementFunction FunctionOf(std::optional<Activation> activation) {
  if (!activation.has_value()) return ElementFunction::kNone;
  switch (*activation) {
    case Activation::kSilu:
      return ElementFunction::kSilu;
    case Activation::kRelu:
      return ElementFunction::kRelu;
    case Activation::kGeluTanh:
      return ElementFunction::kGeluTanh;
    case Activation::kGelu:
      return ElementFunction::kGelu;
  }
  TLM_CHECK(false);
}

}  // namespace

EpilogueArgs EpilogueArgsOf(const Epilogue& epilogue, const Rows& out) {
  return {.bias = epilogue.bias,
          .function = FunctionOf(epilogue.activation),
          .outputs = out.cols,
          .out = out.data,
          .out_type = StorageOf(out.dtype),
          .out_stride = out.stride};
}

EpilogueArgs GatedEpilogueArgsOf(const float* bias, const Rows& out) {
  return {.bias = bias,
          .gated = true,
          .outputs = out.cols,
          .out = out.data,
          .out_type = StorageOf(out.dtype),
          .out_stride = out.stride};
}

size_t CpuMatMul::RowsBytes(int64_t inputs) {
  return static_cast<size_t>(inputs * kBlockRows) * sizeof(uint32_t);
}

size_t CpuMatMul::WidenedBytes(int64_t inputs) const {
  const bool widened = kernels_.needs_of_matmul(Storage::kF32, Storage::kBF16).widened ||
                       kernels_.needs_of_matmul(Storage::kF32, Storage::kF16).widened;
  if (!widened) return 0;
  return static_cast<size_t>(inputs * kWidenedPanels * kPanel * pool_.threads()) * sizeof(float);
}

size_t CpuMatMul::ReserveBytes(int64_t inputs) const {
  return RowsBytes(inputs) + WidenedBytes(inputs);
}

absl::Status CpuMatMul::Reserve(int64_t inputs) {
  if (inputs <= reserved_inputs_) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(packed_rows_,
                       device_.Allocate(RowsBytes(inputs), MemoryPurpose::kActivations));
  TLM_ASSIGN_OR_RETURN(widened_,
                       device_.Allocate(WidenedBytes(inputs), MemoryPurpose::kActivations));
  reserved_inputs_ = inputs;
  return absl::OkStatus();
}

void CpuMatMul::Release() {
  packed_rows_ = Buffer();
  widened_ = Buffer();
  reserved_inputs_ = 0;
}

void CpuMatMul::MatMul(const Rows& x, const PackedMatrix& w, const Epilogue& epilogue,
                       const Rows& out) {
  TLM_CHECK(!w.gated() && x.cols == w.k() && out.cols == w.n() && out.rows == x.rows);
  Run(x, w, EpilogueArgsOf(epilogue, out));
}

void CpuMatMul::MatMulGated(const Rows& x, const PackedMatrix& w, const float* bias,
                            const Rows& out) {
  TLM_CHECK(w.gated() && x.cols == w.k() && w.n() == 2 * out.cols && out.rows == x.rows);
  Run(x, w, GatedEpilogueArgsOf(bias, out));
}

void CpuMatMul::Run(const Rows& x, const PackedMatrix& w, const EpilogueArgs& epilogue) {
  TLM_CHECK(w.k() <= reserved_inputs_);
  const Storage x_type = StorageOf(x.dtype);
  const MatMulNeeds needs = kernels_.needs_of_matmul(x_type, w.storage());
  const MatMulArgs args{.x = x.data,
                        .x_type = x_type,
                        .x_stride = x.stride,
                        .rows = x.rows,
                        .w = w.data(),
                        .w_type = w.storage(),
                        .k = w.k(),
                        .epilogue = epilogue};
  if (args.rows == 0) return;
  if (needs.tile_rows == 0) return RunBlock(args, needs, w.panels());
  TLM_CHECK(kBlockRows % needs.tile_rows == 0 && kMinBlockRows % needs.tile_rows == 0);
  const int64_t most =
      std::clamp(kBlockUnits / UnitsOf(args.x_type, args.k) / needs.tile_rows * needs.tile_rows,
                 kMinBlockRows, kBlockRows);
  const int64_t block_rows = DivideUp(EvenTile(args.rows, most), needs.tile_rows) * needs.tile_rows;
  for (int64_t row = 0; row < args.rows; row += block_rows) {
    RunBlock(RowsOf(args, row, block_rows), needs, w.panels());
  }
}

const uint32_t* CpuMatMul::Pack(const MatMulArgs& args) {
  const int64_t units = UnitsOf(args.x_type, args.k);
  // A single row of whole units needs no packing.
  if (args.rows == 1 && (args.x_type == Storage::kF32 || args.k % 2 == 0)) {
    return static_cast<const uint32_t*>(args.x);
  }
  uint32_t* const out = packed_rows_.as<uint32_t>();
  const int64_t tiles = DivideUp(args.rows, args.tile_rows);
  const int64_t tiles_of_task = units * args.rows <= kUnitsOfOneThread ? tiles : 1;
  pool_.ParallelFor(DivideUp(tiles, tiles_of_task), [&](int64_t task) {
    const int64_t first = task * tiles_of_task * args.tile_rows;
    kernels_.pack_rows({.x = RowOf(args, first),
                        .x_type = args.x_type,
                        .x_stride = args.x_stride,
                        .rows = std::min(tiles_of_task * args.tile_rows, args.rows - first),
                        .tile_rows = args.tile_rows,
                        .k = args.k,
                        .out = out + first * units});
  });
  return out;
}

void CpuMatMul::RunBlock(MatMulArgs args, const MatMulNeeds& needs, int64_t panels) {
  if (needs.tile_rows > 0) {
    args.tile_rows = EvenTile(args.rows, needs.tile_rows);
    args.packed_x = Pack(args);
  }
  const int64_t panel_products =
      DivideUp(std::max(args.rows, kRowsOfMemory), kRowsOfMemory) * args.k * kPanel;
  const int64_t task_panels =
      kTaskPanels * DivideUp(kMinTaskProducts, kTaskPanels * panel_products);
  const int64_t stripes = DivideUp(panels, task_panels);
  const int64_t part_rows = PartRows(args, needs, stripes, pool_.threads());
  // A worker's next task mostly has the same rows and the next panels in memory.
  pool_.ParallelFor(stripes * DivideUp(args.rows, part_rows), [&](int64_t task, int worker) {
    MatMulArgs part = RowsOf(args, task / stripes * part_rows, part_rows);
    part.panel_begin = task % stripes * task_panels;
    part.panel_end = std::min(panels, part.panel_begin + task_panels);
    if (part.panel_end < panels) part.next_panel = part.panel_end;
    if (needs.widened) {
      part.widened = widened_.as<float>() + worker * kWidenedPanels * kPanel * reserved_inputs_;
    }
    kernels_.matmul(part);
  });
}

}  // namespace tlm
