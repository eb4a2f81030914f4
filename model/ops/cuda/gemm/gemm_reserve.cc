// Gemm::Reserve: the memory of products, and the probe that decides which of them the library
// computes.
#include <algorithm>
#include <set>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "model/ops/cuda/gemm/gemm_candidates.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/gemm_probe.h"

namespace tlm {
namespace {

// Rows of x that the library gets at a time: enough to fill any device, few enough for the memory
// of probes and, with gated products, of the workspace.
constexpr int64_t kLibraryRows = 2048;
constexpr int64_t kGatedLibraryRows = 1024;
constexpr int64_t kRowStep = 64;

bool MayBeLibrarys(const MatrixLayout& layout) {
  return layout.n() > 0 && layout.k() > 0 &&
         UsesTensorCores(layout.n(), layout.k(), layout.dtype());
}

int64_t GatedChunkRows(const BatchLimits& limits) {
  return std::min(kGatedLibraryRows, CeilDiv(limits.max_tokens, kRowStep) * kRowStep);
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

}  // namespace

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
          static_cast<int64_t>(kProbeBytes / DTypeBytes(out)) / n / kRowStep * kRowStep;
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

absl::StatusOr<Gemm::ProbeMemory> Gemm::AllocateProbe(const LibraryProduct& product) {
  const LibraryGemm& gemm = product.gemm;
  const auto allocate = [this](int64_t elements, DType dtype) {
    return device_.Allocate(static_cast<size_t>(elements) * DTypeBytes(dtype),
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
  const ProbeInputs inputs{.x = x.data,
                           .w = const_cast<void*>(memory.w->data()),
                           .m = gemm.max_rows,
                           .n = gemm.n,
                           .k = gemm.k,
                           .w_stride = gemm.w_stride};
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  TLM_RETURN_IF_ERROR(device_.Check(LaunchProbeInputs(inputs, gemm.dtype, device_.compute_stream()),
                                    "LaunchProbeInputs"));
  // Waits: products fetch weights before earlier kernels have ended, because elsewhere no kernel
  // writes weights.
  TLM_RETURN_IF_ERROR(device_.Synchronize());
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
            return time([&, m] {
              return RunOwn({x.data, m, x.cols, x.stride, x.dtype}, gated, finished);
            });
          }};
  TLM_ASSIGN_OR_RETURN(product.plan, library_->Prepare(gemm, probe));
  return absl::OkStatus();
}

absl::StatusOr<bool> Gemm::Agrees(const LibraryProduct& product, const ProbeMemory& memory,
                                  int64_t m, const GemmProbe::Product& run) {
  const cudaStream_t stream = device_.compute_stream();
  const int64_t words =
      product.gemm.n * static_cast<int64_t>(DTypeBytes(product.gemm.out_dtype)) / 2;
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

}  // namespace tlm
