#include <algorithm>

#include "model/ops/cuda/kernels/gemm/gemm_probe.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

// 64 pseudo-random bits (Steele, Lea, Flood 2014: the finaliser of SplitMix64).
TLM_DEVICE uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

TLM_DEVICE RowWalk WalkElements(int64_t rows, int64_t columns) {
  return {rows, columns, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads};
}

template <typename T>
TLM_KERNEL ProbeFill(const ProbeFillArgs args) {
  LetNextStart();
  WaitForPrevious();
  const int64_t half = args.cols / 2;
  for (RowWalk walk = WalkElements(args.rows, args.cols); !walk.Done(); walk.Next()) {
    const int64_t row = walk.row;
    const int64_t col = walk.column;
    const bool repeats =
        static_cast<int32_t>(row) % args.cancelling_rows == 0 && col >= half && col < 2 * half;
    const int64_t source = row * args.cols + (repeats ? col - half : col);
    const uint64_t bits = Mixed(static_cast<uint64_t>(source) * 0x9e3779b97f4a7c15u + args.seed);
    const uint32_t exponent = 120 + static_cast<uint32_t>(bits >> 32) % 8;
    const uint32_t word = static_cast<uint32_t>(bits) & 0x807fffffu;
    const float value = FloatOfBits(word | exponent << 23);
    static_cast<T*>(args.data)[row * args.stride + col] =
        FromFloat<T>(repeats ? value * args.second_half : value);
  }
}

TLM_KERNEL ProbeCompare(const ProbeCompareArgs args) {
  LetNextStart();
  WaitForPrevious();
  uint32_t differences = 0;
  for (RowWalk walk = WalkElements(args.rows, args.words); !walk.Done(); walk.Next()) {
    const uint16_t a = static_cast<const uint16_t*>(args.a)[walk.row * args.a_stride + walk.column];
    const uint16_t b = static_cast<const uint16_t*>(args.b)[walk.row * args.b_stride + walk.column];
    differences += a != b ? 1 : 0;
  }
  if (differences != 0) AtomicAdd(args.differences, differences);
}

LaunchShape ShapeFor(int64_t elements) {
  const int64_t blocks = std::clamp<int64_t>((elements + kThreads - 1) / kThreads, 1, kMaxBlocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
}

}  // namespace

cudaError_t LaunchProbeFill(const ProbeFillArgs& args, DType dtype, cudaStream_t stream) {
  const LaunchShape shape = ShapeFor(args.rows * args.cols);
  if (dtype == DType::kBF16) return Launch(ProbeFill<Bf16>, shape, stream, args);
  return Launch(ProbeFill<F16>, shape, stream, args);
}

cudaError_t LaunchProbeInputs(const ProbeInputs& inputs, DType dtype, cudaStream_t stream) {
  const ProbeFillArgs x{.data = inputs.x,
                        .rows = inputs.m,
                        .cols = inputs.k,
                        .stride = inputs.k,
                        .seed = 2,
                        .cancelling_rows = 2};
  const ProbeFillArgs w{.data = inputs.w,
                        .rows = inputs.n,
                        .cols = inputs.k,
                        .stride = inputs.w_stride,
                        .seed = 1,
                        .second_half = -1.0f};
  const cudaError_t error = LaunchProbeFill(x, dtype, stream);
  return error != cudaSuccess ? error : LaunchProbeFill(w, dtype, stream);
}

cudaError_t LaunchProbeCompare(const ProbeCompareArgs& args, cudaStream_t stream) {
  return Launch(ProbeCompare, ShapeFor(args.rows * args.words), stream, args);
}

}  // namespace tlm
