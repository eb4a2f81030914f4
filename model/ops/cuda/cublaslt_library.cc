#include "model/ops/cuda/cublaslt_library.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/cuda_status.h"
#include "model/ops/cuda/gemm_candidates.h"

namespace tlm {
namespace {

constexpr int kAsked = 64;           // algorithms the library may name for a bucket
constexpr size_t kMaxTimed = 4;      // of those that agree
constexpr int kTimedRuns = 2;        // of each
constexpr uint32_t kAlignment = 16;  // bytes, of every matrix
constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

absl::Status LibraryStatus(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return Internal("cuBLASLt: {}: {}", call, cublasLtGetStatusString(status));
}

// Whether the library took nothing upon itself, as opposed to the device having failed.
bool Refused(cublasStatus_t status) {
  return status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_EXECUTION_FAILED &&
         status != CUBLAS_STATUS_INTERNAL_ERROR;
}

cudaDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      TLM_CHECK(dtype == DType::kF32);
      return CUDA_R_32F;
  }
}

// An event that tells the time.
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

template <typename T>
T ConfigOf(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
           T otherwise) {
  T value = otherwise;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : otherwise;
}

GemmAlgorithm Describe(const cublasLtMatmulHeuristicResult_t& result) {
  // What cannot be read counts as a split: such an algorithm is left alone.
  return {.id = ConfigOf<int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_ID, -1),
          .stages = ConfigOf<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0),
          .split_k = ConfigOf<int32_t>(result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2),
          .reduction = ConfigOf<uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 1),
          .workspace_bytes = result.workspaceSize};
}

// The library counts columns first: out^T [n, m] = w^T' [n, k] x^T [k, m], w being [k, n] to it and
// taken transposed. Rows of x and of out are its columns, so that any number of them is aligned.
struct Layouts {
  cublasLtMatrixLayoutOpaque_t w, x, out;
};

absl::StatusOr<Layouts> LayoutsOf(const LibraryGemm& gemm, int64_t m, int64_t x_stride,
                                  int64_t out_stride) {
  Layouts layouts;
  const auto n = static_cast<uint64_t>(gemm.n);
  const auto k = static_cast<uint64_t>(gemm.k);
  const auto columns = static_cast<uint64_t>(m);
  const cudaDataType in = TypeOf(gemm.dtype);
  const cudaDataType out = TypeOf(gemm.out_dtype);
  constexpr char kCall[] = "cublasLtMatrixLayoutInit";
  TLM_RETURN_IF_ERROR(
      LibraryStatus(cublasLtMatrixLayoutInit(&layouts.w, in, k, n, gemm.w_stride), kCall));
  TLM_RETURN_IF_ERROR(
      LibraryStatus(cublasLtMatrixLayoutInit(&layouts.x, in, k, columns, x_stride), kCall));
  TLM_RETURN_IF_ERROR(
      LibraryStatus(cublasLtMatrixLayoutInit(&layouts.out, out, n, columns, out_stride), kCall));
  return layouts;
}

class CublasLtLibrary : public GemmLibrary {
 public:
  CublasLtLibrary(CudaDevice& device, cublasLtHandle_t handle) : device_(device), handle_(handle) {}
  ~CublasLtLibrary() override {
    if (device_.MakeCurrent().ok()) cublasLtDestroy(handle_);
  }
  absl::Status Open();

  std::string version() const override;
  absl::StatusOr<int> Prepare(const LibraryGemm& gemm, const GemmProbe& probe) override;
  absl::Status Run(int plan, const void* x, int64_t x_stride, int64_t m, const void* w, void* out,
                   int64_t out_stride, cudaStream_t stream) override;

 private:
  // Rows are bucketed; an algorithm for each bucket.
  struct Plan {
    LibraryGemm gemm;
    std::vector<int64_t> buckets;
    std::vector<cublasLtMatmulAlgo_t> algorithms;  // as many as buckets: the plan holds
  };

  // The library's algorithms that may agree, in the order to try them.
  absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Candidates(const LibraryGemm& gemm,
                                                               const GemmProbe& probe, int64_t m);
  // Appends the fastest algorithm that agrees for rows in (above, plan->buckets[index]]; none if
  // there is none.
  absl::Status ChooseForBucket(const GemmProbe& probe, int64_t above, size_t index, Plan* plan);
  // Whether all of the rows' probes agree.
  absl::StatusOr<bool> Agrees(const LibraryGemm& gemm, const GemmProbe& probe,
                              const cublasLtMatmulAlgo_t& algorithm, int64_t above, int64_t most);
  absl::StatusOr<float> Time(const LibraryGemm& gemm, const GemmProbe& probe,
                             const cublasLtMatmulAlgo_t& algorithm, int64_t m);
  cublasStatus_t Launch(const LibraryGemm& gemm, const cublasLtMatmulAlgo_t& algorithm,
                        Layouts& layouts, const void* x, const void* w, void* out,
                        cudaStream_t stream);

  CudaDevice& device_;
  const cublasLtHandle_t handle_;
  cublasLtMatmulDescOpaque_t product_;  // one for all products
  std::vector<Plan> plans_;
};

absl::Status CublasLtLibrary::Open() {
  TLM_RETURN_IF_ERROR(LibraryStatus(
      cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  return LibraryStatus(cublasLtMatmulDescSetAttribute(&product_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                      &transposed, sizeof(transposed)),
                       "cublasLtMatmulDescSetAttribute");
}

std::string CublasLtLibrary::version() const {
  const size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

absl::StatusOr<int> CublasLtLibrary::Prepare(const LibraryGemm& gemm, const GemmProbe& probe) {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const auto number_of = [this](size_t index) {
    const Plan& plan = plans_[index];
    return plan.algorithms.size() == plan.buckets.size() ? static_cast<int>(index) : -1;
  };
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].gemm == gemm) return number_of(i);
  }
  Plan plan{.gemm = gemm, .buckets = RowBuckets(gemm.min_rows, gemm.max_rows), .algorithms = {}};
  int64_t above = gemm.min_rows;
  for (size_t i = 0; i < plan.buckets.size() && plan.algorithms.size() == i; ++i) {
    TLM_RETURN_IF_ERROR(ChooseForBucket(probe, above, i, &plan));
    above = plan.buckets[i];
  }
  plans_.push_back(std::move(plan));
  return number_of(plans_.size() - 1);
}

absl::Status CublasLtLibrary::ChooseForBucket(const GemmProbe& probe, int64_t above, size_t index,
                                              Plan* plan) {
  const int64_t most = plan->buckets[index];
  TLM_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> candidates,
                       Candidates(plan->gemm, probe, most));
  TLM_ASSIGN_OR_RETURN(
      const std::optional<size_t> best,
      ChooseFastest(
          candidates.size(), kMaxTimed,
          [&](size_t i) { return Agrees(plan->gemm, probe, candidates[i], above, most); },
          [&](size_t i) { return Time(plan->gemm, probe, candidates[i], most); }));
  if (best.has_value()) plan->algorithms.push_back(candidates[*best]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> CublasLtLibrary::Candidates(
    const LibraryGemm& gemm, const GemmProbe& probe, int64_t m) {
  cublasLtMatmulPreferenceOpaque_t preference;
  TLM_RETURN_IF_ERROR(
      LibraryStatus(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit"));
  const auto set = [&preference](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return LibraryStatus(
        cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  TLM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0}));
  TLM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                          static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TLM_RETURN_IF_ERROR(set(attribute, kAlignment));
  }
  TLM_ASSIGN_OR_RETURN(Layouts layouts, LayoutsOf(gemm, m, probe.x_stride, probe.out_stride));
  std::array<cublasLtMatmulHeuristicResult_t, kAsked> results{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &product_, &layouts.w, &layouts.x, &layouts.out,
                                     &layouts.out, &preference, kAsked, results.data(), &found);
  // Nothing for this shape is an answer, not an error, and so is whatever else goes wrong here:
  // nothing has been asked of the device.
  if (status != CUBLAS_STATUS_SUCCESS) return std::vector<cublasLtMatmulAlgo_t>();

  std::vector<cublasLtMatmulAlgo_t> usable;
  std::vector<GemmAlgorithm> described;
  for (const cublasLtMatmulHeuristicResult_t& result :
       std::span(results).first(static_cast<size_t>(found))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    usable.push_back(result.algo);
    described.push_back(Describe(result));
  }
  std::vector<cublasLtMatmulAlgo_t> candidates;
  for (const size_t i : TrialOrder(described, device_.properties().compute_major)) {
    candidates.push_back(usable[i]);
  }
  return candidates;
}

absl::StatusOr<bool> CublasLtLibrary::Agrees(const LibraryGemm& gemm, const GemmProbe& probe,
                                             const cublasLtMatmulAlgo_t& algorithm, int64_t above,
                                             int64_t most) {
  for (const int64_t m : ProbedRows(above, most)) {
    TLM_ASSIGN_OR_RETURN(Layouts layouts, LayoutsOf(gemm, m, probe.x_stride, probe.out_stride));
    const cublasStatus_t status =
        Launch(gemm, algorithm, layouts, probe.x, probe.w, probe.out, device_.compute_stream());
    if (Refused(status)) return false;
    TLM_RETURN_IF_ERROR(LibraryStatus(status, "cublasLtMatmul"));
    TLM_ASSIGN_OR_RETURN(const bool agrees, probe.agrees(m));
    if (!agrees) return false;
  }
  return true;
}

absl::StatusOr<float> CublasLtLibrary::Time(const LibraryGemm& gemm, const GemmProbe& probe,
                                            const cublasLtMatmulAlgo_t& algorithm, int64_t m) {
  const cudaStream_t stream = device_.compute_stream();
  const Event begin;
  const Event end;
  TLM_ASSIGN_OR_RETURN(Layouts layouts, LayoutsOf(gemm, m, probe.x_stride, probe.out_stride));
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventRecord(begin.get(), stream), "cudaEventRecord"));
  for (int run = 0; run < kTimedRuns; ++run) {
    TLM_RETURN_IF_ERROR(LibraryStatus(
        Launch(gemm, algorithm, layouts, probe.x, probe.w, probe.out, stream), "cublasLtMatmul"));
  }
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventRecord(end.get(), stream), "cudaEventRecord"));
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventSynchronize(end.get()), "cudaEventSynchronize"));
  float milliseconds = 0.0f;
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                                    "cudaEventElapsedTime"));
  return milliseconds;
}

cublasStatus_t CublasLtLibrary::Launch(const LibraryGemm& gemm,
                                       const cublasLtMatmulAlgo_t& algorithm, Layouts& layouts,
                                       const void* x, const void* w, void* out,
                                       cudaStream_t stream) {
  return cublasLtMatmul(handle_, &product_, &kOne, w, &layouts.w, x, &layouts.x, &kZero, out,
                        &layouts.out, out, &layouts.out, &algorithm, nullptr, 0, stream);
}

absl::Status CublasLtLibrary::Run(int plan, const void* x, int64_t x_stride, int64_t m,
                                  const void* w, void* out, int64_t out_stride,
                                  cudaStream_t stream) {
  TLM_CHECK(plan >= 0 && static_cast<size_t>(plan) < plans_.size());
  const Plan& chosen = plans_[static_cast<size_t>(plan)];
  TLM_CHECK(m > chosen.gemm.min_rows && m <= chosen.gemm.max_rows);
  const cublasLtMatmulAlgo_t& algorithm = chosen.algorithms[BucketOf(chosen.buckets, m)];
  TLM_ASSIGN_OR_RETURN(Layouts layouts, LayoutsOf(chosen.gemm, m, x_stride, out_stride));
  const cublasStatus_t status = Launch(chosen.gemm, algorithm, layouts, x, w, out, stream);
  if (Refused(status)) {
    return Unimplemented("cuBLASLt refuses {} rows of a product [{}, {}]: {}", m, chosen.gemm.n,
                         chosen.gemm.k, cublasLtGetStatusString(status));
  }
  return LibraryStatus(status, "cublasLtMatmul");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibrary(CudaDevice& device) {
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Unavailable("cuBLASLt cannot be opened: {}", cublasLtGetStatusString(status));
  }
  auto library = std::make_unique<CublasLtLibrary>(device, handle);
  TLM_RETURN_IF_ERROR(library->Open());
  return library;
}

}  // namespace tlm
