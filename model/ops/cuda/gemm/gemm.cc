#include "model/ops/cuda/gemm/gemm.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/dequantise.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"

namespace tlm {
namespace {

// Bit of a method in a bit set.
constexpr uint32_t BitOf(GemmMethod method) { return 1u << static_cast<int>(method); }
constexpr uint32_t kLibraryBit = 1u << 31;

int64_t ElementBytes(DType dtype) { return static_cast<int64_t>(DTypeBytes(dtype)); }

GemmActivation ActivationOf(const Epilogue& epilogue) {
  if (!epilogue.activation.has_value()) return GemmActivation::kNone;
  switch (*epilogue.activation) {
    case Activation::kSilu:
      return GemmActivation::kSilu;
    case Activation::kRelu:
      return GemmActivation::kRelu;
    case Activation::kGeluTanh:
      return GemmActivation::kGeluTanh;
    case Activation::kGelu:
      return GemmActivation::kGelu;
  }
  return GemmActivation::kNone;
}

bool SameKind(const MatrixLayout& a, const MatrixLayout& b) {
  return a.n() == b.n() && a.k() == b.k() && a.dtype() == b.dtype() && a.gated() == b.gated();
}

Rows Slice(const Rows& rows, int64_t first, int64_t count) {
  return {rows.as<char>() + first * rows.stride * ElementBytes(rows.dtype), count, rows.cols,
          rows.stride, rows.dtype};
}

// Returns `output` from row `first` on, for products of weights of type `dtype`.
GemmOutput Slice(const GemmOutput& output, int64_t first, DType dtype) {
  GemmOutput slice = output;
  const int64_t bytes = output.out_float32 ? 4 : ElementBytes(dtype);
  slice.out = static_cast<char*>(output.out) + first * output.out_stride * bytes;
  return slice;
}

bool RowsAreAligned(const Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 8 == 0;
}

// Returns the shape of LaunchGemmBlocks for `rows` rows, for which one must exist.
int BlockShapeFor(int64_t rows) {
  int shape = 0;
  while (kBlockGemmTokens[shape] < rows) ++shape;
  return shape;
}

void CheckOperands(const Rows& x, const CudaMatrix& w, const Rows& out, int64_t columns) {
  const DType dtype = w.layout().dtype();
  TLM_CHECK(x.cols == w.k() && x.dtype == dtype && out.cols == columns);
  TLM_CHECK(x.rows == out.rows && x.stride >= x.cols && out.stride >= out.cols);
  TLM_CHECK(out.dtype == x.dtype || out.dtype == DType::kF32);
  TLM_CHECK(!UsesTensorCores(w.n(), w.k(), dtype) || RowsAreAligned(x));
}

// Returns `output` for rows of weights [first, ..); in a gated product two rows make one output.
GemmOutput ColumnsFrom(const GemmOutput& output, int64_t first, const MatrixLayout& layout) {
  const int64_t column = layout.gated() ? first / 2 : first;
  GemmOutput columns = output;
  const int64_t bytes = output.out_float32 ? 4 : ElementBytes(layout.dtype());
  columns.out = static_cast<char*>(output.out) + column * bytes;
  if (output.bias != nullptr) columns.bias = output.bias + column;
  return columns;
}

}  // namespace

Gemm::Gemm(CudaDevice& device, const CudaProperties& properties, GemmLibrary* library)
    : device_(device),
      planned_for_{
          .multiprocessors = properties.multiprocessors,
          .shared_bytes_per_multiprocessor = properties.shared_bytes_per_multiprocessor,
          .shared_bytes_per_block = properties.shared_bytes_per_block,
      },
      l2_bytes_(properties.l2_bytes),
      library_(library) {}

absl::Status Gemm::Prepare(const MatrixLayout& layout, std::span<const BlockLayout> blocks) {
  for (const BlockLayout& segment : blocks) {
    if (std::ranges::count(block_types_, segment.type()) > 0) continue;
    TLM_RETURN_IF_ERROR(LoadBlockKernels(segment.format()));
    block_types_.push_back(segment.type());
  }
  const bool in_blocks = !blocks.empty();
  const bool known = std::any_of(layouts_.begin(), layouts_.end(), [&](const Known& other) {
    return SameKind(other.layout, layout) && other.in_blocks == in_blocks;
  });
  if (known) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(LoadProductKernels(layout));
  layouts_.push_back({layout, in_blocks});
  return absl::OkStatus();
}

absl::Status Gemm::LoadProductKernels(const MatrixLayout& layout) {
  const DType dtype = layout.dtype();
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  if (!UsesTensorCores(layout.n(), layout.k(), dtype)) {
    return device_.Check(PrepareGemmSimt(dtype), "PrepareGemmSimt");
  }
  TLM_RETURN_IF_ERROR(device_.Check(PrepareGemmMma(dtype), "PrepareGemmMma"));
  if (library_ == nullptr) return absl::OkStatus();
  return device_.Check(PrepareGemmEpilogue(dtype), "PrepareGemmEpilogue");
}

absl::Status Gemm::LoadBlockKernels(const StripFormat& format) {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  TLM_RETURN_IF_ERROR(device_.Check(LoadDequantise(format), "LoadDequantise"));
  return device_.Check(PrepareGemmBlocks(format, planned_for_.shared_bytes_per_block),
                       "PrepareGemmBlocks");
}

std::string Gemm::TakeMethods() {
  std::string names;
  for (const auto& [method, name] :
       {std::pair(BitOf(GemmMethod::kSkinny), "own skinny"),
        std::pair(BitOf(GemmMethod::kTiled), "own tiled"), std::pair(kLibraryBit, "library"),
        std::pair(BitOf(GemmMethod::kSimt), "own plain")}) {
    if ((methods_ & method) == 0) continue;
    if (!names.empty()) names += " + ";
    names += name;
  }
  methods_ = 0;
  return names;
}

const Gemm::LibraryProduct* Gemm::FindProduct(const MatrixLayout& layout, DType out) const {
  for (const LibraryProduct& product : products_) {
    const LibraryGemm& gemm = product.gemm;
    if (gemm.n == layout.n() && gemm.k == layout.k() && gemm.dtype == layout.dtype() &&
        gemm.out_dtype == out && product.gated == layout.gated()) {
      return product.plan >= 0 ? &product : nullptr;
    }
  }
  return nullptr;
}

absl::Status Gemm::Run(const Rows& x, const CudaMatrix& w, const Epilogue& epilogue,
                       const Rows& out) {
  CheckOperands(x, w, out, w.n());
  TLM_CHECK(!w.layout().gated());
  if (x.rows == 0) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const GemmOutput output{.out = out.data,
                          .out_stride = out.stride,
                          .out_float32 = out.dtype == DType::kF32,
                          .bias = epilogue.bias,
                          .activation = ActivationOf(epilogue)};
  return RunAny(x, w, output, RowsAreAligned(out));
}

absl::Status Gemm::RunGated(const Rows& x, const CudaMatrix& w, const float* bias,
                            const Rows& out) {
  CheckOperands(x, w, out, w.n() / 2);
  TLM_CHECK(w.layout().gated() && out.dtype == x.dtype);
  if (x.rows == 0) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const GemmOutput output{.out = out.data,
                          .out_stride = out.stride,
                          .out_float32 = out.dtype == DType::kF32,
                          .bias = bias,
                          .up_bias = w.n() / 2};
  return RunAny(x, w, output, true);
}

int64_t Gemm::PanelRows(const MatrixLayout& layout) const {
  constexpr int64_t kStep = 128;
  if (layout.bytes() <= panel_.bytes()) return layout.n();
  const int64_t row_bytes = layout.row_stride() * ElementBytes(layout.dtype());
  const int64_t most = static_cast<int64_t>(panel_.bytes()) / row_bytes / kStep * kStep;
  TLM_CHECK(most > 0);
  // Panels have nearly the same size.
  return CeilDiv(CeilDiv(layout.n(), CeilDiv(layout.n(), most)), kStep) * kStep;
}

absl::Status Gemm::RunAny(const Rows& x, const CudaMatrix& w, const GemmOutput& output,
                          bool library) {
  const MatrixLayout& layout = w.layout();
  if (!w.in_blocks()) {
    return RunRows(x, {.data = w.data(), .layout = layout, .of_n = w.n()}, output, library);
  }
  if (HasBlockKernel(x.rows, w)) return RunBlocks(x, w, output);
  const int64_t step = PanelRows(layout);
  const MatrixUse use = layout.gated() ? MatrixUse::kGated : MatrixUse::kPlain;
  for (int64_t first = 0; first < w.n(); first += step) {
    const int64_t rows = std::min(step, w.n() - first);
    TLM_RETURN_IF_ERROR(Dequantise(w, first, rows));
    const Weights panel{.data = panel_.data(),
                        .layout = MatrixLayout(rows, w.k(), layout.dtype(), use),
                        .of_n = w.n(),
                        .is_written = true};
    TLM_RETURN_IF_ERROR(RunRows(x, panel, ColumnsFrom(output, first, layout), library));
  }
  return absl::OkStatus();
}

bool Gemm::HasBlockKernel(int64_t rows, const CudaMatrix& w) const {
  if (rows > kBlockGemmTokens[kBlockGemmShapes - 1]) return false;
  if (!UsesTensorCores(w.n(), w.k(), w.layout().dtype())) return false;
  const auto segments = w.segments();
  return std::all_of(segments.begin(), segments.end(), [&](const CudaMatrix::Segment& segment) {
    const StripFormat& format = segment.layout.format();
    return segment.input_order.bytes() == 0 && GemmBlocksSharedBytes(format, BlockShapeFor(rows)) <=
                                                   planned_for_.shared_bytes_per_block;
  });
}

absl::Status Gemm::RunBlocks(const Rows& x, const CudaMatrix& w, const GemmOutput& output) {
  const int shape = BlockShapeFor(x.rows);
  for (const CudaMatrix::Segment& segment : w.segments()) {
    const int64_t strips = segment.layout.strips();
    const size_t shared_bytes = GemmBlocksSharedBytes(segment.layout.format(), shape);
    const GemmBlocksArgs args{
        .product = {.x = x.data,
                    .x_stride = x.stride,
                    .m = x.rows,
                    .n = segment.layout.n(),
                    .k = w.k(),
                    .gated = w.layout().gated(),
                    .output = ColumnsFrom(output, segment.first_row, w.layout()),
                    .row_tiles = static_cast<int32_t>(strips),
                    .token_tiles = 1},
        .matrix = ArgsOf(segment)};
    const int grid = EvenGrid(strips, shared_bytes, planned_for_);
    TLM_RETURN_IF_ERROR(device_.Check(LaunchGemmBlocks(args, shape, grid, device_.compute_stream()),
                                      "LaunchGemmBlocks"));
  }
  return absl::OkStatus();
}

absl::Status Gemm::Dequantise(const CudaMatrix& w, int64_t first, int64_t rows) {
  const int64_t stride = w.layout().row_stride();
  for (const CudaMatrix::Segment& segment : w.segments()) {
    const int64_t begin = std::max(first, segment.first_row);
    const int64_t end = std::min(first + rows, segment.first_row + segment.layout.n());
    if (begin >= end) continue;
    const DequantiseArgs args{
        .matrix = ArgsOf(segment),
        .first_row = static_cast<int32_t>(begin - segment.first_row),
        .rows = static_cast<int32_t>(end - begin),
        .out = panel_.as<char>() + (begin - first) * stride * ElementBytes(w.layout().dtype()),
        .out_stride = static_cast<int32_t>(stride)};
    TLM_RETURN_IF_ERROR(
        device_.Check(LaunchDequantise(args, device_.compute_stream()), "LaunchDequantise"));
  }
  return absl::OkStatus();
}

absl::Status Gemm::RunRows(const Rows& x, const Weights& w, const GemmOutput& output,
                           bool library) {
  const DType out = output.out_float32 ? DType::kF32 : w.layout.dtype();
  const LibraryProduct* const product =
      library && x.rows > kOwnRows ? FindProduct(w.layout, out) : nullptr;
  return product == nullptr ? RunOwn(x, w, output) : RunLibrary(*product, x, w, output);
}

absl::Status Gemm::RunOwn(const Rows& x, const Weights& w, const GemmOutput& output) {
  const DType dtype = w.layout.dtype();
  const GemmPlan plan = PlanGemm({.m = x.rows,
                                  .n = w.layout.n(),
                                  .k = w.layout.k(),
                                  .of_n = w.of_n,
                                  .dtype = dtype,
                                  .gated = w.layout.gated()},
                                 planned_for_);
  methods_ |= BitOf(plan.method);
  GemmArgs args{.x = x.data,
                .x_stride = x.stride,
                .m = x.rows,
                .w = w.data,
                .w_stride = w.layout.row_stride(),
                .n = w.layout.n(),
                .k = w.layout.k(),
                .gated = w.layout.gated(),
                .w_is_written = w.is_written,
                .output = output,
                .row_tiles = plan.row_tiles,
                .token_tiles = plan.token_tiles,
                .prefetch_bytes = w.is_written ? 0 : plan.prefetch_bytes};
  const cudaStream_t stream = device_.compute_stream();
  if (plan.method == GemmMethod::kSimt) {
    return device_.Check(LaunchGemmSimt(args, dtype, plan.tile, stream), "LaunchGemmSimt");
  }
  return device_.Check(LaunchGemmMma(args, dtype, plan.tile, plan.grid, stream), "LaunchGemmMma");
}

absl::Status Gemm::RunLibrary(const LibraryProduct& product, const Rows& x, const Weights& w,
                              const GemmOutput& output) {
  const LibraryGemm& gemm = product.gemm;
  // Chunks have nearly the same size.
  const int64_t chunks = CeilDiv(x.rows, gemm.max_rows);
  const int64_t step = CeilDiv(CeilDiv(x.rows, chunks), 8) * 8;
  for (int64_t first = 0; first < x.rows; first += step) {
    const Rows chunk = Slice(x, first, std::min(step, x.rows - first));
    const GemmOutput target = Slice(output, first, gemm.dtype);
    absl::Status status = absl::UnimplementedError("too few rows");
    if (chunk.rows > gemm.min_rows) {
      void* const sums = product.gated ? workspace_.data() : target.out;
      const int64_t stride = product.gated ? gemm.n : target.out_stride;
      status = library_->Run(product.plan, chunk.data, chunk.stride, chunk.rows, w.data, sums,
                             stride, device_.compute_stream());
    }
    if (status.ok()) {
      methods_ |= kLibraryBit;
      status = FinishChunk(product, workspace_.data(), chunk.rows, target);
    } else if (absl::IsUnimplemented(status)) {
      status = RunOwn(chunk, w, target);
    }
    TLM_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Gemm::FinishChunk(const LibraryProduct& product, const void* sums, int64_t rows,
                               const GemmOutput& output) {
  const LibraryGemm& gemm = product.gemm;
  const cudaStream_t stream = device_.compute_stream();
  if (product.gated) {
    return device_.Check(
        LaunchSwiGlu(
            {.gate_up = sums, .gate_up_stride = gemm.n, .output = output, .m = rows, .n = gemm.n},
            gemm.dtype, stream),
        "LaunchSwiGlu");
  }
  if (output.bias == nullptr && output.activation == GemmActivation::kNone) {
    return absl::OkStatus();
  }
  return device_.Check(
      LaunchFinishProduct({.output = output, .m = rows, .n = gemm.n}, gemm.dtype, stream),
      "LaunchFinishProduct");
}

}  // namespace tlm
