#include "tests/unit/model/ops/cuda/host_activations.h"

#include "model/ops/cuda/kernels/gemm/activations.h"

namespace tlm {

float HostSilu(float a) { return simt::Silu(a); }
float HostRelu(float a) { return simt::Relu(a); }
float HostGeluTanh(float a) { return simt::GeluTanh(a); }
float HostGelu(float a) { return simt::Gelu(a); }

}  // namespace tlm
