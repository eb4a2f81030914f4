// Implements the runtime API's calls about copies, streams, events and graphs.
#include <cstring>
#include <vector>

#include "tests/support/simt/api.h"

using namespace tlm::simt::emulated;  // NOLINT: the API's names are global

namespace {

struct Rectangle {
  unsigned char* to;
  size_t to_pitch;
  const unsigned char* from;
  size_t from_pitch;
  size_t width;
  size_t height;

  size_t to_span() const { return height == 0 ? 0 : to_pitch * (height - 1) + width; }
  size_t from_span() const { return height == 0 ? 0 : from_pitch * (height - 1) + width; }
};

void CopyNow(const Rectangle& copy) {
  for (size_t row = 0; row < copy.height; ++row) {
    std::memcpy(copy.to + row * copy.to_pitch, copy.from + row * copy.from_pitch, copy.width);
  }
}

bool OnDevice(const void* pointer, size_t bytes) {
  return TheDevice().memory.Holds(MemoryKind::kDevice, pointer, bytes);
}

// Both sides must be entirely in the memory of `kind`.
cudaError_t CheckCopy(const Rectangle& copy, cudaMemcpyKind kind) {
  if (copy.width > copy.to_pitch || copy.width > copy.from_pitch) return cudaErrorInvalidValue;
  if (copy.width == 0 || copy.height == 0 || kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != OnDevice(copy.to, to_device ? copy.to_span() : 1) ||
      from_device != OnDevice(copy.from, from_device ? copy.from_span() : 1)) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t CopyAsync(const Rectangle& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  Call call;
  Device& device = TheDevice();
  CUstream_st* stream = device.Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  const cudaError_t error = CheckCopy(copy, kind);
  if (error != cudaSuccess) return Answer(error);
  if (copy.width == 0 || copy.height == 0) return Answer(cudaSuccess);
  const auto pageable = [&device](const void* pointer, size_t bytes) {
    return !OnDevice(pointer, bytes) && !device.memory.IsPinned(pointer, bytes);
  };
  const bool from_pageable = pageable(copy.from, copy.from_span());
  const bool to_pageable = pageable(copy.to, copy.to_span());
  if (stream->capture != nullptr && (from_pageable || to_pageable)) {
    return Answer(cudaErrorStreamCaptureUnsupported);
  }
  if (from_pageable) {
    // The driver reads pageable memory before it returns.
    auto staged = std::make_shared<std::vector<unsigned char>>(copy.from_span());
    std::memcpy(staged->data(), copy.from, copy.from_span());
    device.Give(*stream, {nullptr, [copy, staged] {
                            Rectangle from_staged = copy;
                            from_staged.from = staged->data();
                            CopyNow(from_staged);
                          }});
  } else {
    device.Give(*stream, {nullptr, [copy] { CopyNow(copy); }});
  }
  if (to_pageable) {  // the driver also fills such memory before it returns
    ++device.counts.synchronizations;
    device.Drain(*stream);
  }
  return Answer(cudaSuccess);
}

cudaError_t CopyAndWait(const Rectangle& copy, cudaMemcpyKind kind) {
  Call call;
  if (Capturing()) return Answer(cudaErrorStreamCaptureImplicit);
  ++TheDevice().counts.synchronizations;
  return CopyAsync(copy, kind, nullptr);
}

Rectangle Line(void* to, const void* from, size_t bytes) {
  return {static_cast<unsigned char*>(to),
          bytes,
          static_cast<const unsigned char*>(from),
          bytes,
          bytes,
          1};
}
Rectangle Rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
               size_t height) {
  return {static_cast<unsigned char*>(to),
          to_pitch,
          static_cast<const unsigned char*>(from),
          from_pitch,
          width,
          height};
}

}  // namespace

// --- Copies. ---

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return CopyAndWait(Line(to, from, bytes), kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return CopyAsync(Line(to, from, bytes), kind, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return CopyAndWait(Rows(to, to_pitch, from, from_pitch, width, height), kind);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return CopyAsync(Rows(to, to_pitch, from, from_pitch, width, height), kind, stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
  Call call;
  Device& device = TheDevice();
  CUstream_st* stream = device.Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return Answer(cudaSuccess);
  if (!device.memory.Reaches(to, bytes)) return Answer(cudaErrorInvalidValue);
  device.Give(*stream, {nullptr, [to, value, bytes] { std::memset(to, value, bytes); }});
  return Answer(cudaSuccess);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

// --- Streams. ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Call call;
  *stream = new CUstream_st;
  (*stream)->waits_for_default = (flags & cudaStreamNonBlocking) == 0;
  TheDevice().streams.insert(*stream);
  return Answer(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call;
  if (!TheDevice().streams.contains(stream)) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  TheDevice().Drain(*stream);
  TheDevice().streams.erase(stream);
  delete stream;
  return Answer(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  ++TheDevice().counts.synchronizations;
  TheDevice().Drain(*stream);
  return Answer(cudaSuccess);
}
// Each query runs one item of the stream, so that polling makes progress.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  if (stream->queue.empty()) return Answer(cudaSuccess);
  TheDevice().Step(*stream);
  return Answer(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  TheDevice().Give(*stream, {nullptr, [function, data] { function(data); }});
  return Answer(cudaSuccess);
}

// --- Events. ---

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  Call call;
  *event = new CUevent_st;
  return Answer(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call;
  delete event;
  return Answer(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr || event == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  auto marker = std::make_shared<Marker>();
  marker->stream = stream;
  marker->capture = stream->capture;
  event->marker = marker;
  if (stream->capture == nullptr) {
    TheDevice().Give(*stream, {nullptr, [marker] {
                                 marker->reached = true;
                                 marker->time = std::chrono::steady_clock::now();
                               }});
  }
  return Answer(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr || event == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Marker> marker = event->marker;
  if (marker == nullptr) return Answer(cudaSuccess);
  if (marker->capture != nullptr) {
    // A stream that waits for a captured stream joins the same capture.
    if (!TheDevice().captures.contains(marker->capture)) {
      return Answer(cudaErrorStreamCaptureInvalidated);
    }
    stream->capture = marker->capture;
    return Answer(cudaSuccess);
  }
  if (stream->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  TheDevice().Give(*stream, {nullptr, [marker] {
                               if (!marker->reached) TheDevice().Drain(*marker->stream, &*marker);
                             }});
  return Answer(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call;
  if (event == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  Marker* marker = event->marker.get();
  if (marker == nullptr || marker->reached) return Answer(cudaSuccess);
  if (marker->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  TheDevice().Step(*marker->stream);
  return Answer(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call;
  if (event == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  ++TheDevice().counts.synchronizations;
  const std::shared_ptr<Marker> marker = event->marker;
  if (marker == nullptr || marker->reached) return Answer(cudaSuccess);
  if (marker->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  TheDevice().Drain(*marker->stream, marker.get());
  return Answer(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  Call call;
  if (start == nullptr || end == nullptr || start->marker == nullptr || end->marker == nullptr) {
    return Answer(cudaErrorInvalidResourceHandle);
  }
  if (!start->marker->reached || !end->marker->reached) return Answer(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->marker->time - start->marker->time).count();
  return Answer(cudaSuccess);
}

// --- Graphs. ---

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Call call;
  Device& device = TheDevice();
  if (stream == nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  if (!device.streams.contains(stream)) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Answer(cudaErrorInvalidValue);
  auto* graph = new CUgraph_st;
  graph->origin = stream;
  stream->capture = graph;
  device.captures.insert(graph);
  return Answer(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Call call;
  Device& device = TheDevice();
  if (!device.streams.contains(stream)) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture == nullptr) return Answer(cudaErrorInvalidValue);
  if (stream->capture->origin != stream) return Answer(cudaErrorStreamCaptureUnmatched);
  *graph = stream->capture;
  (*graph)->origin = nullptr;
  device.captures.erase(*graph);
  for (CUstream_st* other : device.streams) {
    if (other->capture == *graph) other->capture = nullptr;
  }
  return Answer(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Call call;
  CUstream_st* stream = TheDevice().Find(handle);
  if (stream == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  *status =
      stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return Answer(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  Call call;
  if (graph == nullptr || graph->origin != nullptr) return Answer(cudaErrorInvalidValue);
  Device& device = TheDevice();
  const size_t bytes = device.options.graph_bytes;
  if (device.memory.device_bytes() + device.graph_bytes + bytes > device.memory.limit()) {
    return Answer(cudaErrorMemoryAllocation);
  }
  device.graph_bytes += bytes;
  *exec = new CUgraphExec_st{graph->work, bytes};
  return Answer(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  Call call;
  return Answer(exec == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  Call call;
  Device& device = TheDevice();
  CUstream_st* stream = device.Find(handle);
  if (stream == nullptr || exec == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Answer(cudaErrorStreamCaptureUnsupported);
  ++device.counts.graph_launches;
  // A graph's first kernel waits for everything before it, and the work after the graph waits for
  // all of it.
  device.Give(*stream, {nullptr, [] {}});
  for (const Work& work : exec->work) device.Give(*stream, work);
  ++*exec->running;
  device.Give(*stream, {nullptr, [running = exec->running] { --*running; }});
  return Answer(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Call call;
  delete graph;
  return Answer(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Call call;
  if (exec == nullptr) return Answer(cudaErrorInvalidResourceHandle);
  if (*exec->running > 0) ReportFailure("a graph is destroyed that has not run to its end");
  TheDevice().graph_bytes -= exec->bytes;
  delete exec;
  return Answer(cudaSuccess);
}
