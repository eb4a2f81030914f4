#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/simt.h"
#include "tests/gpu/canon/mma_probe.h"

namespace tlm {
namespace {

using namespace simt;

TLM_DEVICE uint32_t Pair(const uint16_t* from) { return from[0] | uint32_t{from[1]} << 16; }

// A warp for each tile; fragments are read element by element, as simt.h lays them out.
template <typename T>
TLM_KERNEL MmaProbe(const MmaProbeArgs args) {
  WaitForPrevious();
  const int64_t tile = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int group = lane / 4;
  const int pair = 2 * (lane % 4);
  const uint16_t* const a = args.a + tile * 256 + group * 16 + pair;
  const uint16_t* const b = args.b + tile * 128 + group * 16 + pair;
  const int64_t at = tile * 128 + group * 8 + pair;
  float c[4] = {args.c[at], args.c[at + 1], args.c[at + 64], args.c[at + 65]};
  MultiplyAdd<T>(c, {Pair(a), Pair(a + 128), Pair(a + 8), Pair(a + 136)}, {Pair(b), Pair(b + 8)});
  args.out[at] = c[0];
  args.out[at + 1] = c[1];
  args.out[at + 64] = c[2];
  args.out[at + 65] = c[3];
}

}  // namespace

cudaError_t LaunchMmaProbe(const MmaProbeArgs& args, DType dtype, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.tiles)), .block = dim3(32)};
  return Launch(dtype == DType::kBF16 ? MmaProbe<Bf16> : MmaProbe<F16>, shape, stream, args);
}

}  // namespace tlm
