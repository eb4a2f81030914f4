// Options of the CUDA backend.
#ifndef TLM_MODEL_OPS_CUDA_DEVICE_CUDA_OPTIONS_H_
#define TLM_MODEL_OPS_CUDA_DEVICE_CUDA_OPTIONS_H_

#include <string>

namespace tlm {

// Each optimisation can be turned off. That changes the speed, never the bits of results.
struct CudaOptions {
  // A device that CUDA_VISIBLE_DEVICES makes visible: an ordinal, or a UUID as nvidia-smi -L prints
  // it ("GPU-...", "MIG-..."), or the beginning of a UUID.
  std::string device = "0";
  bool graphs = true;           // steps of recurring shapes are captured once and replayed
  int max_graphs = 256;         // the least recently used one is dropped
  int record_ahead_ms = 1'000;  // limit for captures while a model loads
  bool overlap = true;          // programmatic dependent launch, from compute capability 9.0
  bool library = true;  // cuBLASLt, where it gives the bits of the own kernels and is faster
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_DEVICE_CUDA_OPTIONS_H_
