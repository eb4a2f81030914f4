// kernels/activations.h on the host, for tests that are not compiled for a device.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_HOST_ACTIVATIONS_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_HOST_ACTIVATIONS_H_

namespace tlm {

float HostSilu(float a);
float HostRelu(float a);
float HostGeluTanh(float a);
float HostGelu(float a);

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_HOST_ACTIVATIONS_H_
