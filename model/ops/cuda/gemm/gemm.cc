#include "model/ops/cuda/gemm/gemm.h"

#include <algorithm>
#include <set>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/gemm/gemm_candidates.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/dequantise.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_probe.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"

namespace tlm {
namespace {

// Bit of a method in a bit set.
constexpr uint32_t BitOf(GemmMethod method) { return 1u << static_cast<int>(method); }
constexpr uint32_t kLibraryBit = 1u << 31;

// Rows of x that the library gets at a time: enough to fill any device, few enough for the memory
// of probes and, with gated products, of the workspace.
constexpr int64_t kLibraryRows = 2048;
constexpr int64_t kGatedLibraryRows = 1024;
constexpr int64_t kRowStep = 64;

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

bool MayBeLibrarys(const MatrixLayout& layout) {
  return layout.n() > 0 && layout.k() > 0 &&
         UsesTensorCores(layout.n(), layout.k(), layout.dtype());
}

int64_t GatedChunkRows(const BatchLimits& limits) {
  return std::min(kGatedLibraryRows, CeilDiv(limits.max_tokens, kRowStep) * kRowStep);
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

// A CUDA event that can measure time.
class Event {
 public:
  Event() { cudaEventCreate(&event_); }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

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

size_t Gemm::ReserveBytes(const BatchLimits& limits) const {
  if (library_ == nullptr || limits.max_tokens <= kOwnRows) return 0;
  int64_t columns = 0;
  for (const auto& [layout, in_blocks] : layouts_) {
    if (layout.gated() && MayBeLibrarys(layout)) columns = std::max(columns, layout.n());
  }
  return static_cast<size_t>(GatedChunkRows(limits) * columns * 2);
}

size_t Gemm::ReserveBytes(const BatchLimits& limits, int64_t gated_outputs, DType dtype) const {
  if (library_ == nullptr || limits.max_tokens <= kOwnRows || dtype == DType::kF32) return 0;
  return static_cast<size_t>(GatedChunkRows(limits) * gated_outputs * 2);
}

void Gemm::Release() {
  workspace_ = Buffer();
  panel_ = Buffer();
  products_.clear();
}

std::vector<Gemm::LibraryProduct> Gemm::LibraryProducts(const BatchLimits& limits,
                                                        int64_t vocab_size) const {
  std::vector<LibraryProduct> products;
  for (const auto& [layout, in_blocks] : layouts_) {
    if (!MayBeLibrarys(layout)) continue;
    const bool logits = !layout.gated() && layout.n() == vocab_size;
    const DType out = logits ? DType::kF32 : layout.dtype();
    const int64_t most = logits ? limits.max_logits_rows : limits.max_tokens;
    if (most <= kOwnRows) continue;
    int64_t rows = std::min(kLibraryRows, CeilDiv(most, kRowStep) * kRowStep);
    if (layout.gated()) rows = GatedChunkRows(limits);
    // A matrix in blocks has full panels, and a last one.
    const int64_t panel = in_blocks ? PanelRows(layout) : layout.n();
    std::set<int64_t> outputs = {panel};
    if (layout.n() % panel != 0) outputs.insert(layout.n() % panel);
    for (const int64_t n : outputs) {
      const int64_t fitting =
          static_cast<int64_t>(kProbeBytes) / (n * ElementBytes(out)) / kRowStep * kRowStep;
      products.push_back(
          {.gemm = {.n = n,
                    .k = layout.k(),
                    .w_stride = layout.row_stride(),
                    .dtype = layout.dtype(),
                    .out_dtype = out,
                    .min_rows = kOwnRows,
                    .max_rows = std::clamp(rows, 2 * kRowStep, std::max(fitting, 2 * kRowStep))},
           .gated = layout.gated()});
    }
  }
  return products;
}

absl::Status Gemm::Reserve(const BatchLimits& limits, int64_t vocab_size, size_t panel_bytes) {
  if (panel_bytes > 0) {
    TLM_ASSIGN_OR_RETURN(panel_, device_.Allocate(panel_bytes, MemoryPurpose::kActivations));
  }
  const size_t bytes = ReserveBytes(limits);
  if (bytes > 0) {
    TLM_ASSIGN_OR_RETURN(workspace_, device_.Allocate(bytes, MemoryPurpose::kActivations));
  }
  if (library_ == nullptr) return absl::OkStatus();
  products_ = LibraryProducts(limits, vocab_size);
  for (LibraryProduct& product : products_) {
    const absl::Status status = Probe(product);
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
  }
  return device_.fault();
}

int Gemm::library_products() const {
  return static_cast<int>(
      std::count_if(products_.begin(), products_.end(),
                    [](const LibraryProduct& product) { return product.plan >= 0; }));
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

absl::Status Gemm::FillProbe(const LibraryGemm& gemm, const Rows& x, void* w) {
  const ProbeFillArgs x_args{.data = x.data,
                             .rows = x.rows,
                             .cols = x.cols,
                             .stride = x.stride,
                             .seed = 2,
                             .cancelling_rows = 2};
  const ProbeFillArgs w_args{.data = w,
                             .rows = gemm.n,
                             .cols = gemm.k,
                             .stride = gemm.w_stride,
                             .seed = 1,
                             .second_half = -1.0f};
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  for (const ProbeFillArgs& args : {x_args, w_args}) {
    TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeFill(args, gemm.dtype, device_.compute_stream()),
                                      "LaunchProbeFill"));
  }
  // Waits: products fetch weights before earlier kernels have ended, because elsewhere no kernel
  // writes weights.
  return device_.Synchronize();
}

absl::StatusOr<Gemm::ProbeMemory> Gemm::AllocateProbe(const LibraryProduct& product) {
  const LibraryGemm& gemm = product.gemm;
  const auto allocate = [this](int64_t elements, DType dtype) {
    return device_.Allocate(static_cast<size_t>(elements * ElementBytes(dtype)),
                            MemoryPurpose::kRuntime);
  };
  ProbeMemory memory;
  const MatrixLayout layout(gemm.n, gemm.k, gemm.dtype,
                            product.gated ? MatrixUse::kGated : MatrixUse::kPlain);
  TLM_ASSIGN_OR_RETURN(Buffer w, allocate(gemm.n * gemm.w_stride, gemm.dtype));
  memory.w = std::make_unique<CudaMatrix>(layout, std::move(w));
  TLM_ASSIGN_OR_RETURN(memory.x, allocate(gemm.max_rows * gemm.k, gemm.dtype));
  TLM_ASSIGN_OR_RETURN(memory.own, allocate(gemm.max_rows * gemm.n, gemm.out_dtype));
  TLM_ASSIGN_OR_RETURN(memory.out, allocate(gemm.max_rows * gemm.n, gemm.out_dtype));
  if (product.gated) {
    TLM_ASSIGN_OR_RETURN(memory.gated, allocate(gemm.max_rows * gemm.n / 2, gemm.dtype));
  }
  TLM_ASSIGN_OR_RETURN(memory.count, allocate(1, DType::kI32));
  TLM_ASSIGN_OR_RETURN(memory.flush, device_.Allocate(2 * l2_bytes_, MemoryPurpose::kRuntime));
  return memory;
}

absl::Status Gemm::Probe(LibraryProduct& product) {
  const LibraryGemm& gemm = product.gemm;
  TLM_ASSIGN_OR_RETURN(const ProbeMemory memory, AllocateProbe(product));
  const Rows x{memory.x.data(), gemm.max_rows, gemm.k, gemm.k, gemm.dtype};
  TLM_RETURN_IF_ERROR(FillProbe(gemm, x, const_cast<void*>(memory.w->data())));
  const bool float32 = gemm.out_dtype == DType::kF32;
  const GemmOutput sums{.out = memory.own.data(), .out_stride = gemm.n, .out_float32 = float32};
  // The output that a step needs from the product.
  const GemmOutput finished =
      product.gated
          ? GemmOutput{.out = memory.gated.data(), .out_stride = gemm.n / 2}
          : GemmOutput{.out = memory.out.data(), .out_stride = gemm.n, .out_float32 = float32};
  const Weights plain{.data = memory.w->data(),
                      .layout = MatrixLayout(gemm.n, gemm.k, gemm.dtype, MatrixUse::kPlain),
                      .of_n = gemm.n};
  const Weights gated{.data = memory.w->data(), .layout = memory.w->layout(), .of_n = gemm.n};
  TLM_RETURN_IF_ERROR(RunOwn(x, plain, sums));
  const auto time = [&](const GemmProbe::Product& run) {
    return MedianTime([&] { return TimeOnce(memory.flush, run); });
  };
  const GemmProbe probe{
      .x = x.data,
      .x_stride = x.stride,
      .w = memory.w->data(),
      .out = memory.out.data(),
      .out_stride = gemm.n,
      .agrees = [&](int64_t m,
                    const GemmProbe::Product& run) { return Agrees(product, memory, m, run); },
      .time =
          [&](int64_t m, const GemmProbe::Product& run) {
            return time([&, m]() -> absl::Status {
              TLM_RETURN_IF_ERROR(run());
              return FinishChunk(product, memory.out.data(), m, finished);
            });
          },
      .own_time =
          [&](int64_t m) {
            return time([&, m] { return RunOwn(Slice(x, 0, m), gated, finished); });
          }};
  TLM_ASSIGN_OR_RETURN(product.plan, library_->Prepare(gemm, probe));
  return absl::OkStatus();
}

absl::StatusOr<bool> Gemm::Agrees(const LibraryProduct& product, const ProbeMemory& memory,
                                  int64_t m, const GemmProbe::Product& run) {
  const cudaStream_t stream = device_.compute_stream();
  const int64_t words = product.gemm.n * ElementBytes(product.gemm.out_dtype) / 2;
  // Clears the memory, which may hold another algorithm's right answer.
  TLM_RETURN_IF_ERROR(device_.Check(
      cudaMemsetAsync(memory.out.data(), 0xff, static_cast<size_t>(m * words * 2), stream),
      "cudaMemsetAsync"));
  uint32_t differences = 0;
  TLM_RETURN_IF_ERROR(device_.CopyToDevice(memory.count.data(), &differences, sizeof(differences)));
  const absl::Status status = run();
  if (absl::IsUnimplemented(status)) return false;
  TLM_RETURN_IF_ERROR(status);
  TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeCompare({.a = memory.own.data(),
                                                        .b = memory.out.data(),
                                                        .rows = m,
                                                        .words = words,
                                                        .a_stride = words,
                                                        .b_stride = words,
                                                        .differences = memory.count.as<uint32_t>()},
                                                       stream),
                                    "LaunchProbeCompare"));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(&differences, memory.count.data(), sizeof(differences)));
  return differences == 0;
}

absl::StatusOr<float> Gemm::TimeOnce(const Buffer& flush, const GemmProbe::Product& run) {
  const cudaStream_t stream = device_.compute_stream();
  const Event begin;
  const Event end;
  // Takes long enough to queue all the rest meanwhile.
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaMemsetAsync(flush.data(), 0, flush.bytes(), stream), "cudaMemsetAsync"));
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventRecord(begin.get(), stream), "cudaEventRecord"));
  TLM_RETURN_IF_ERROR(run());
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventRecord(end.get(), stream), "cudaEventRecord"));
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventSynchronize(end.get()), "cudaEventSynchronize"));
  float milliseconds = 0.0f;
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                                    "cudaEventElapsedTime"));
  return milliseconds;
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
