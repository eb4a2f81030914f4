#include "model/ops/cuda/device/cuda_device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/ops/cuda/device/cuda_status.h"
#include "model/ops/cuda/kernels/launch.h"

namespace tlm {
namespace {

constexpr int kMinComputeMajor = 8;
constexpr size_t kStagingHalf = size_t{2} << 20;
constexpr int kMaxRecordings = 2;  // failed captures of a key before it is always run directly

constexpr std::string_view kGpuPrefix = "GPU-";
constexpr std::string_view kMigPrefix = "MIG-";

// "8932f937-d72c-4106-c12f-20bd9faed9f6".
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// Returns the prefix of the UUID that `asked` begins with; empty if it is an ordinal.
std::string_view UuidPrefix(std::string_view asked) {
  for (const std::string_view prefix : {kGpuPrefix, kMigPrefix}) {
    if (asked.starts_with(prefix)) return prefix;
  }
  return "";
}

// Returns the ordinal of the device that `asked` names, among `count` devices.
absl::StatusOr<int> NamedDevice(const std::string& asked, int count) {
  int ordinal = -1;
  if (absl::SimpleAtoi(asked, &ordinal) && ordinal >= 0 && ordinal < count) return ordinal;
  const std::string_view prefix = UuidPrefix(asked);
  const std::string beginning = absl::AsciiStrToLower(asked.substr(prefix.size()));
  std::vector<int> matching;
  std::vector<std::string> visible;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp read;
    TLM_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&read, i));
    const std::string uuid = UuidText(read.uuid);
    // The runtime reports the UUID's bytes, but not whether they belong to a GPU or to a MIG
    // instance.
    const std::string_view kind = prefix.empty() ? kGpuPrefix : prefix;
    visible.push_back(fmt::format("{}: {}{} ({})", i, kind, uuid, read.name));
    if (!prefix.empty() && !beginning.empty() && uuid.starts_with(beginning)) matching.push_back(i);
  }
  if (matching.size() == 1) return matching.front();
  if (matching.empty()) {
    return NotFound("CUDA device {} asked for, visible are {}", asked, fmt::join(visible, ", "));
  }
  return InvalidArgument("CUDA device {} asked for, {} begin so, visible are {}", asked,
                         matching.size(), fmt::join(visible, ", "));
}

absl::StatusOr<int> FindDevice(const std::string& asked) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return NotFound("no CUDA driver is installed");
    return FailedPrecondition("the driver speaks CUDA {}.{}, this program needs {}.{}",
                              driver / 1000, driver % 1000 / 10, runtime / 1000,
                              runtime % 1000 / 10);
  }
  if (error == cudaErrorNoDevice) return NotFound("no CUDA device is visible");
  TLM_RETURN_IF_ERROR(CudaStatus(error, "cudaGetDeviceCount"));
  return NamedDevice(asked, count);
}

// Makes device `ordinal` the calling thread's current device; no other code in the process changes
// that.
cudaError_t UseDevice(int ordinal) {
  thread_local int current = -1;
  if (current == ordinal) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) current = ordinal;
  return error;
}

// Returns how many bytes of free memory disappeared from one reading to the next.
size_t Taken(size_t before, size_t after) { return before > after ? before - after : 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaOptions& options) {
  TLM_ASSIGN_OR_RETURN(const int ordinal, FindDevice(options.device));
  std::unique_ptr<CudaDevice> device(new CudaDevice(options));
  TLM_RETURN_IF_ERROR(device->Open(ordinal, UuidPrefix(options.device)));
  // From 9.0 on, all code in the module waits for the previous kernel, also PTX:
  // .cmake/TlmCuda.cmake.
  SetKernelOverlap(options.overlap && device->properties_.compute_major >= 9);
  return device;
}

CudaDevice::CudaDevice(const CudaOptions& options)
    : max_graphs_(options.graphs ? static_cast<size_t>(std::max(0, options.max_graphs)) : 0),
      ahead_limit_(absl::Milliseconds(options.record_ahead_ms)) {}

CudaDevice::~CudaDevice() {
  // After a fault these calls fail; the error has already been reported.
  if (UseDevice(properties_.ordinal) != cudaSuccess) return;
  if (compute_stream_ != nullptr) cudaStreamSynchronize(compute_stream_);
  if (copy_stream_ != nullptr) cudaStreamSynchronize(copy_stream_);
  DestroyRetired(true);
  for (const auto& [key, graph] : graphs_) {
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  }
  for (const cudaEvent_t event : staging_.copied) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (copy_stream_ != nullptr) cudaStreamDestroy(copy_stream_);
  if (compute_stream_ != nullptr) cudaStreamDestroy(compute_stream_);
}

absl::Status CudaDevice::Open(int ordinal, std::string_view uuid_prefix) {
  properties_.ordinal = ordinal;
  TLM_CUDA_RETURN_IF_ERROR(UseDevice(ordinal));
  TLM_RETURN_IF_ERROR(ReadProperties(ordinal, uuid_prefix));
  TLM_RETURN_IF_ERROR(CreateStreams());
  TLM_ASSIGN_OR_RETURN(staging_.memory, AllocatePinned(staging_.copied.size() * kStagingHalf));
  return absl::OkStatus();
}

absl::Status CudaDevice::ReadProperties(int ordinal, std::string_view uuid_prefix) {
  cudaDeviceProp read;
  TLM_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&read, ordinal));
  if (read.major < kMinComputeMajor) {
    return FailedPrecondition("{} has compute capability {}.{}, {}.0 is the least", read.name,
                              read.major, read.minor, kMinComputeMajor);
  }
  properties_.compute_major = read.major;
  properties_.compute_minor = read.minor;
  properties_.multiprocessors = read.multiProcessorCount;
  properties_.shared_bytes_per_block = read.sharedMemPerBlockOptin;
  properties_.shared_bytes_per_multiprocessor = read.sharedMemPerMultiprocessor;
  properties_.l2_bytes = static_cast<size_t>(std::max(0, read.l2CacheSize));
  properties_.total_bytes = read.totalGlobalMem;
  TLM_ASSIGN_OR_RETURN(properties_.free_bytes, FreeBytes());
  info_.backend = "cuda";
  info_.name = read.name;
  info_.uuid = uuid_prefix.empty() ? kGpuPrefix : uuid_prefix;
  info_.uuid += UuidText(read.uuid);
  info_.arithmetic = fmt::format("sm_{}{}", read.major, read.minor);
  info_.total_bytes = read.totalGlobalMem;
  info_.free_bytes = properties_.free_bytes;
  info_.host_addressable = false;
  return absl::OkStatus();
}

absl::Status CudaDevice::CreateStreams() {
  // The streams do not synchronise with the default stream, which is not used here.
  TLM_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&compute_stream_, cudaStreamNonBlocking));
  TLM_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : staging_.copied) {
    TLM_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Check(cudaError_t error, std::string_view call) {
  if (!fault_.ok()) return fault_;
  if (error == cudaSuccess) return absl::OkStatus();
  absl::Status status = CudaStatus(error, call);
  // Clears the error, so that a later cudaGetLastError does not return it.
  cudaGetLastError();
  // A call that fails during a capture may succeed in a direct run.
  if (error == cudaErrorMemoryAllocation || recording_) return status;
  return fault_ = WithReason(std::move(status), kDeviceLost);
}

absl::Status CudaDevice::MakeCurrent() {
  return Check(UseDevice(properties_.ordinal), "cudaSetDevice");
}

absl::Status CudaDevice::Ready() {
  if (!fault_.ok()) return fault_;
  return MakeCurrent();
}

absl::StatusOr<size_t> CudaDevice::FreeBytes() {
  TLM_RETURN_IF_ERROR(Ready());
  size_t free = 0;
  size_t total = 0;
  TLM_RETURN_IF_ERROR(Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return free;
}

absl::StatusOr<Buffer> CudaDevice::Allocate(size_t bytes, MemoryPurpose purpose) {
  TLM_RETURN_IF_ERROR(Ready());
  if (bytes == 0) return Buffer();
  TLM_CHECK(!recording_);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    TLM_ASSIGN_OR_RETURN(const size_t free, FreeBytes());
    return CudaOutOfMemory("device memory", bytes, free);
  }
  TLM_RETURN_IF_ERROR(Check(error, "cudaMalloc"));
  std::atomic<size_t>& total = allocated_[static_cast<size_t>(purpose)];
  total.fetch_add(bytes, std::memory_order_relaxed);
  return Buffer(data, bytes, [&total, ordinal = properties_.ordinal](void* memory, size_t size) {
    UseDevice(ordinal);
    cudaFree(memory);
    total.fetch_sub(size, std::memory_order_relaxed);
  });
}

absl::StatusOr<Buffer> CudaDevice::AllocatePinned(size_t bytes) {
  TLM_RETURN_IF_ERROR(Ready());
  if (bytes == 0) return Buffer();
  TLM_CHECK(!recording_);
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return ResourceExhausted("{} bytes of pinned host memory could not be allocated", bytes);
  }
  TLM_RETURN_IF_ERROR(Check(error, "cudaHostAlloc"));
  pinned_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return Buffer(data, bytes, [this](void* memory, size_t size) {
    UseDevice(properties_.ordinal);
    cudaFreeHost(memory);
    pinned_bytes_.fetch_sub(size, std::memory_order_relaxed);
  });
}

std::array<size_t, kMemoryPurposes> CudaDevice::AllocatedBytes() const {
  std::array<size_t, kMemoryPurposes> bytes{};
  for (int purpose = 0; purpose < kMemoryPurposes; ++purpose) {
    bytes[purpose] = allocated_[purpose].load(std::memory_order_relaxed);
  }
  bytes[static_cast<size_t>(MemoryPurpose::kGraphs)] += graph_bytes_;
  return bytes;
}

absl::Status CudaDevice::CopyToDevice(void* to, const void* from, size_t bytes) {
  TLM_RETURN_IF_ERROR(Ready());
  TLM_CHECK(!recording_);
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(kStagingHalf, bytes - done);
    const int half = staging_.next;
    const cudaEvent_t copied = staging_.copied[static_cast<size_t>(half)];
    std::byte* const staged =
        staging_.memory.as<std::byte>() + static_cast<size_t>(half) * kStagingHalf;
    // An event that was never recorded counts as passed.
    TLM_RETURN_IF_ERROR(Check(cudaEventSynchronize(copied), "cudaEventSynchronize"));
    std::memcpy(staged, static_cast<const std::byte*>(from) + done, piece);
    TLM_RETURN_IF_ERROR(Check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staged, piece,
                                              cudaMemcpyHostToDevice, compute_stream_),
                              "cudaMemcpyAsync"));
    TLM_RETURN_IF_ERROR(Check(cudaEventRecord(copied, compute_stream_), "cudaEventRecord"));
    staging_.next = 1 - half;
    done += piece;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::CopyToHost(void* to, const void* from, size_t bytes) {
  TLM_RETURN_IF_ERROR(Ready());
  TLM_CHECK(!recording_);
  if (bytes == 0) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(
      Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, compute_stream_),
            "cudaMemcpyAsync"));
  return Check(cudaStreamSynchronize(compute_stream_), "cudaStreamSynchronize");
}

absl::Status CudaDevice::CopyOnDevice(void* to, const void* from, size_t bytes) {
  TLM_RETURN_IF_ERROR(Ready());
  if (bytes == 0) return absl::OkStatus();
  return Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_stream_),
               "cudaMemcpyAsync");
}

absl::Status CudaDevice::Synchronize() {
  TLM_RETURN_IF_ERROR(Ready());
  TLM_CHECK(!recording_);
  TLM_RETURN_IF_ERROR(Check(cudaStreamSynchronize(copy_stream_), "cudaStreamSynchronize"));
  return Check(cudaStreamSynchronize(compute_stream_), "cudaStreamSynchronize");
}

absl::Status CudaDevice::RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) {
  TLM_RETURN_IF_ERROR(Ready());
  if (key == 0) return fn();
  auto found = graphs_.find(key);
  if (max_graphs_ == 0 || (found != graphs_.end() && found->second.failures >= kMaxRecordings)) {
    ++run_counts_.direct;
    return fn();
  }
  if (found == graphs_.end()) {
    TLM_RETURN_IF_ERROR(RetireOldest());
    found = graphs_.try_emplace(key).first;
  }
  Graph& graph = found->second;
  graph.last_use = ++uses_;
  if (graph.exec != nullptr) {
    ++run_counts_.replayed;
  } else {
    Record(fn, &graph);
    if (graph.exec == nullptr) {
      ++run_counts_.direct;
      return fn();
    }
    ++run_counts_.recorded;
  }
  return Check(cudaGraphLaunch(graph.exec, compute_stream_), "cudaGraphLaunch");
}

absl::StatusOr<bool> CudaDevice::RecordAhead(uint64_t key,
                                             const std::function<absl::Status()>& fn) {
  TLM_RETURN_IF_ERROR(Ready());
  TLM_CHECK(key != 0);
  if (graphs_.contains(key)) return true;
  if (ahead_.graphs == 0) {
    TLM_ASSIGN_OR_RETURN(ahead_.free_before, FreeBytes());
    ahead_.free_after = ahead_.free_before;
  }
  if (graphs_.size() >= max_graphs_ || ahead_.time >= ahead_limit_ || ahead_.failed ||
      ahead_.free_after < ahead_.free_before / 2) {
    return false;
  }
  const absl::Time begin = Clock::Monotonic()->Now();
  TLM_RETURN_IF_ERROR(RecordOneAhead(key, fn));
  ahead_.time += Clock::Monotonic()->Now() - begin;
  return !ahead_.failed;
}

absl::Status CudaDevice::RecordOneAhead(uint64_t key, const std::function<absl::Status()>& fn) {
  Graph& graph = graphs_[key];
  Record(fn, &graph);
  ahead_.failed = graph.exec == nullptr;
  if (ahead_.failed) return absl::OkStatus();
  // Otherwise the first launch would do this.
  TLM_RETURN_IF_ERROR(Check(cudaGraphUpload(graph.exec, compute_stream_), "cudaGraphUpload"));
  ++ahead_.graphs;
  ++run_counts_.ahead;
  TLM_ASSIGN_OR_RETURN(ahead_.free_after, FreeBytes());
  CountGraphBytes();
  return absl::OkStatus();
}

// Uses the readings that RecordAhead made while the model loaded: later, other programs may
// allocate or free memory between two readings.
void CudaDevice::CountGraphBytes() {
  if (ahead_.graphs == 0) return;
  const auto recorded = static_cast<size_t>(ahead_.graphs);
  graph_bytes_ = Taken(ahead_.free_before, ahead_.free_after) / recorded * graphs_.size();
}

absl::Status CudaDevice::RetireOldest() {
  DestroyRetired(false);
  if (graphs_.size() < max_graphs_) return absl::OkStatus();
  const auto oldest = std::min_element(
      graphs_.begin(), graphs_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  const cudaGraphExec_t exec = oldest->second.exec;
  graphs_.erase(oldest);
  if (exec == nullptr) return absl::OkStatus();
  ++run_counts_.dropped;
  Retired& retired = retired_.emplace_back(Retired{.exec = exec});
  TLM_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&retired.idle, cudaEventDisableTiming),
                            "cudaEventCreateWithFlags"));
  return Check(cudaEventRecord(retired.idle, compute_stream_), "cudaEventRecord");
}

void CudaDevice::DestroyRetired(bool all) {
  auto left = retired_.begin();
  for (; left != retired_.end() && (all || cudaEventQuery(left->idle) == cudaSuccess); ++left) {
    cudaGraphExecDestroy(left->exec);
    if (left->idle != nullptr) cudaEventDestroy(left->idle);
  }
  retired_.erase(retired_.begin(), left);
}

absl::Status CudaDevice::DropGraphs() {
  TLM_RETURN_IF_ERROR(Ready());
  TLM_CHECK(!recording_);
  TLM_RETURN_IF_ERROR(Check(cudaStreamSynchronize(compute_stream_), "cudaStreamSynchronize"));
  DestroyRetired(true);
  absl::Status status;
  for (const auto& [key, graph] : graphs_) {
    if (graph.exec == nullptr) continue;
    status = Check(cudaGraphExecDestroy(graph.exec), "cudaGraphExecDestroy");
  }
  graphs_.clear();
  ahead_ = {};
  graph_bytes_ = 0;
  return status;
}

void CudaDevice::Record(const std::function<absl::Status()>& fn, Graph* graph) {
  // Thread-local mode: other threads may allocate meanwhile. This thread only queues work.
  cudaError_t error = cudaStreamBeginCapture(compute_stream_, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) {
    CountFailure(CudaStatus(error, "cudaStreamBeginCapture"), graph);
    return;
  }
  recording_ = true;
  const absl::Status run = fn();
  cudaGraph_t recorded = nullptr;
  error = cudaStreamEndCapture(compute_stream_, &recorded);
  recording_ = false;
  absl::Status status = run.ok() ? CudaStatus(error, "cudaStreamEndCapture") : run;
  if (status.ok()) {
    status = CudaStatus(cudaGraphInstantiate(&graph->exec, recorded, 0), "cudaGraphInstantiate");
    if (!status.ok()) graph->exec = nullptr;
  }
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  if (!status.ok()) {
    CountFailure(status, graph);
    return;
  }
  CountGraphBytes();
}

void CudaDevice::CountFailure(const absl::Status& why, Graph* graph) {
  cudaGetLastError();
  ++graph->failures;
  ++graph_failures_.count;
  graph_failures_.last = std::string(why.message());
}

}  // namespace tlm
