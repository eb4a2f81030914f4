#include <algorithm>
#include <cstddef>

#include "model/ops/cuda/kernels/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm_kernels.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 256;
// Enough to keep any device's memory busy; blocks go on to further runs.
constexpr int64_t kMaxBlocks = 4096;

template <typename Op>
struct WithAlignment {
  Op op;
  bool wide;  // all rows move in pieces of 16 bytes
};

// A thread's runs of 8 columns: of all rows, one after the other.
struct RunCursor {
  int64_t index;
  int64_t row_runs;
  int64_t runs;

  TLM_DEVICE RunCursor(int64_t rows, int64_t columns)
      : index(int64_t{blockIdx.x} * kThreads + threadIdx.x),
        row_runs((columns + kRun - 1) / kRun),
        runs(rows * row_runs) {}
  TLM_DEVICE bool Done() const { return index >= runs; }
  TLM_DEVICE void Next() { index += int64_t{gridDim.x} * kThreads; }
  TLM_DEVICE int64_t row() const { return index / row_runs; }
  TLM_DEVICE int64_t column() const { return index % row_runs * kRun; }
};

template <typename T>
TLM_KERNEL FinishProduct(const WithAlignment<FinishProductArgs> args) {
  LetNextStart();
  WaitForPrevious();
  const GemmOutput& output = args.op.output;
  for (RunCursor run(args.op.m, args.op.n); !run.Done(); run.Next()) {
    const int64_t first = run.column();
    const int64_t count = args.op.n - first;
    T* const at = static_cast<T*>(output.out) + run.row() * output.out_stride + first;
    const bool wide = args.wide && count >= kRun;
    float v[kRun];
    LoadRun(at, count, wide, v);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i < count) v[i] = Activated(output.activation, Biased<T>(output, v[i], first + i));
    }
    StoreRun(at, count, wide, v);
  }
}

template <typename T>
TLM_KERNEL SwiGlu(const WithAlignment<SwiGluArgs> args) {
  LetNextStart();
  WaitForPrevious();
  const GemmOutput& output = args.op.output;
  const int64_t columns = args.op.n / 2;
  for (RunCursor run(args.op.m, columns); !run.Done(); run.Next()) {
    const int64_t first = run.column();
    const int64_t count = columns - first;
    const int64_t group = first / kGateGroup;
    const int64_t left = columns - group * kGateGroup;
    const int64_t width = left < kGateGroup ? left : kGateGroup;  // of the group
    const T* const gates = static_cast<const T*>(args.op.gate_up) +
                           run.row() * args.op.gate_up_stride + group * kGateGroup + first;
    const bool wide = args.wide && count >= kRun;
    float gate[kRun];
    float up[kRun];
    LoadRun(gates, count, wide, gate);
    LoadRun(gates + width, count, wide && width % kRun == 0, up);
    float v[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i >= count) continue;
      const float g = Biased<T>(output, gate[i], first + i);
      v[i] = Silu(g) * Biased<T>(output, up[i], columns + first + i);
    }
    StoreRun(static_cast<T*>(output.out) + run.row() * output.out_stride + first, count, wide, v);
  }
}

LaunchShape ShapeFor(int64_t rows, int64_t columns) {
  const int64_t runs = rows * ((columns + kRun - 1) / kRun);
  const int64_t blocks = std::min((runs + kThreads - 1) / kThreads, kMaxBlocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
}

}  // namespace

cudaError_t PrepareGemmEpilogue() {
  return LoadKernels(FinishProduct<float>, FinishProduct<Bf16>, FinishProduct<F16>, SwiGlu<Bf16>,
                     SwiGlu<F16>);
}

cudaError_t LaunchFinishProduct(const FinishProductArgs& args, DType dtype, cudaStream_t stream) {
  const LaunchShape shape = ShapeFor(args.m, args.n);
  const WithAlignment<FinishProductArgs> all{
      args, RunsAreAligned(args.output.out, args.output.out_stride)};
  if (args.output.out_float32) return Launch(FinishProduct<float>, shape, stream, all);
  if (dtype == DType::kBF16) return Launch(FinishProduct<Bf16>, shape, stream, all);
  return Launch(FinishProduct<F16>, shape, stream, all);
}

cudaError_t LaunchSwiGlu(const SwiGluArgs& args, DType dtype, cudaStream_t stream) {
  const LaunchShape shape = ShapeFor(args.m, args.n / 2);
  const WithAlignment<SwiGluArgs> all{args,
                                      RunsAreAligned(args.output.out, args.output.out_stride) &&
                                          RunsAreAligned(args.gate_up, args.gate_up_stride)};
  if (dtype == DType::kBF16) return Launch(SwiGlu<Bf16>, shape, stream, all);
  return Launch(SwiGlu<F16>, shape, stream, all);
}

}  // namespace tlm
