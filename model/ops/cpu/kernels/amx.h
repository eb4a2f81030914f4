// AMX, the tile unit of x86-64 processors since Sapphire Rapids: whether this process may use it.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_AMX_H_
#define TLM_MODEL_OPS_CPU_KERNELS_AMX_H_

namespace tlm {

// The processor has tiles of 16 rows of 64 bytes and their products of BF16 and INT8, and the
// operating system saves them and has allowed this process to use them. The system is asked once,
// at the first call, and that holds for every thread. Thread-safe.
bool AmxAvailable();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_AMX_H_
