#define TLM_ISA_NAMESPACE cpu_loops_portable
#define TLM_ISA_LOOPS kPortableLoops
#include "tests/benchmarks/engine/cpu_loops.inc"

#if defined(__x86_64__)
#define TLM_AMX_TILES "model/ops/cpu/kernels/amx_tiles.h"
#include "tests/benchmarks/engine/cpu_loops_amx.inc"
#endif

#include <algorithm>
#include <optional>
#include <vector>

#include "model/ops/cpu/kernels/isa.h"

namespace tlm::bench {

#if defined(__x86_64__)
extern const CpuLoops kAvx2Loops, kAvx512Loops, kAvx512Bf16Loops;  // cpu_loops_*.cc

namespace {

// As the kernels of avx512 do, with VNNI's product of bytes where the processor has it.
const CpuLoops& Avx512Loops() {
  static const CpuLoops loops = [] {
    CpuLoops result = kAvx512Loops;
    if (__builtin_cpu_supports("avx512vnni")) result.int8 = kAvx512Bf16Loops.int8;
    return result;
  }();
  return loops;
}

const CpuLoops& AmxLoops() {
  static const CpuLoops loops = [] {
    CpuLoops result = kAvx512Bf16Loops;
    result.bf16 = TLM_ISA_NAMESPACE::TileLoop<false>();
    result.int8 = TLM_ISA_NAMESPACE::TileLoop<true>();
    return result;
  }();
  return loops;
}

}  // namespace
#endif

const CpuLoops* LoopsOf(std::string_view arithmetic) {
  const std::optional<Isa> isa = IsaFromName(arithmetic);
  const std::vector<Isa> available = AvailableIsas();
  if (!isa.has_value() || std::find(available.begin(), available.end(), *isa) == available.end()) {
    return nullptr;
  }
  switch (*isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return &kAvx2Loops;
    case Isa::kAvx512:
      return &Avx512Loops();
    case Isa::kAvx512Bf16:
      return &kAvx512Bf16Loops;
    case Isa::kAmxBf16:
      return &AmxLoops();
#endif
    default:
      return &kPortableLoops;
  }
}

}  // namespace tlm::bench
