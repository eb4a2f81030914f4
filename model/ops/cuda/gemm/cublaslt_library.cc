#include "model/ops/cuda/gemm/cublaslt_library.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/gemm/cublaslt_api.h"
#include "model/ops/cuda/gemm/gemm_candidates.h"

namespace tlm {
namespace {

using cublaslt::Algorithm;
using cublaslt::HeuristicResult;

constexpr int kAsked = 64;       // limit for the algorithms that the library names for a bucket
constexpr size_t kMaxTimed = 4;  // limit for the algorithms that agree
constexpr uint32_t kMatrixAlignment = 16;  // bytes, of every matrix
constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

// Whether the call failed without any work on the device, as opposed to a failed device.
bool Refused(int status) {
  return status != cublaslt::kSuccess && status != cublaslt::kExecutionFailed &&
         status != cublaslt::kInternalError;
}

int TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return cublaslt::kBfloat16;
    case DType::kF16:
      return cublaslt::kFloat16;
    default:
      TLM_CHECK(dtype == DType::kF32);
      return cublaslt::kFloat32;
  }
}

// One of the library's descriptors.
using Descriptor = std::unique_ptr<void, int (*)(void*)>;

// The library is column-major: it computes out^T [n, m] = w^T' [n, k] x^T [k, m], where w is [k, n]
// to it and is transposed. Rows of x and of out are its columns, so any number of them is aligned.
struct Layouts {
  Descriptor w, x, out;
};

class CublasLtLibrary : public GemmLibrary {
 public:
  CublasLtLibrary(CudaDevice& device, CublasLtApi api, void* handle)
      : device_(device),
        api_(std::move(api)),
        handle_(handle),
        product_(nullptr, api_.MatmulDescDestroy),
        preference_(nullptr, api_.MatmulPreferenceDestroy) {}
  ~CublasLtLibrary() override {
    if (device_.MakeCurrent().ok()) api_.Destroy(handle_);
  }
  absl::Status Open();

  std::string version() const override { return CublasLtVersion(api_); }
  std::string last_failure() const override { return last_failure_; }
  absl::StatusOr<int> Prepare(const LibraryGemm& gemm, const GemmProbe& probe) override;
  absl::Status Run(int plan, const void* x, int64_t x_stride, int64_t m, const void* w, void* out,
                   int64_t out_stride, cudaStream_t stream) override;

 private:
  // One algorithm per bucket of row counts; nullopt: own kernels.
  struct Plan {
    LibraryGemm gemm;
    Layouts layouts;
    std::vector<int64_t> buckets;
    std::vector<std::optional<Algorithm>> algorithms;

    bool Computes() const {
      return std::any_of(algorithms.begin(), algorithms.end(),
                         [](const auto& algorithm) { return algorithm.has_value(); });
    }
  };

  absl::Status Check(int status, std::string_view call) const;
  absl::StatusOr<Descriptor> NewLayout(int type, int64_t rows, int64_t columns,
                                       int64_t stride) const;
  absl::StatusOr<Layouts> NewLayouts(const LibraryGemm& gemm, const GemmProbe& probe) const;
  // Sets the number of rows in the layouts of x and out.
  absl::Status SetRows(const Layouts& layouts, int64_t m, int64_t x_stride,
                       int64_t out_stride) const;
  template <typename T>
  T ConfigOf(const Algorithm& algorithm, int attribute, T otherwise) const;
  GemmAlgorithm Describe(const HeuristicResult& result) const;

  // The library's algorithms that may agree, in the order to try them.
  absl::StatusOr<std::vector<Algorithm>> Candidates(const Plan& plan, const GemmProbe& probe,
                                                    int64_t m) const;
  // The fastest algorithm that agrees for rows in (above, most], if one is faster than the own
  // kernels.
  absl::StatusOr<std::optional<Algorithm>> ChooseForBucket(const Plan& plan, const GemmProbe& probe,
                                                           int64_t above, int64_t most);
  // Queues the probe's product. Returns UNIMPLEMENTED if the algorithm cannot run it and the device
  // has not failed.
  absl::Status Try(const Plan& plan, const GemmProbe& probe, const Algorithm& algorithm, int64_t m);
  int Launch(const Layouts& layouts, const Algorithm& algorithm, const void* x, const void* w,
             void* out, cudaStream_t stream) const;
  // Call after a failed Launch: the library uses the same status for a refused launch and for a
  // failed device. Returns the device's error, if any. Must not be called while `stream` is
  // captured.
  absl::Status CheckDevice(cudaStream_t stream);
  // Gives the bucket of m rows to the own kernels, because Launch returned `status`. Returns
  // UNIMPLEMENTED if the device has not failed, and INTERNAL while `stream` is captured: the graph
  // may contain part of the library's work and must not be run.
  absl::Status GiveUp(Plan& plan, int64_t m, int status, cudaStream_t stream);

  CudaDevice& device_;
  const CublasLtApi api_;
  void* const handle_;
  Descriptor product_;     // one for all products
  Descriptor preference_;  // for all searches
  std::vector<Plan> plans_;
  std::string last_failure_;
};

absl::Status CublasLtLibrary::Check(int status, std::string_view call) const {
  if (status == cublaslt::kSuccess) return absl::OkStatus();
  return Internal("cuBLASLt: {}: {}", call, api_.GetStatusString(status));
}

absl::Status CublasLtLibrary::Open() {
  void* made = nullptr;
  TLM_RETURN_IF_ERROR(
      Check(api_.MatmulDescCreate(&made, cublaslt::kComputeFloat32, cublaslt::kFloat32),
            "MatmulDescCreate"));
  product_.reset(made);
  TLM_RETURN_IF_ERROR(
      Check(api_.MatmulDescSetAttribute(product_.get(), cublaslt::kDescTransA,
                                        &cublaslt::kTransposed, sizeof(cublaslt::kTransposed)),
            "MatmulDescSetAttribute"));
  TLM_RETURN_IF_ERROR(Check(api_.MatmulPreferenceCreate(&made), "MatmulPreferenceCreate"));
  preference_.reset(made);
  const auto set = [this](int attribute, auto value) {
    return Check(
        api_.MatmulPreferenceSetAttribute(preference_.get(), attribute, &value, sizeof(value)),
        "MatmulPreferenceSetAttribute");
  };
  TLM_RETURN_IF_ERROR(set(cublaslt::kPreferWorkspace, uint64_t{0}));
  TLM_RETURN_IF_ERROR(set(cublaslt::kPreferReductions, uint32_t{0}));
  for (const int attribute : cublaslt::kPreferAlignments) {
    TLM_RETURN_IF_ERROR(set(attribute, kMatrixAlignment));
  }
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> CublasLtLibrary::NewLayout(int type, int64_t rows, int64_t columns,
                                                      int64_t stride) const {
  void* made = nullptr;
  TLM_RETURN_IF_ERROR(Check(api_.MatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                                    static_cast<uint64_t>(columns), stride),
                            "MatrixLayoutCreate"));
  return Descriptor(made, api_.MatrixLayoutDestroy);
}

absl::StatusOr<Layouts> CublasLtLibrary::NewLayouts(const LibraryGemm& gemm,
                                                    const GemmProbe& probe) const {
  const int in = TypeOf(gemm.dtype);
  TLM_ASSIGN_OR_RETURN(Descriptor w, NewLayout(in, gemm.k, gemm.n, gemm.w_stride));
  TLM_ASSIGN_OR_RETURN(Descriptor x, NewLayout(in, gemm.k, gemm.max_rows, probe.x_stride));
  TLM_ASSIGN_OR_RETURN(Descriptor out,
                       NewLayout(TypeOf(gemm.out_dtype), gemm.n, gemm.max_rows, probe.out_stride));
  return Layouts{std::move(w), std::move(x), std::move(out)};
}

absl::Status CublasLtLibrary::SetRows(const Layouts& layouts, int64_t m, int64_t x_stride,
                                      int64_t out_stride) const {
  const auto set = [this](const Descriptor& layout, int attribute, auto value) {
    return Check(api_.MatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)),
                 "MatrixLayoutSetAttribute");
  };
  const auto columns = static_cast<uint64_t>(m);
  TLM_RETURN_IF_ERROR(set(layouts.x, cublaslt::kLayoutCols, columns));
  TLM_RETURN_IF_ERROR(set(layouts.x, cublaslt::kLayoutStride, x_stride));
  TLM_RETURN_IF_ERROR(set(layouts.out, cublaslt::kLayoutCols, columns));
  return set(layouts.out, cublaslt::kLayoutStride, out_stride);
}

template <typename T>
T CublasLtLibrary::ConfigOf(const Algorithm& algorithm, int attribute, T otherwise) const {
  T value = otherwise;
  size_t written = 0;
  const int status =
      api_.MatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written);
  return status == cublaslt::kSuccess ? value : otherwise;
}

GemmAlgorithm CublasLtLibrary::Describe(const HeuristicResult& result) const {
  const Algorithm& algorithm = result.algorithm;
  // An attribute that cannot be read counts as split-K, so the algorithm is not used.
  return {.id = ConfigOf<int32_t>(algorithm, cublaslt::kConfigId, -1),
          .stages = ConfigOf<uint32_t>(algorithm, cublaslt::kConfigStages, 0),
          .split_k = ConfigOf<int32_t>(algorithm, cublaslt::kConfigSplitK, 2),
          .reduction = ConfigOf<uint32_t>(algorithm, cublaslt::kConfigReduction, 1),
          .workspace_bytes = result.workspace_bytes};
}

absl::StatusOr<int> CublasLtLibrary::Prepare(const LibraryGemm& gemm, const GemmProbe& probe) {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const auto number_of = [this](size_t index) {
    return plans_[index].Computes() ? static_cast<int>(index) : -1;
  };
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].gemm == gemm) return number_of(i);
  }
  TLM_ASSIGN_OR_RETURN(Layouts layouts, NewLayouts(gemm, probe));
  Plan plan{.gemm = gemm,
            .layouts = std::move(layouts),
            .buckets = RowBuckets(gemm.min_rows, gemm.max_rows),
            .algorithms = {}};
  int64_t above = gemm.min_rows;
  for (const int64_t most : plan.buckets) {
    TLM_ASSIGN_OR_RETURN(const std::optional<Algorithm> chosen,
                         ChooseForBucket(plan, probe, above, most));
    plan.algorithms.push_back(chosen);
    above = most;
  }
  plans_.push_back(std::move(plan));
  return number_of(plans_.size() - 1);
}

absl::StatusOr<std::optional<Algorithm>> CublasLtLibrary::ChooseForBucket(const Plan& plan,
                                                                          const GemmProbe& probe,
                                                                          int64_t above,
                                                                          int64_t most) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Algorithm> candidates, Candidates(plan, probe, most));
  const auto product = [&](size_t i, int64_t m) {
    return [&, i, m] { return Try(plan, probe, candidates[i], m); };
  };
  TLM_ASSIGN_OR_RETURN(const std::optional<size_t> best,
                       ChooseFastest(
                           candidates.size(), kMaxTimed,
                           [&](size_t i) -> absl::StatusOr<bool> {
                             for (const int64_t m : ProbedRows(above, most)) {
                               TLM_ASSIGN_OR_RETURN(const bool agrees,
                                                    probe.agrees(m, product(i, m)));
                               if (!agrees) return false;
                             }
                             return true;
                           },
                           TimedRows(above, most), probe.own_time,
                           [&](size_t i, int64_t m) { return probe.time(m, product(i, m)); }));
  if (!best.has_value()) return std::nullopt;
  return candidates[*best];
}

absl::StatusOr<std::vector<Algorithm>> CublasLtLibrary::Candidates(const Plan& plan,
                                                                   const GemmProbe& probe,
                                                                   int64_t m) const {
  const Layouts& layouts = plan.layouts;
  TLM_RETURN_IF_ERROR(SetRows(layouts, m, probe.x_stride, probe.out_stride));
  std::array<HeuristicResult, kAsked> results{};
  int found = 0;
  const int status = api_.MatmulAlgoGetHeuristic(
      handle_, product_.get(), layouts.w.get(), layouts.x.get(), layouts.out.get(),
      layouts.out.get(), preference_.get(), kAsked, results.data(), &found);
  // No algorithm for this shape is a result, not an error. Neither is any other failure here,
  // because nothing has been launched yet.
  if (status != cublaslt::kSuccess) return std::vector<Algorithm>();

  std::vector<Algorithm> usable;
  std::vector<GemmAlgorithm> described;
  for (const HeuristicResult& result :
       std::span(results).first(static_cast<size_t>(std::clamp(found, 0, kAsked)))) {
    if (result.state != cublaslt::kSuccess) continue;
    usable.push_back(result.algorithm);
    described.push_back(Describe(result));
  }
  std::vector<Algorithm> candidates;
  for (const size_t i : TrialOrder(described, device_.properties().compute_major)) {
    candidates.push_back(usable[i]);
  }
  return candidates;
}

absl::Status CublasLtLibrary::Try(const Plan& plan, const GemmProbe& probe,
                                  const Algorithm& algorithm, int64_t m) {
  const cudaStream_t stream = device_.compute_stream();
  TLM_RETURN_IF_ERROR(SetRows(plan.layouts, m, probe.x_stride, probe.out_stride));
  const int status = Launch(plan.layouts, algorithm, probe.x, probe.w, probe.out, stream);
  if (status == cublaslt::kSuccess) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(CheckDevice(stream));
  return Unimplemented("cuBLASLt: Matmul: {}", api_.GetStatusString(status));
}

absl::Status CublasLtLibrary::CheckDevice(cudaStream_t stream) {
  // A failed device returns its error from every later call, too.
  TLM_RETURN_IF_ERROR(device_.Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  cudaGetLastError();
  return absl::OkStatus();
}

absl::Status CublasLtLibrary::GiveUp(Plan& plan, int64_t m, int status, cudaStream_t stream) {
  plan.algorithms[BucketOf(plan.buckets, m)].reset();
  device_.CountLibraryFailure();
  last_failure_ = fmt::format("{} rows of a product [{}, {}]: {}", m, plan.gemm.n, plan.gemm.k,
                              api_.GetStatusString(status));
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
  if (capture != cudaStreamCaptureStatusNone) return Check(status, "Matmul");
  TLM_RETURN_IF_ERROR(CheckDevice(stream));
  return Unimplemented("cuBLASLt failed: {}", last_failure_);
}

int CublasLtLibrary::Launch(const Layouts& layouts, const Algorithm& algorithm, const void* x,
                            const void* w, void* out, cudaStream_t stream) const {
  return api_.Matmul(handle_, product_.get(), &kOne, w, layouts.w.get(), x, layouts.x.get(), &kZero,
                     out, layouts.out.get(), out, layouts.out.get(), &algorithm, nullptr, 0,
                     stream);
}

absl::Status CublasLtLibrary::Run(int plan, const void* x, int64_t x_stride, int64_t m,
                                  const void* w, void* out, int64_t out_stride,
                                  cudaStream_t stream) {
  TLM_CHECK(plan >= 0 && static_cast<size_t>(plan) < plans_.size());
  Plan& chosen = plans_[static_cast<size_t>(plan)];
  TLM_CHECK(m > chosen.gemm.min_rows && m <= chosen.gemm.max_rows);
  const std::optional<Algorithm>& algorithm = chosen.algorithms[BucketOf(chosen.buckets, m)];
  if (!algorithm.has_value()) return absl::UnimplementedError("own kernels");
  TLM_RETURN_IF_ERROR(SetRows(chosen.layouts, m, x_stride, out_stride));
  const int status = Launch(chosen.layouts, *algorithm, x, w, out, stream);
  if (Refused(status)) {
    return Unimplemented("cuBLASLt refuses {} rows of a product [{}, {}]: {}", m, chosen.gemm.n,
                         chosen.gemm.k, api_.GetStatusString(status));
  }
  return status == cublaslt::kSuccess ? absl::OkStatus() : GiveUp(chosen, m, status, stream);
}

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeLibrary(CudaDevice& device,
                                                         const std::string& file) {
  TLM_ASSIGN_OR_RETURN(CublasLtApi api, OpenCublasLt(file));
  void* handle = nullptr;
  const int status = api.Create(&handle);
  if (status != cublaslt::kSuccess) {
    return Unavailable("{}: {} does not start: {}", file, CublasLtVersion(api),
                       api.GetStatusString(status));
  }
  auto library = std::make_unique<CublasLtLibrary>(device, std::move(api), handle);
  TLM_RETURN_IF_ERROR(library->Open());
  return library;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibraryFrom(
    CudaDevice& device, std::span<const std::string> files) {
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  std::string reasons;
  for (const std::string& file : files) {
    absl::StatusOr<std::unique_ptr<GemmLibrary>> library = MakeLibrary(device, file);
    if (library.ok()) return library;
    // A failed call inside the library leaves its error for the next cudaGetLastError: clear it.
    cudaGetLastError();
    if (!reasons.empty()) reasons += "; ";
    reasons += std::string(library.status().message());
  }
  return Unavailable("no cuBLASLt: {}", reasons);
}

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibrary(CudaDevice& device) {
  return MakeCublasLtLibraryFrom(
      device, std::vector<std::string>(kCublasLtFiles.begin(), kCublasLtFiles.end()));
}

}  // namespace tlm
