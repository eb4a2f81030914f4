// Instruction sets that the CPU kernels are compiled for; the best one of the machine is chosen at
// run time.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_ISA_H_
#define TLM_MODEL_OPS_CPU_KERNELS_ISA_H_

#include <optional>
#include <string_view>
#include <vector>

namespace tlm {

struct Kernels;  // kernels.h

// Ordered: a later one is preferred if the machine has it.
enum class Isa {
  kPortable,    // instructions that every processor of the architecture has
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, VL, DQ
  kAvx512Bf16,  // also BF16, VNNI
  kAmxBf16,     // also AMX's tiles of BF16 and INT8
};

// "portable", "avx2", "avx512", "avx512_bf16" or "amx_bf16".
std::string_view IsaName(Isa isa);
// Returns nullopt for another name.
std::optional<Isa> IsaFromName(std::string_view name);

// Returns the sets that this binary was built for and this machine can run, ascending; always has
// kPortable.
std::vector<Isa> AvailableIsas();

// Returns the fastest kernels of `isa`, which this machine can run.
const Kernels& KernelsFor(Isa isa);

// Whether instructions compute products of two bfloat16 directly: matrices of that type then take
// rows of that type.
constexpr bool HasBf16Products(Isa isa) { return isa >= Isa::kAvx512Bf16; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_ISA_H_
