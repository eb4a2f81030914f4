// NVIDIA's management library without a GPU. The results of its functions are in one struct, which
// tests find in the loaded library under the name "fake_nvml".
#ifndef TLM_TESTS_SUPPORT_NVML_FAKE_NVML_H_
#define TLM_TESTS_SUPPORT_NVML_FAKE_NVML_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tlm {

struct FakeNvml {
  // The GPU of the emulated device, or an instance of another GPU.
  std::string uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
  // By the function's name: its result instead of 0.
  std::map<std::string, int> errors;
  unsigned long long clock_reasons = 0x4 | 0x80;
  std::vector<unsigned long long> events;  // types and data of waiting events, in turn
  std::atomic<int> memory_calls = 0;
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool hangs = false;  // if true, nvmlDeviceGetMemoryInfo does not return
  int running = 0;     // calls of nvmlInit_v2 minus calls of nvmlShutdown
  int event_sets = 0;  // open event sets

  template <typename Change>
  void Set(Change change) {
    const std::lock_guard<std::mutex> lock(mutex);
    change();
    changed.notify_all();
  }
  template <typename Condition>
  void WaitUntil(Condition condition) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, condition);
  }
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_NVML_FAKE_NVML_H_
