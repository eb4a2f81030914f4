#include "server/observe/nvml.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

// From nvml.h, NVML API Reference: the documented values and layouts.
using Handle = void*;    // nvmlDevice_t
using EventSet = void*;  // nvmlEventSet_t
using Code = int;        // nvmlReturn_t
constexpr Code kSuccess = 0;
constexpr Code kNotSupported = 3;
constexpr int kSmClock = 1;            // NVML_CLOCK_SM
constexpr int kGpuTemperature = 0;     // NVML_TEMPERATURE_GPU
constexpr int kUncorrectedErrors = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kSinceDriverLoad = 0;    // NVML_VOLATILE_ECC
constexpr uint64_t kXidEvent = 0x8;    // nvmlEventTypeXidCriticalError
constexpr size_t kVersionBytes = 80;   // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
struct Utilization {
  unsigned gpu, memory;  // per cent
};
struct Memory {
  unsigned long long total, free, used;
};
struct EventData {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

// A limit, because a driver that is about to fail could report without end.
constexpr int kMaxXidsAtOnce = 1000;

template <typename T>
std::optional<double> Scaled(const std::optional<T>& value, double by) {
  if (!value.has_value()) return std::nullopt;
  return static_cast<double>(*value) * by;
}

// Returns the last argument of an NVML function, if it succeeds; nullopt also when the library
// lacks it.
template <typename T>
std::optional<T> Ask(Code (*function)(Handle, T*), Handle device) {
  T value{};
  if (function == nullptr || function(device, &value) != kSuccess) return std::nullopt;
  return value;
}
template <typename T>
std::optional<T> Ask(Code (*function)(Handle, int, T*), Handle device, int which) {
  T value{};
  if (function == nullptr || function(device, which, &value) != kSuccess) return std::nullopt;
  return value;
}

}  // namespace

struct Nvml::Api {
  void* library = nullptr;
  Code (*init)();
  Code (*shutdown)();
  const char* (*error_text)(Code);
  Code (*device_of_uuid)(const char*, Handle*);
  Code (*memory)(Handle, Memory*);
  // Null if the library is older.
  Code (*driver_version)(char*, unsigned);
  Code (*gpu_of_instance)(Handle, Handle*);
  Code (*utilization)(Handle, Utilization*);
  Code (*power)(Handle, unsigned*);        // mW
  Code (*power_limit)(Handle, unsigned*);  // mW
  Code (*temperature)(Handle, int, unsigned*);
  Code (*clock)(Handle, int, unsigned*);  // MHz
  Code (*clock_reasons)(Handle, unsigned long long*);
  Code (*ecc_errors)(Handle, int, int, unsigned long long*);
  Code (*pcie_replays)(Handle, unsigned*);
  Code (*make_events)(EventSet*);
  Code (*register_events)(Handle, unsigned long long, EventSet);
  Code (*wait_event)(EventSet, EventData*, unsigned);  // ms
  Code (*free_events)(EventSet);

  // Finds the first of these names that the library has.
  template <typename Function>
  void Find(Function*& function, const char* name, const char* older_name = nullptr) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr && older_name != nullptr) Find(function, older_name);
  }
  template <typename Function>
  absl::Status Require(Function*& function, const char* name) {
    Find(function, name);
    if (function != nullptr) return absl::OkStatus();
    return FailedPrecondition("it has no {}", name);
  }
  absl::Status FindFunctions();
  absl::Status StatusOf(Code result, const char* call) const {
    if (result == kSuccess) return absl::OkStatus();
    const char* const text = error_text(result);
    return FailedPrecondition("{}: {} ({})", call, text == nullptr ? "unknown error" : text,
                              result);
  }
};

absl::Status Nvml::Api::FindFunctions() {
  TLM_RETURN_IF_ERROR(Require(init, "nvmlInit_v2"));
  TLM_RETURN_IF_ERROR(Require(shutdown, "nvmlShutdown"));
  TLM_RETURN_IF_ERROR(Require(error_text, "nvmlErrorString"));
  TLM_RETURN_IF_ERROR(Require(device_of_uuid, "nvmlDeviceGetHandleByUUID"));
  TLM_RETURN_IF_ERROR(Require(memory, "nvmlDeviceGetMemoryInfo"));
  Find(driver_version, "nvmlSystemGetDriverVersion");
  Find(gpu_of_instance, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  Find(utilization, "nvmlDeviceGetUtilizationRates");
  Find(power, "nvmlDeviceGetPowerUsage");
  Find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  Find(temperature, "nvmlDeviceGetTemperature");
  Find(clock, "nvmlDeviceGetClockInfo");
  Find(clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
       "nvmlDeviceGetCurrentClocksThrottleReasons");
  Find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
  Find(pcie_replays, "nvmlDeviceGetPcieReplayCounter");
  Find(make_events, "nvmlEventSetCreate");
  Find(register_events, "nvmlDeviceRegisterEvents");
  Find(wait_event, "nvmlEventSetWait_v2");
  Find(free_events, "nvmlEventSetFree");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& uuid,
                                                 const std::string& library) {
  auto api = std::make_unique<Api>();
  api->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (api->library == nullptr) {
    const char* const error = dlerror();
    return FailedPrecondition("{}", error == nullptr ? library + " cannot be opened" : error);
  }
  absl::Status status = api->FindFunctions();
  if (status.ok()) status = api->StatusOf(api->init(), "nvmlInit");
  if (!status.ok()) return WithContext(status, library);
  // From here on, destroying nvml ends what init began.
  std::unique_ptr<Nvml> nvml(new Nvml(uuid, std::move(api)));
  status = nvml->FindDevice();
  if (!status.ok()) return WithContext(status, library);
  nvml->ListenForXids();
  return nvml;
}

Nvml::Nvml(std::string uuid, std::unique_ptr<Api> api)
    : uuid_(std::move(uuid)), api_(std::move(api)) {
  std::array<char, kVersionBytes> version{};
  if (api_->driver_version != nullptr &&
      api_->driver_version(version.data(), version.size() - 1) == kSuccess) {
    driver_ = version.data();
  }
}

Nvml::~Nvml() {
  if (events_ != nullptr) api_->free_events(events_);
  api_->shutdown();
}

absl::Status Nvml::FindDevice() {
  Code result = api_->device_of_uuid(uuid_.c_str(), &instance_);
  // CUDA's UUID does not say whether it is an instance or a GPU.
  if (result != kSuccess && uuid_.starts_with("GPU-")) {
    const std::string instance = "MIG-" + uuid_.substr(4);
    if (api_->device_of_uuid(instance.c_str(), &instance_) == kSuccess) result = kSuccess;
  }
  TLM_RETURN_IF_ERROR(api_->StatusOf(result, uuid_.c_str()));
  gpu_ = Ask(api_->gpu_of_instance, instance_).value_or(instance_);
  return absl::OkStatus();
}

void Nvml::ListenForXids() {
  if (api_->make_events == nullptr || api_->register_events == nullptr ||
      api_->wait_event == nullptr || api_->free_events == nullptr) {
    return;
  }
  EventSet events = nullptr;
  if (api_->make_events(&events) != kSuccess) return;
  if (api_->register_events(gpu_, kXidEvent, events) == kSuccess) {
    events_ = events;
  } else {
    api_->free_events(events);
  }
}

void Nvml::ReadXids() {
  EventData event{};
  for (int i = 0; i < kMaxXidsAtOnce && api_->wait_event(events_, &event, 0) == kSuccess; ++i) {
    if (event.type != kXidEvent) continue;
    ++xid_errors_;
    last_xid_ = static_cast<int64_t>(event.data);
    spdlog::error("{}: Xid error {}", uuid_, event.data);
  }
}

GpuFigures Nvml::Read() {
  GpuFigures figures;
  figures.uuid = uuid_;
  figures.driver = driver_;
  // Read first: a lost GPU may still have reported why.
  if (events_ != nullptr) {
    ReadXids();
    figures.xid_errors = xid_errors_;
    figures.last_xid = last_xid_;
  }
  Memory memory{};
  const Code result = api_->memory(instance_, &memory);
  // GPUs that compute in the host's memory do not report their own.
  figures.answers = result == kSuccess || result == kNotSupported;
  if (!figures.answers) return figures;
  if (result == kSuccess) {
    figures.memory_used_bytes = static_cast<double>(memory.used);
    figures.memory_total_bytes = static_cast<double>(memory.total);
  }
  if (const auto utilization = Ask(api_->utilization, instance_)) {
    figures.utilization = utilization->gpu / 100.0;
    figures.memory_utilization = utilization->memory / 100.0;
  }
  figures.power_watts = Scaled(Ask(api_->power, gpu_), 1e-3);
  figures.power_limit_watts = Scaled(Ask(api_->power_limit, gpu_), 1e-3);
  figures.temperature_celsius = Scaled(Ask(api_->temperature, gpu_, kGpuTemperature), 1);
  figures.sm_clock_hertz = Scaled(Ask(api_->clock, gpu_, kSmClock), 1e6);
  figures.clock_reasons = Ask(api_->clock_reasons, gpu_);
  unsigned long long ecc = 0;
  if (api_->ecc_errors != nullptr &&
      api_->ecc_errors(gpu_, kUncorrectedErrors, kSinceDriverLoad, &ecc) == kSuccess) {
    figures.ecc_uncorrected = static_cast<double>(ecc);
  }
  figures.pcie_replays = Scaled(Ask(api_->pcie_replays, gpu_), 1);
  return figures;
}

}  // namespace tlm
