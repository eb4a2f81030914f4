// With FAKE_NVML_OLD it has only the functions of every version, and the older name of the clock
// reasons.
#include "tests/support/nvml/fake_nvml.h"

#include <cstring>

tlm::FakeNvml fake_nvml;

namespace {

// Handles: the GPU, and an instance of it.
char gpu, instance;

int Result(const char* function) {
  const auto found = fake_nvml.errors.find(function);
  return found == fake_nvml.errors.end() ? 0 : found->second;
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
  const int result = Result("nvmlInit_v2");
  if (result == 0) fake_nvml.Set([] { ++fake_nvml.running; });
  return result;
}
int nvmlShutdown() {
  fake_nvml.Set([] { --fake_nvml.running; });
  return 0;
}
const char* nvmlErrorString(int result) { return result == 9 ? "Driver Not Loaded" : "Some Error"; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (uuid != fake_nvml.uuid) return 6;
  *device = fake_nvml.uuid.starts_with("MIG-") ? &instance : &gpu;
  return Result("nvmlDeviceGetHandleByUUID");
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  ++fake_nvml.memory_calls;
  fake_nvml.WaitUntil([] { return !fake_nvml.hangs; });
  *memory = {80'000, 50'000, 30'000};
  if (device == &instance) *memory = {10'000, 9'000, 1'000};
  return Result("nvmlDeviceGetMemoryInfo");
}

#ifdef FAKE_NVML_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = fake_nvml.clock_reasons;
  return 0;
}
#else

char event_set;  // its handle

struct Utilization {
  unsigned gpu, memory;
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

// Returns the result of a function that only a whole GPU supports.
int OfGpu(void* device, const char* function) { return device == &gpu ? Result(function) : 2; }

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.65.06", length);
  return Result("nvmlSystemGetDriverVersion");
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* device, void** parent) {
  *parent = &gpu;
  return device == &instance ? 0 : 2;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  *utilization = {87, 40};
  return device == &instance ? 3 : Result("nvmlDeviceGetUtilizationRates");
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 612'500;
  return OfGpu(device, "nvmlDeviceGetPowerUsage");
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return OfGpu(device, "nvmlDeviceGetEnforcedPowerLimit");
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  *degrees = 61;
  return sensor != 0 ? 2 : OfGpu(device, "nvmlDeviceGetTemperature");
}
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* megahertz) {
  *megahertz = 1755;
  return clock != 1 ? 2 : OfGpu(device, "nvmlDeviceGetClockInfo");
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  *reasons = fake_nvml.clock_reasons;
  return OfGpu(device, "nvmlDeviceGetCurrentClocksEventReasons");
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* errors) {
  *errors = 2;
  return kind != 1 || counter != 0 ? 2 : OfGpu(device, "nvmlDeviceGetTotalEccErrors");
}
int nvmlDeviceGetPcieReplayCounter(void* device, unsigned* replays) {
  *replays = 7;
  return OfGpu(device, "nvmlDeviceGetPcieReplayCounter");
}
int nvmlEventSetCreate(void** set) {
  *set = &event_set;
  fake_nvml.Set([] { ++fake_nvml.event_sets; });
  return 0;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  if (types != 8 || set != &event_set) return 2;
  return OfGpu(device, "nvmlDeviceRegisterEvents");
}
int nvmlEventSetWait_v2(void*, EventData* event, unsigned milliseconds) {
  if (milliseconds != 0 || fake_nvml.events.empty()) return 10;
  *event = {&gpu, fake_nvml.events[0], fake_nvml.events[1], ~0u, ~0u};
  fake_nvml.events.erase(fake_nvml.events.begin(), fake_nvml.events.begin() + 2);
  return 0;
}
int nvmlEventSetFree(void*) {
  fake_nvml.Set([] { --fake_nvml.event_sets; });
  return 0;
}
#endif
}
