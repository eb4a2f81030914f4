// What kernels are planned by, measured: latencies and rates that no specification names.
//
//   microbench [OUTPUT.json]
//
//   mma        clocks of one mma.sync.m16n8k16 behind another that it needs the sums of
//   boundary   from a kernel to the next in a graph of 1,000, of a block for each multiprocessor;
//              and with launches that let the next begin early (compute capability 9.0)
//   l2         reads of a working set that the L2 cache holds, by all multiprocessors and by half
//   of
//              them; clocks of one load that hits it
//   prefetch   reads of 16 MB: from memory, from memory after cp.async.bulk.prefetch.L2 (compute
//              capability 9.0), and once more; clocks that a warp takes to ask for 128 KB, in a
//              piece for each lane and in one
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/gpu/measure.h"

namespace {

using tlm::gpu::MedianSeconds;

constexpr int kRuns = 10;  // of each measurement by events
constexpr int kChain = 4096;

// One warp. clocks[0]: of the whole chain.
__global__ void MmaChain(int64_t* clocks, float* sums) {
  float c[4] = {0, 0, 0, 0};
  const uint32_t one = 0x3f803f80;  // two ones in bfloat16
  const int64_t begin = clock64();
#pragma unroll 16
  for (int i = 0; i < kChain; ++i) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4},"
        " {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(one));
  }
  // The last sums are needed for the end.
  if (c[0] < 0) sums[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
  const int64_t end = clock64();
  if (threadIdx.x == 0) clocks[0] = end - begin;
  sums[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}

// One thread walks `steps` pointers through L2, once to bring them there and once for the time.
__global__ void L2Chain(const uint64_t* chain, int steps, int64_t* clocks, uint64_t* last) {
  uint64_t at = 0;
  int64_t begin = 0;
  for (int pass = 0; pass < 2; ++pass) {
    begin = clock64();
    for (int i = 0; i < steps; ++i) {
      asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(chain + at) : "memory");
    }
  }
  *last = at;
  clocks[0] = clock64() - begin;
}

__device__ uint4 LoadL2(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// Reads `count` values `passes` times, past L1.
__global__ void ReadL2(const uint4* from, size_t count, int passes, uint32_t* to) {
  uint32_t bits = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (int pass = 0; pass < passes; ++pass) {
    size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
      const uint4 a = LoadL2(from + i), b = LoadL2(from + i + step);
      const uint4 c = LoadL2(from + i + 2 * step), d = LoadL2(from + i + 3 * step);
      bits ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
      bits ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < count; i += step) bits ^= LoadL2(from + i).x;
  }
  if (bits == 0x9e3779b9) *to = bits;  // almost never, but the reads must happen
}

// Waits for the kernel before it and writes a word: the least a kernel of a chain does.
__global__ void Link(uint32_t* words) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (threadIdx.x == 0) words[blockIdx.x] += 1;
}

constexpr unsigned kPrefetchBytes = 128 << 10;  // a block's, in a product of few rows

__device__ void PrefetchToL2(const char* from, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// A block for each `kPrefetchBytes`.
__global__ void Prefetch(const char* from) {
  if (threadIdx.x == 0) PrefetchToL2(from + blockIdx.x * size_t{kPrefetchBytes}, kPrefetchBytes);
}

// One warp asks for `kPrefetchBytes`. clocks[0]: until it goes on.
template <bool kByLane>
__global__ void AskForPrefetch(const char* from, int64_t* clocks) {
  const int64_t begin = clock64();
  if (kByLane) {
    PrefetchToL2(from + threadIdx.x * (kPrefetchBytes / 32), kPrefetchBytes / 32);
  } else if (threadIdx.x == 0) {
    PrefetchToL2(from, kPrefetchBytes);
  }
  __syncwarp();
  const int64_t end = clock64();
  if (threadIdx.x == 0) clocks[0] = end - begin;
}

__global__ void Spin(int64_t clocks) {
  const int64_t begin = clock64();
  while (clock64() - begin < clocks) {
  }
}

template <typename T>
T* Allocate(size_t count) {
  T* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, count * sizeof(T)));
  CHECK_CUDA(cudaMemset(memory, 0, count * sizeof(T)));
  return memory;
}

int64_t ReadClocks(cudaStream_t stream, const int64_t* clocks) {
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaStreamSynchronize(stream));
  int64_t value = 0;
  CHECK_CUDA(cudaMemcpy(&value, clocks, sizeof(value), cudaMemcpyDeviceToHost));
  return value;
}

double MmaChainClocks(cudaStream_t stream) {
  int64_t* const clocks = Allocate<int64_t>(1);
  float* const sums = Allocate<float>(32);
  int64_t least = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    MmaChain<<<1, 32, 0, stream>>>(clocks, sums);
    least = std::min(least, ReadClocks(stream, clocks));
  }
  CHECK_CUDA(cudaFree(clocks));
  CHECK_CUDA(cudaFree(sums));
  return static_cast<double>(least) / kChain;
}

double L2HitClocks(cudaStream_t stream) {
  constexpr int kSteps = 4096;
  constexpr int kStride = 128;  // words: 1 KiB, so that no load finds the line of another
  std::vector<uint64_t> chain(size_t{kSteps} * kStride, 0);
  // A walk over all of them in an order that no prefetcher guesses.
  for (int i = 0; i < kSteps; ++i) {
    const auto place = [](int step) { return static_cast<uint64_t>(step) * 1597 % kSteps; };
    chain[place(i) * kStride] = place((i + 1) % kSteps) * kStride;
  }
  uint64_t* const memory = Allocate<uint64_t>(chain.size());
  uint64_t* const last = Allocate<uint64_t>(1);
  int64_t* const clocks = Allocate<int64_t>(1);
  CHECK_CUDA(cudaMemcpy(memory, chain.data(), chain.size() * 8, cudaMemcpyHostToDevice));
  L2Chain<<<1, 1, 0, stream>>>(memory, kSteps, clocks, last);
  const int64_t taken = ReadClocks(stream, clocks);
  for (void* const freed :
       {static_cast<void*>(memory), static_cast<void*>(last), static_cast<void*>(clocks)}) {
    CHECK_CUDA(cudaFree(freed));
  }
  return static_cast<double>(taken) / kSteps;
}

// The best of grids of `blocks` blocks of `threads`.
struct Grid {
  int blocks, threads;
};
double L2ReadRate(cudaStream_t stream, std::initializer_list<Grid> grids, size_t bytes) {
  constexpr int kPasses = 20;
  uint4* const memory = Allocate<uint4>(bytes / 16);
  uint32_t* const result = Allocate<uint32_t>(1);
  double best = 0;
  for (const Grid& grid : grids) {
    const double seconds = MedianSeconds(stream, kRuns, [&] {
      ReadL2<<<grid.blocks, grid.threads, 0, stream>>>(memory, bytes / 16, kPasses, result);
    });
    best = std::max(best, static_cast<double>(bytes) * kPasses / seconds);
  }
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaFree(result));
  return best;
}

double BoundarySeconds(cudaStream_t stream, const cudaDeviceProp& device, bool overlap) {
  constexpr int kLaunches = 1000;
  uint32_t* words = Allocate<uint32_t>(static_cast<size_t>(device.multiProcessorCount));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(device.multiProcessorCount));
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = overlap ? 1 : 0;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK_CUDA(cudaLaunchKernelEx(&config, Link, words));  // loaded before it is captured
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) CHECK_CUDA(cudaLaunchKernelEx(&config, Link, words));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  const double seconds =
      MedianSeconds(stream, kRuns, [&] { CHECK_CUDA(cudaGraphLaunch(replay, stream)); });
  CHECK_CUDA(cudaGraphExecDestroy(replay));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaFree(words));
  return seconds / kLaunches;
}

struct PrefetchTimes {
  double cold = 0, prefetched = 0, warm = 0;  // seconds
};

PrefetchTimes TimePrefetch(cudaStream_t stream, const cudaDeviceProp& device, bool has_prefetch) {
  constexpr size_t kBytes = size_t{16} << 20, kOtherBytes = size_t{512} << 20;
  const int blocks = 4 * device.multiProcessorCount;
  uint4* const memory = Allocate<uint4>(kBytes / 16);
  uint4* const other = Allocate<uint4>(kOtherBytes / 16);  // more than any L2 holds
  uint32_t* const result = Allocate<uint32_t>(1);
  const auto read = [&] { ReadL2<<<blocks, 256, 0, stream>>>(memory, kBytes / 16, 1, result); };
  const auto drop = [&] { ReadL2<<<blocks, 256, 0, stream>>>(other, kOtherBytes / 16, 1, result); };
  const auto settle = [&] { Spin<<<1, 1, 0, stream>>>(200'000); };  // time to arrive
  PrefetchTimes times;
  times.cold = MedianSeconds(stream, kRuns, read, [&] { drop(), settle(); });
  times.warm = MedianSeconds(stream, kRuns, read, [&] { drop(), read(), settle(); });
  if (has_prefetch) {
    const auto prefetch = [&] {
      Prefetch<<<kBytes / kPrefetchBytes, 32, 0, stream>>>(reinterpret_cast<const char*>(memory));
    };
    times.prefetched = MedianSeconds(stream, kRuns, read, [&] { drop(), prefetch(), settle(); });
  }
  CHECK_CUDA(cudaGetLastError());
  for (void* const freed :
       {static_cast<void*>(memory), static_cast<void*>(other), static_cast<void*>(result)}) {
    CHECK_CUDA(cudaFree(freed));
  }
  return times;
}

template <bool kByLane>
double PrefetchClocks(cudaStream_t stream) {
  char* const memory = Allocate<char>(kPrefetchBytes);
  int64_t* const clocks = Allocate<int64_t>(1);
  int64_t least = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    AskForPrefetch<kByLane><<<1, 32, 0, stream>>>(memory, clocks);
    least = std::min(least, ReadClocks(stream, clocks));
  }
  CHECK_CUDA(cudaFree(clocks));
  CHECK_CUDA(cudaFree(memory));
  return static_cast<double>(least);
}

}  // namespace

int main(int argc, char** argv) {
  if (!tlm::gpu::HasGpu("microbench")) return 77;
  cudaDeviceProp device;
  cudaStream_t stream;
  CHECK_CUDA(cudaGetDeviceProperties(&device, 0));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const bool hopper = device.major >= 9;
  tlm::gpu::Report report(argc > 1 ? argv[1] : nullptr, device.name);  // without what it has not
  report.Add("mma_chain_clocks", MmaChainClocks(stream), "%8.1f clk");
  report.Add("boundary_us", 1e6 * BoundarySeconds(stream, device, false), "%8.2f us");
  if (hopper) {
    report.Add("boundary_overlap_us", 1e6 * BoundarySeconds(stream, device, true), "%8.2f us");
  }
  double best = 0;
  for (const int megabytes : {16, 24, 32}) {
    const int sms = device.multiProcessorCount;
    const double rate = L2ReadRate(stream, {{2 * sms, 256}, {4 * sms, 256}, {8 * sms, 256}},
                                   static_cast<size_t>(megabytes) << 20);
    report.Add("l2_read_" + std::to_string(megabytes) + "mib_bytes_per_second", rate, "%8.3g B/s");
    best = std::max(best, rate);
  }
  report.Add("l2_read_bytes_per_second", best, "%8.3g B/s");
  report.Add("l2_read_half_bytes_per_second",
             L2ReadRate(stream, {{device.multiProcessorCount / 2, 1024}}, size_t{24} << 20),
             "%8.3g B/s");
  report.Add("l2_hit_clocks", L2HitClocks(stream), "%8.1f clk");
  const PrefetchTimes times = TimePrefetch(stream, device, hopper);
  report.Add("read_16mib_cold_us", 1e6 * times.cold, "%8.2f us");
  report.Add("read_16mib_warm_us", 1e6 * times.warm, "%8.2f us");
  if (hopper) {
    report.Add("read_16mib_prefetched_us", 1e6 * times.prefetched, "%8.2f us");
    report.Add("prefetch_speedup", times.cold / times.prefetched, "%8.2f x");
    report.Add("prefetch_by_lane_clocks", PrefetchClocks<true>(stream), "%8.0f clk");
    report.Add("prefetch_at_once_clocks", PrefetchClocks<false>(stream), "%8.0f clk");
  }
  return 0;
}
