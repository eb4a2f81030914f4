// The interface between the server and libtlm_cuda.so, the module of the CUDA backend, which is
// opened at run time, so that the same program starts on machines without CUDA. It consists of C
// functions, plain structs and objects of the classes in model/ops. The ABI string ensures that
// both sides were compiled with the same layouts.
#ifndef TLM_MODEL_OPS_CUDA_CUDA_MODULE_H_
#define TLM_MODEL_OPS_CUDA_CUDA_MODULE_H_

#include <cstddef>

#include "model/ops/cuda/device/cuda_options.h"
#include "model/ops/ops.h"

namespace tlm {

inline constexpr char kCudaModuleFile[] = "libtlm_cuda.so";
inline constexpr char kCudaModuleAbiSymbol[] = "tlm_cuda_module_abi";
inline constexpr char kCudaCreateSymbol[] = "tlm_cuda_create";

using CudaModuleAbiFunction = const char*();
using CudaCreateFunction = int(const CudaOptions* options, Ops** out, char* error,
                               size_t error_size);

}  // namespace tlm

extern "C" {

// The program's version, its compiler and a hash of the headers that describe this interface. The
// program calls this first; if the string differs from its own, it calls nothing else.
const char* tlm_cuda_module_abi();

// Makes the backend on a device. Returns an absl::StatusCode. If it is 0, *out is the backend; it
// belongs to the caller and must be destroyed before the module is closed. Otherwise *out is null
// and `error` has one line of text, terminated and cut to `error_size` bytes. NOT_FOUND: no such
// device. FAILED_PRECONDITION: the driver or the device is too old. Throws nothing.
int tlm_cuda_create(const tlm::CudaOptions* options, tlm::Ops** out, char* error,
                    size_t error_size);
}

#endif  // TLM_MODEL_OPS_CUDA_CUDA_MODULE_H_
