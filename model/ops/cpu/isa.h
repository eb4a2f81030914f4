// Instruction sets the CPU kernels are compiled for; the best the machine has is chosen at run
// time.
#ifndef TLM_MODEL_OPS_CPU_ISA_H_
#define TLM_MODEL_OPS_CPU_ISA_H_

#include <string_view>
#include <vector>

namespace tlm {

// Ordered: a later one is preferred where the machine has it.
enum class Isa { kPortable, kAvx2, kAvx512 };

// "portable", "avx2", "avx512"
std::string_view IsaName(Isa isa);

// What this binary was built with and this machine can run, ascending; kPortable is always there.
std::vector<Isa> AvailableIsas();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_ISA_H_
