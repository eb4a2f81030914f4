// Options of the CUDA backend.
#ifndef TLM_MODEL_OPS_CUDA_CUDA_OPTIONS_H_
#define TLM_MODEL_OPS_CUDA_CUDA_OPTIONS_H_

#include <string>

namespace tlm {

// Each optimisation can be turned off; this changes the speed, never the bits.
struct CudaOptions {
  // Among the devices that CUDA_VISIBLE_DEVICES leaves: an ordinal, or a UUID as nvidia-smi -L
  // prints it ("GPU-...", "MIG-...") or the beginning of one.
  std::string device = "0";
  bool graphs = true;           // steps of shapes that recur are recorded once and replayed
  int max_graphs = 256;         // of them; the one used longest ago makes room
  int record_ahead_ms = 1'000;  // so long, at most, a start takes to record shapes to come
  bool overlap = true;  // a kernel may begin before the one before it ends, where devices can
  bool library = true;  // cuBLASLt where it gives the bits of own kernels and is faster
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_OPTIONS_H_
