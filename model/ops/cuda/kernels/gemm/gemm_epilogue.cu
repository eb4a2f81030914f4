#include <algorithm>
#include <cstddef>

#include "model/ops/cuda/kernels/gemm/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 256;
// Enough to keep any device's memory busy; blocks continue with further runs.
constexpr int64_t kMaxBlocks = 4096;
// The same for SwiGlu, whose widths are usually multiples of 1024.
constexpr int kSwiGluThreads = 128;
constexpr int64_t kMaxSwiGluBlocks = 2048;

template <typename Op>
struct WithAlignment {
  Op op;
  bool wide;  // all rows move in pieces of 16 bytes
};

// A thread's runs of 8 columns.
TLM_DEVICE RowWalk WalkRuns(int64_t rows, int64_t columns) {
  return {rows, (columns + kRun - 1) / kRun, blockIdx.x * kThreads + threadIdx.x,
          gridDim.x * kThreads};
}

// Adds the bias of columns [first, first + count) to accumulators that are already rounded.
template <typename T>
TLM_DEVICE void AddBias(const GemmOutput& output, int first, int count, float (&v)[kRun]) {
  if (output.bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (i < count) v[i] = RoundOutput<T>(output, v[i] + output.bias[first + i]);
  }
}

template <typename T>
TLM_KERNEL FinishProduct(const WithAlignment<FinishProductArgs> args) {
  LetNextStart();
  WaitForPrevious();
  const GemmOutput& output = args.op.output;
  for (RowWalk run = WalkRuns(args.op.m, args.op.n); !run.Done(); run.Next()) {
    const int first = static_cast<int>(run.column) * kRun;
    const int count = static_cast<int>(args.op.n) - first;
    T* const at = static_cast<T*>(output.out) + run.row * output.out_stride + first;
    const bool wide = args.wide && count >= kRun;
    float v[kRun];
    LoadRun(at, count, wide, v);
    AddBias<T>(output, first, count, v);
    if (output.activation != GemmActivation::kNone) {
      // The values pass the one copy of the activations in turn.
#pragma unroll 1
      for (int i = 0; i < kRun; ++i) {
        const float activated = Activated(output.activation, v[0]);
#pragma unroll
        for (int j = 0; j + 1 < kRun; ++j) v[j] = v[j + 1];
        v[kRun - 1] = activated;
      }
    }
    StoreRun(at, count, wide, v);
  }
}

// Each thread stays in a run of columns and goes from row to row.
template <typename T>
TLM_KERNEL SwiGlu(const WithAlignment<SwiGluArgs> args) {
  LetNextStart();
  WaitForPrevious();
  const GemmOutput& output = args.op.output;
  const int columns = static_cast<int>(args.op.n / 2);
  const int first = static_cast<int>(blockIdx.x * kSwiGluThreads + threadIdx.x) * kRun;
  const int count = columns - first;
  if (count <= 0) return;
  const int group = first / kGateGroup * kGateGroup;
  const int left = columns - group;
  const int width = left < kGateGroup ? left : kGateGroup;  // width of the group
  const bool wide = args.wide && count >= kRun;
  const bool wide_up = wide && width % kRun == 0;
  const T* const gates = static_cast<const T*>(args.op.gate_up) + group + first;
  T* const out = static_cast<T*>(output.out) + first;
  const int rows = static_cast<int>(args.op.m);
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    const T* const row_gates = gates + row * args.op.gate_up_stride;
    float gate[kRun];
    float up[kRun];
    LoadRun(row_gates, count, wide, gate);
    LoadRun(row_gates + width, count, wide_up, up);
    AddBias<T>(output, first, count, gate);
    AddBias<T>(output, static_cast<int>(output.up_bias) + first, count, up);
    float v[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) v[i] = Silu(gate[i]) * up[i];
    StoreRun(out + row * output.out_stride, count, wide, v);
  }
}

LaunchShape ShapeFor(int64_t rows, int64_t columns) {
  const int64_t runs = rows * ((columns + kRun - 1) / kRun);
  const int64_t blocks = std::min((runs + kThreads - 1) / kThreads, kMaxBlocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
}

// Every block gets equally many rows, except the last one of a column.
LaunchShape SwiGluShape(int64_t rows, int64_t columns) {
  constexpr int64_t kColumns = kSwiGluThreads * kRun;
  const int64_t across = (columns + kColumns - 1) / kColumns;
  const int64_t rows_of_block = (rows * across + kMaxSwiGluBlocks - 1) / kMaxSwiGluBlocks;
  const int64_t down = (rows + rows_of_block - 1) / rows_of_block;
  return {.grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
          .block = dim3(kSwiGluThreads)};
}

}  // namespace

cudaError_t PrepareGemmEpilogue(DType dtype) {
  if (dtype == DType::kBF16) {
    return LoadKernels(FinishProduct<float>, FinishProduct<Bf16>, SwiGlu<Bf16>);
  }
  return LoadKernels(FinishProduct<float>, FinishProduct<F16>, SwiGlu<F16>);
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
  const LaunchShape shape = SwiGluShape(args.m, args.n / 2);
  const WithAlignment<SwiGluArgs> all{args,
                                      RunsAreAligned(args.output.out, args.output.out_stride) &&
                                          RunsAreAligned(args.gate_up, args.gate_up_stride)};
  if (dtype == DType::kBF16) return Launch(SwiGlu<Bf16>, shape, stream, all);
  return Launch(SwiGlu<F16>, shape, stream, all);
}

}  // namespace tlm
