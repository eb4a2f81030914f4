// Instruction sets the CPU kernels are compiled for; the best the machine has is chosen at run
// time.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_ISA_H_
#define TLM_MODEL_OPS_CPU_KERNELS_ISA_H_

#include <optional>
#include <string_view>
#include <vector>

namespace tlm {

struct Kernels;  // kernels.h

// Ordered: a later one is preferred where the machine has it.
enum class Isa {
  kPortable,    // what the compiler may assume of every processor of the architecture
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, VL, DQ
  kAvx512Bf16,  // and BF16, VNNI
  kAmxBf16,     // and AMX's tiles of BF16 and INT8
};

// "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"
std::string_view IsaName(Isa isa);
// nullopt for another name.
std::optional<Isa> IsaFromName(std::string_view name);

// What this binary was built with and this machine can run, ascending; kPortable is always there.
std::vector<Isa> AvailableIsas();

// The fastest kernels of `isa`, which this machine can run.
const Kernels& KernelsFor(Isa isa);

// Whether products of two bfloat16 are computed by instructions made for it: matrices of that type
// then take rows of that type.
constexpr bool HasBf16Products(Isa isa) { return isa >= Isa::kAvx512Bf16; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_ISA_H_
