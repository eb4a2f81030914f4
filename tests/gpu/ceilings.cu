// What this GPU can do at the best, measured: the denominators of every fraction that is reported.
//
//   ceilings [OUTPUT.json]
//
//   read       a kernel that reads 8 GiB once and keeps an integer of it
//   copy       cudaMemcpy of 4 GiB on the device, bytes read and bytes written counted
//   matmul     8192 x 8192 x 8192 in bfloat16 by cuBLASLt's first choice, random operands; left out
//              without cuBLASLt
//   upload     cudaMemcpyAsync of 1 GiB from pinned host memory
//   launch     an empty kernel in a graph of 1,000
//   context    the process's first call to the driver and the device's context
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "model/ops/cuda/gemm/cublaslt_api.h"
#include "tests/gpu/measure.h"

namespace {

namespace cublaslt = tlm::cublaslt;
using tlm::gpu::Check;
using tlm::gpu::MedianSeconds;
#define CHECK_LT(call) Check((call) == cublaslt::kSuccess, #call)

__global__ void Read(const uint4* from, size_t count, uint32_t* to) {
  uint32_t bits = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = __ldcs(from + i), b = __ldcs(from + i + step);
    const uint4 c = __ldcs(from + i + 2 * step), d = __ldcs(from + i + 3 * step);
    bits ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
    bits ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) bits ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (bits == 0x9e3779b9) *to = bits;  // almost never, but the reads must happen
}

// Values between -1 and 1; real data, since zeros multiply faster.
__global__ void FillRandom(__nv_bfloat16* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    to[i] = __float2bfloat16(static_cast<float>(x ^ (x >> 16)) / 2147483648.0f - 1.0f);
  }
}

__global__ void Nothing() {}

double ReadRate(cudaStream_t stream, const cudaDeviceProp& device) {
  constexpr size_t kBytes = size_t{8} << 30;
  uint4* memory = nullptr;
  uint32_t* result = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, kBytes));
  CHECK_CUDA(cudaMalloc(&result, sizeof(uint32_t)));
  FillRandom<<<4096, 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(memory), kBytes / 2, 1);
  double best = 0;
  for (const int blocks : {4, 8, 16, 32}) {
    const double seconds = MedianSeconds(stream, 10, [&] {
      Read<<<blocks * device.multiProcessorCount, 256, 0, stream>>>(memory, kBytes / 16, result);
    });
    best = std::max(best, kBytes / seconds);
  }
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaFree(result));
  return best;
}

double CopyRate(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{4} << 30;
  void *from = nullptr, *to = nullptr;
  CHECK_CUDA(cudaMalloc(&from, kBytes));
  CHECK_CUDA(cudaMalloc(&to, kBytes));
  const double seconds = MedianSeconds(stream, 10, [&] {
    CHECK_CUDA(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  CHECK_CUDA(cudaFree(from));
  CHECK_CUDA(cudaFree(to));
  return 2.0 * kBytes / seconds;
}

// By the library that the module would take; 0 where there is none.
double MatMulRate(cudaStream_t stream, tlm::gpu::Report& report) {
  constexpr int64_t kSize = 8192;
  constexpr size_t kElements = kSize * kSize;
  constexpr size_t kWorkspace = size_t{64} << 20;
  std::optional<tlm::CublasLtApi> found_library;
  for (const char* const file : tlm::kCublasLtFiles) {
    if (found_library.has_value()) break;
    const absl::StatusOr<tlm::CublasLtApi> opened = tlm::OpenCublasLt(file);
    if (opened.ok()) {
      found_library = *opened;
    } else {
      std::printf("no matmul by it: %s\n", std::string(opened.status().message()).c_str());
    }
  }
  if (!found_library.has_value()) return 0;
  const tlm::CublasLtApi& library = *found_library;
  report.Add("cublaslt", static_cast<double>(library.GetVersion()), "%8.0f");
  __nv_bfloat16 *a = nullptr, *b = nullptr, *c = nullptr;
  void* workspace = nullptr;
  CHECK_CUDA(cudaMalloc(&a, kElements * 2));
  CHECK_CUDA(cudaMalloc(&b, kElements * 2));
  CHECK_CUDA(cudaMalloc(&c, kElements * 2));
  CHECK_CUDA(cudaMalloc(&workspace, kWorkspace));
  FillRandom<<<4096, 256, 0, stream>>>(a, kElements, 2);
  FillRandom<<<4096, 256, 0, stream>>>(b, kElements, 3);
  void *handle = nullptr, *product = nullptr, *layout = nullptr, *preference = nullptr;
  CHECK_LT(library.Create(&handle));
  CHECK_LT(library.MatmulDescCreate(&product, cublaslt::kComputeFloat32, cublaslt::kFloat32));
  CHECK_LT(library.MatmulDescSetAttribute(product, cublaslt::kDescTransA, &cublaslt::kTransposed,
                                          sizeof(cublaslt::kTransposed)));
  CHECK_LT(library.MatrixLayoutCreate(&layout, cublaslt::kBfloat16, kSize, kSize, kSize));
  CHECK_LT(library.MatmulPreferenceCreate(&preference));
  CHECK_LT(library.MatmulPreferenceSetAttribute(preference, cublaslt::kPreferWorkspace, &kWorkspace,
                                                sizeof(kWorkspace)));
  cublaslt::HeuristicResult choice;
  int found = 0;
  CHECK_LT(library.MatmulAlgoGetHeuristic(handle, product, layout, layout, layout, layout,
                                          preference, 1, &choice, &found));
  Check(found == 1, "choosing a product");
  const float one = 1.0f, zero = 0.0f;
  const double seconds = MedianSeconds(stream, 20, [&] {
    CHECK_LT(library.Matmul(handle, product, &one, a, layout, b, layout, &zero, c, layout, c,
                            layout, &choice.algorithm, workspace, kWorkspace, stream));
  });
  CHECK_LT(library.MatmulPreferenceDestroy(preference));
  CHECK_LT(library.MatrixLayoutDestroy(layout));
  CHECK_LT(library.MatmulDescDestroy(product));
  CHECK_LT(library.Destroy(handle));
  for (void* const memory :
       {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), workspace}) {
    CHECK_CUDA(cudaFree(memory));
  }
  return 2.0 * kSize * kSize * kSize / seconds;
}

double UploadRate(cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  void *host = nullptr, *device = nullptr;
  CHECK_CUDA(cudaMallocHost(&host, kBytes));
  CHECK_CUDA(cudaMalloc(&device, kBytes));
  const double seconds = MedianSeconds(stream, 5, [&] {
    CHECK_CUDA(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream));
  });
  CHECK_CUDA(cudaFreeHost(host));
  CHECK_CUDA(cudaFree(device));
  return kBytes / seconds;
}

double LaunchSeconds(cudaStream_t stream) {
  constexpr int kLaunches = 1000;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) Nothing<<<1, 32, 0, stream>>>();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  const double seconds =
      MedianSeconds(stream, 10, [&] { CHECK_CUDA(cudaGraphLaunch(replay, stream)); });
  CHECK_CUDA(cudaGraphExecDestroy(replay));
  CHECK_CUDA(cudaGraphDestroy(graph));
  return seconds / kLaunches;
}

}  // namespace

int main(int argc, char** argv) {
  const auto begin = std::chrono::steady_clock::now();
  if (!tlm::gpu::HasGpu("ceilings")) return 77;
  CHECK_CUDA(cudaFree(nullptr));
  const double context =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  cudaDeviceProp device;
  cudaStream_t stream;
  int driver = 0;
  CHECK_CUDA(cudaGetDeviceProperties(&device, 0));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaDriverGetVersion(&driver));
  std::printf("%s, %d multiprocessors, sm_%d%d\n", device.name, device.multiProcessorCount,
              device.major, device.minor);
  tlm::gpu::Report report(argc > 1 ? argv[1] : nullptr, device.name);
  report.Add("driver", driver, "%8.0f");
  report.Add("context_seconds", context, "%8.2f s");
  report.Add("read_bytes_per_second", ReadRate(stream, device), "%8.1f GB/s", 1e-9);
  report.Add("upload_bytes_per_second", UploadRate(stream), "%8.1f GB/s", 1e-9);
  report.Add("launch_seconds", LaunchSeconds(stream), "%8.2f us in a graph", 1e6);
  report.Add("copy_bytes_per_second", CopyRate(stream), "%8.1f GB/s", 1e-9);
  // The last: it needs a library.
  if (const double matmul = MatMulRate(stream, report); matmul > 0) {
    report.Add("matmul_flops", matmul, "%8.1f TFLOP/s (bf16)", 1e-12);
  }
  return 0;
}
