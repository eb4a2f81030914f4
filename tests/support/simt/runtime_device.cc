// Implements the runtime API's calls about errors, the device, memory and kernels.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/simt/api.h"

using namespace tlm::simt::emulated;  // NOLINT: the API's names are global

namespace tlm::simt::emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr int kVersion = CUDART_VERSION;
constexpr int kMaxBlocksPerMultiprocessor = 32;
constexpr size_t kReservedSharedBytes = 1024;  // bytes in each block

// The resources of an SM, by compute capability. CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability".
struct Multiprocessor {
  size_t shared_bytes;
  int threads;
  size_t shared_bytes_per_block() const {
    return std::min(shared_bytes - kReservedSharedBytes, kMaxSharedBytes);
  }
};
Multiprocessor TheMultiprocessor() {
  switch (TheDevice().options.compute_capability) {
    case 80:
    case 87:
      return {size_t{164} << 10, 2048};
    case 86:
    case 89:
    case 120:
    case 121:
      return {size_t{100} << 10, 1536};
    default:  // 9.0, 10.0, 10.3
      return {size_t{228} << 10, 2048};
  }
}

}  // namespace

cudaError_t Answer(cudaError_t error) {
  if (error == cudaSuccess) error = TheDevice().failure;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

namespace {

void NoteLoaded(KernelAddress kernel) {
  if (TheDevice().loaded.insert(kernel).second) ++TheDevice().counts.loaded;
}

}  // namespace

bool Capturing() { return !TheDevice().captures.empty(); }

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, KernelAddress kernel,
                         std::string_view name, std::function<void()> run) {
  Call call;
  Device& device = TheDevice();
  CUstream_st* stream = device.Find(config.stream);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const size_t threads = size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64 || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return Answer(cudaErrorInvalidConfiguration);
  }
  const auto allowed = device.allowed_shared_bytes.find(kernel);
  const size_t limit =
      std::clamp(allowed == device.allowed_shared_bytes.end() ? 0 : allowed->second,
                 kPlainSharedBytes, TheMultiprocessor().shared_bytes_per_block());
  if (config.dynamicSmemBytes > limit) return Answer(cudaErrorInvalidValue);
  auto launch = std::make_shared<Kernel>();
  launch->name = KernelName(kernel, name);
  if (stream->capture != nullptr && !device.loaded.contains(kernel)) {
    ReportFailure(launch->name + " is launched into a graph before it was loaded");
    return Answer(cudaErrorStreamCaptureUnsupported);
  }
  NoteLoaded(kernel);
  launch->grid = grid;
  launch->block = block;
  launch->shared_bytes = config.dynamicSmemBytes;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    launch->overlaps_previous |=
        config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
        config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
  }
  launch->run = std::move(run);
  device.Give(*stream, {std::move(launch), nullptr});
  return Answer(cudaSuccess);
}

cudaError_t SetKernelAttribute(KernelAddress kernel, cudaFuncAttribute attribute, int value) {
  Call call;
  NoteLoaded(kernel);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return Answer(cudaSuccess);
  if (value < 0 || static_cast<size_t>(value) > TheMultiprocessor().shared_bytes_per_block()) {
    return Answer(cudaErrorInvalidValue);
  }
  TheDevice().allowed_shared_bytes[kernel] = value;
  return Answer(cudaSuccess);
}

cudaError_t GetKernelAttributes(KernelAddress kernel, cudaFuncAttributes* attributes) {
  Call call;
  NoteLoaded(kernel);
  *attributes = {};
  attributes->maxThreadsPerBlock = kMaxThreads;
  attributes->ptxVersion = attributes->binaryVersion = TheDevice().options.compute_capability;
  const auto allowed = TheDevice().allowed_shared_bytes.find(kernel);
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(
      allowed == TheDevice().allowed_shared_bytes.end() ? kPlainSharedBytes : allowed->second);
  return Answer(cudaSuccess);
}

// Computes the occupancy by threads and shared memory; registers are not known here.
cudaError_t ActiveBlocks(KernelAddress kernel, int block_threads, size_t shared_bytes,
                         int* blocks) {
  Call call;
  if (block_threads <= 0) return Answer(cudaErrorInvalidValue);
  const Multiprocessor multiprocessor = TheMultiprocessor();
  const int by_threads = multiprocessor.threads / ((block_threads + 31) / 32 * 32);
  const size_t by_memory = multiprocessor.shared_bytes / (shared_bytes + kReservedSharedBytes);
  *blocks = std::min({kMaxBlocksPerMultiprocessor, by_threads, static_cast<int>(by_memory)});
  return Answer(cudaSuccess);
}

}  // namespace tlm::simt::emulated

// --- Errors. ---

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
const ErrorText& Text(cudaError_t error) {
  for (const ErrorText& text : kErrors) {
    if (text.error == error) return text;
  }
  static constexpr ErrorText kNone = {cudaErrorUnknown, "unrecognized error code",
                                      "unrecognized error code"};
  return kNone;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return Text(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return Text(error).text; }
cudaError_t cudaPeekAtLastError() {
  Call call;
  return TheDevice().failure != cudaSuccess ? TheDevice().failure : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

// --- The device. ---

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheDevice().options.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  Call call;
  const bool visible = device >= 0 && device < TheDevice().options.devices;
  return Answer(visible ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Call call;
  const Options& options = TheDevice().options;
  if (device < 0 || device >= options.devices) return Answer(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated GPU");
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(i);
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = options.memory_bytes;
  properties->sharedMemPerBlock = kPlainSharedBytes;
  properties->sharedMemPerBlockOptin = TheMultiprocessor().shared_bytes_per_block();
  properties->sharedMemPerMultiprocessor = TheMultiprocessor().shared_bytes;
  properties->reservedSharedMemPerBlock = kReservedSharedBytes;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = kLanes;
  properties->maxThreadsPerBlock = kMaxThreads;
  properties->maxThreadsPerMultiProcessor = TheMultiprocessor().threads;
  properties->maxBlocksPerMultiProcessor = kMaxBlocksPerMultiprocessor;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    properties->maxGridSize[i] = i == 0 ? 0x7fffffff : 65535;
  }
  properties->major = options.compute_capability / 10;
  properties->minor = options.compute_capability % 10;
  properties->multiProcessorCount = options.multiprocessors;
  properties->l2CacheSize = 50 << 20;
  properties->persistingL2CacheMaxSize = 32 << 20;
  properties->memoryBusWidth = 6144;
  properties->asyncEngineCount = 3;
  properties->concurrentKernels = properties->canMapHostMemory = properties->unifiedAddressing = 1;
  properties->ECCEnabled = 1;
  return Answer(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = properties.sharedMemPerBlock;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 3201000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = properties.memoryBusWidth;
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = properties.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = properties.sharedMemPerBlockOptin;
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  std::snprintf(id, length, "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  Call call;
  if (Capturing()) return Answer(cudaErrorStreamCaptureUnsupported);
  ++TheDevice().counts.synchronizations;
  TheDevice().DrainAll();
  return Answer(cudaSuccess);
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

// --- Memory. ---

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Call call;
  *total = TheDevice().memory.limit();
  *free = *total - TheDevice().memory.device_bytes() - TheDevice().graph_bytes;
  return Answer(cudaSuccess);
}

namespace {

cudaError_t Allocate(MemoryKind kind, void** pointer, size_t bytes) {
  Call call;
  if (Capturing()) return Answer(cudaErrorStreamCaptureUnsupported);
  return Answer(TheDevice().memory.Allocate(kind, bytes, pointer));
}

// Freeing waits for all work, as the driver does.
cudaError_t Free(MemoryKind kind, void* pointer) {
  Call call;
  if (pointer == nullptr) return Answer(cudaSuccess);
  if (Capturing()) return Answer(cudaErrorStreamCaptureUnsupported);
  TheDevice().DrainAll();
  return Answer(TheDevice().memory.Free(kind, pointer));
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return Allocate(MemoryKind::kDevice, pointer, bytes);
}
cudaError_t cudaFree(void* pointer) { return Free(MemoryKind::kDevice, pointer); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return Allocate(MemoryKind::kPinned, pointer, bytes);
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return Allocate(MemoryKind::kPinned, pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) { return Free(MemoryKind::kPinned, pointer); }
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  Call call;
  return Answer(TheDevice().memory.Register(pointer, bytes));
}
cudaError_t cudaHostUnregister(void* pointer) {
  const cudaError_t error = Free(MemoryKind::kRegistered, pointer);
  return error == cudaErrorInvalidValue ? cudaErrorHostMemoryNotRegistered : error;
}
