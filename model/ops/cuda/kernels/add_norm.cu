#include "model/ops/cuda/kernels/add_norm.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
// Elements that the thread block covers at a time.
constexpr int kSpan = kThreads * kRun;

struct AddNormKernelArgs {
  AddNormArgs op;
  bool wide;  // all rows are moved in 16-byte accesses
};

// Returns the thread block's sum of one value per thread, the same in every thread: first pairwise
// over lanes, then over warps in order. All threads call it; `scratch` holds kWarps floats and may
// be reused after the next barrier.
TLM_DEVICE float BlockSum(float value, float* scratch) {
#pragma unroll
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  if (threadIdx.x % kWarpLanes == 0) scratch[threadIdx.x / kWarpLanes] = value;
  SyncThreads();
  float sum = scratch[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) sum += scratch[warp];
  return sum;
}

// One row, as a thread processes it: runs threadIdx.x, threadIdx.x + 256, ...
template <typename T>
struct Row {
  const AddNormKernelArgs& args;
  float* x;        // the row
  const T* delta;  // the row, or null
  T* out;          // the row

  TLM_DEVICE int64_t Begin(int64_t span) const { return span * kSpan + threadIdx.x * kRun; }
  TLM_DEVICE int64_t Count(int64_t span) const { return args.op.dim - Begin(span); }

  // Loads x + delta of this thread's run of a span; zeros past the row's end.
  TLM_DEVICE void Load(int64_t span, float (&v)[kRun]) const {
    const int64_t begin = Begin(span);
    if (begin >= args.op.dim) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) v[i] = 0.0f;
      return;
    }
    LoadRun(x + begin, Count(span), args.wide, v);
    if (delta == nullptr) return;
    float more[kRun];
    LoadRun(delta + begin, Count(span), args.wide, more);
#pragma unroll
    for (int i = 0; i < kRun; ++i) v[i] += more[i];
  }
  TLM_DEVICE void StoreX(int64_t span, const float (&v)[kRun]) const {
    if (Begin(span) < args.op.dim) StoreRun(x + Begin(span), Count(span), args.wide, v);
  }
  TLM_DEVICE void LoadVector(const float* vector, int64_t span, float (&v)[kRun]) const {
    if (Begin(span) < args.op.dim) LoadRun(vector + Begin(span), Count(span), args.wide, v);
  }
  TLM_DEVICE void StoreOut(int64_t span, const float (&v)[kRun]) const {
    if (Begin(span) < args.op.dim) StoreRun(out + Begin(span), Count(span), args.wide, v);
  }

  TLM_DEVICE void AddTo(float& sum, const float (&v)[kRun]) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) sum += v[i];
  }
  // Skips elements past the end: they are 0, which differs from the mean.
  TLM_DEVICE void AddSquaresTo(float& sum, int64_t span, float mean, const float (&v)[kRun]) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float centred = i < Count(span) ? v[i] - mean : 0.0f;
      sum = Fma(centred, centred, sum);
    }
  }
  TLM_DEVICE void Finish(int64_t span, float mean, float scale, const float (&gain)[kRun],
                         float (&v)[kRun]) const {
    if (args.op.bias == nullptr) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) v[i] = v[i] * scale * gain[i];
    } else {
      float bias[kRun];
      LoadVector(args.op.bias, span, bias);
#pragma unroll
      for (int i = 0; i < kRun; ++i) v[i] = Fma((v[i] - mean) * scale, gain[i], bias[i]);
    }
    StoreOut(span, v);
  }
};

template <typename T>
TLM_DEVICE Row<T> ThisRow(const AddNormKernelArgs& args) {
  const AddNormArgs& op = args.op;
  const int64_t row = blockIdx.x;
  const int64_t source = op.gather == nullptr ? row : op.gather[row];
  const T* const delta = static_cast<const T*>(op.delta);
  return {args, op.x + source * op.x_stride,
          delta == nullptr ? nullptr : delta + source * op.delta_stride,
          static_cast<T*>(op.out) + row * op.out_stride};
}

// The scale for a mean of squares, or for a variance.
TLM_DEVICE float ScaleOf(const AddNormArgs& op, float mean_square) {
  if (op.eps_outside_root) return 1.0f / (Sqrt(mean_square) + op.eps);
  return 1.0f / Sqrt(mean_square + op.eps);
}

// One thread block per row of at most kSpans * kSpan elements, which stay in registers. The gains
// do not depend on earlier kernels, so they are loaded before the wait.
template <typename T, int kSpans>
TLM_KERNEL AddNorm(const AddNormKernelArgs args) {
  LetNextStart();
  const AddNormArgs& op = args.op;
  float gain[kSpans][kRun];
#pragma unroll
  for (int s = 0; s < kSpans; ++s) {
    const int64_t begin = s * kSpan + threadIdx.x * kRun;
    if (begin < op.dim) LoadRun(op.gain + begin, op.dim - begin, args.wide, gain[s]);
  }
  WaitForPrevious();
  const Row<T> row = ThisRow<T>(args);
  float* const scratch = SharedMemory<float>();
  float v[kSpans][kRun];
#pragma unroll
  for (int s = 0; s < kSpans; ++s) row.Load(s, v[s]);
  if (op.gather == nullptr && op.delta != nullptr) {
#pragma unroll
    for (int s = 0; s < kSpans; ++s) row.StoreX(s, v[s]);
  }
  float mean = 0.0f;
  if (op.bias != nullptr) {
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < kSpans; ++s) row.AddTo(sum, v[s]);
    mean = BlockSum(sum, scratch) / static_cast<float>(op.dim);
  }
  float squares = 0.0f;
#pragma unroll
  for (int s = 0; s < kSpans; ++s) row.AddSquaresTo(squares, s, mean, v[s]);
  const float scale = ScaleOf(op, BlockSum(squares, scratch + kWarps) / static_cast<float>(op.dim));
#pragma unroll
  for (int s = 0; s < kSpans; ++s) row.Finish(s, mean, scale, gain[s], v[s]);
}

// Rows of any length, read again in every pass; a thread reads only the elements of x that it
// wrote. The sums are the same, in the same order.
template <typename T>
TLM_KERNEL AddNormLong(const AddNormKernelArgs args) {
  LetNextStart();
  WaitForPrevious();
  const AddNormArgs& op = args.op;
  Row<T> row = ThisRow<T>(args);
  float* const scratch = SharedMemory<float>();
  const int64_t spans = (op.dim + kSpan - 1) / kSpan;
  float v[kRun];
  if (op.gather == nullptr && op.delta != nullptr) {
    for (int64_t s = 0; s < spans; ++s) {
      row.Load(s, v);
      row.StoreX(s, v);
    }
    row.delta = nullptr;
  }
  float mean = 0.0f;
  if (op.bias != nullptr) {
    float sum = 0.0f;
    for (int64_t s = 0; s < spans; ++s) {
      row.Load(s, v);
      row.AddTo(sum, v);
    }
    mean = BlockSum(sum, scratch) / static_cast<float>(op.dim);
  }
  float squares = 0.0f;
  for (int64_t s = 0; s < spans; ++s) {
    row.Load(s, v);
    row.AddSquaresTo(squares, s, mean, v);
  }
  const float scale = ScaleOf(op, BlockSum(squares, scratch + kWarps) / static_cast<float>(op.dim));
  for (int64_t s = 0; s < spans; ++s) {
    float gain[kRun];
    row.Load(s, v);
    row.LoadVector(op.gain, s, gain);
    row.Finish(s, mean, scale, gain, v);
  }
}

template <typename T>
cudaError_t LaunchFor(const AddNormKernelArgs& args, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.op.rows)),
                          .block = dim3(kThreads),
                          .shared_bytes = 2 * kWarps * sizeof(float)};
  if (args.op.dim <= kSpan) return Launch(AddNorm<T, 1>, shape, stream, args);
  if (args.op.dim <= 2 * kSpan) return Launch(AddNorm<T, 2>, shape, stream, args);
  if (args.op.dim <= 4 * kSpan) return Launch(AddNorm<T, 4>, shape, stream, args);
  return Launch(AddNormLong<T>, shape, stream, args);
}

template <typename T>
cudaError_t LoadFor() {
  return LoadKernels(AddNorm<T, 1>, AddNorm<T, 2>, AddNorm<T, 4>, AddNormLong<T>);
}

}  // namespace

cudaError_t LoadAddNorm(DType activations) {
  switch (activations) {
    case DType::kF32:
      return LoadFor<float>();
    case DType::kBF16:
      return LoadFor<Bf16>();
    case DType::kF16:
      return LoadFor<F16>();
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchAddNorm(const AddNormArgs& args, DType activations, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  const bool wide = args.dim % kRun == 0 && RunsAreAligned(args.x, args.x_stride) &&
                    RunsAreAligned(args.delta, args.delta_stride) && RunsAreAligned(args.gain, 0) &&
                    RunsAreAligned(args.bias, 0) && RunsAreAligned(args.out, args.out_stride);
  const AddNormKernelArgs kernel_args{.op = args, .wide = wide};
  switch (activations) {
    case DType::kF32:
      return LaunchFor<float>(kernel_args, stream);
    case DType::kBF16:
      return LaunchFor<Bf16>(kernel_args, stream);
    case DType::kF16:
      return LaunchFor<F16>(kernel_args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tlm
