// A module of another build: only its ABI's name may be requested.
#include <cstdlib>

#include "model/ops/cuda/cuda_module.h"

extern "C" {

const char* tlm_cuda_module_abi() { return "tlm 0.0.0, another compiler"; }

int tlm_cuda_create(const tlm::CudaOptions*, tlm::Ops**, char*, size_t) { std::abort(); }
}
