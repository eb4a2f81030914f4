// What ceilings and microbench measure with.
#ifndef TLM_TESTS_GPU_MEASURE_H_
#define TLM_TESTS_GPU_MEASURE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace tlm::gpu {

// Ends the program where `ok` is not.
inline void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s failed: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}
#define CHECK_CUDA(call) ::tlm::gpu::Check((call) == cudaSuccess, #call)

// The median time in seconds of `run` on the stream, of `count`, each between two events and behind
// `before`, which is not timed.
template <typename Run, typename Before>
double MedianSeconds(cudaStream_t stream, int count, Run run, Before before) {
  constexpr int kWarmUps = 3;
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + count; ++i) {
    before();
    CHECK_CUDA(cudaEventRecord(begin, stream));
    run();
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= kWarmUps) seconds.push_back(1e-3 * milliseconds);
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  std::nth_element(seconds.begin(), seconds.begin() + count / 2, seconds.end());
  return seconds[static_cast<size_t>(count / 2)];
}

template <typename Run>
double MedianSeconds(cudaStream_t stream, int count, Run run) {
  return MedianSeconds(stream, count, run, [] {});
}

// Whether there is a GPU; says so where there is none.
inline bool HasGpu(const char* program) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return true;
  std::printf("%s: skipped, there is no GPU: %s\n", program, cudaGetErrorString(error));
  return false;
}

// Measured values, printed and written as JSON one by one: what is there stays, whatever comes
// next.
class Report {
 public:
  // `path` null: printed only.
  Report(const char* path, const std::string& device)
      : path_(path), json_("{\"device\": \"" + device + "\"") {}

  // Prints `value` by `format`, times `scale`.
  void Add(const std::string& name, double value, const char* format, double scale = 1) {
    std::printf("%-36s ", name.c_str());
    std::printf(format, scale * value);
    std::printf("\n");
    std::fflush(stdout);
    if (path_ == nullptr) return;
    char number[32];
    std::snprintf(number, sizeof(number), "%.9g", value);
    json_ += ", \"" + name + "\": " + number;
    // A device, /dev/stdout, is written to; it must not be replaced.
    std::error_code none;
    const bool whole =
        !std::filesystem::exists(path_, none) || std::filesystem::is_regular_file(path_, none);
    const std::string aside = whole ? std::string(path_) + ".part" : path_;
    std::FILE* const file = std::fopen(aside.c_str(), "w");
    const bool written = file != nullptr && std::fprintf(file, "%s}\n", json_.c_str()) > 0;
    if (file == nullptr || std::fclose(file) != 0 || !written ||
        (whole && std::rename(aside.c_str(), path_) != 0)) {
      std::perror(path_);
      std::exit(1);
    }
  }

 private:
  const char* const path_;
  std::string json_;
};

}  // namespace tlm::gpu

#endif  // TLM_TESTS_GPU_MEASURE_H_
