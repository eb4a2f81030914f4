#include "model/ops/cpu/kernels/isa.h"

#include "model/ops/cpu/kernels/kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace tlm {

#if defined(__x86_64__)
// quant_avx2_vnni.cc and quant_avx512_vnni.cc
void Avx2VnniMatMulQuant(const QuantMatMulArgs& args);
void Avx512VnniMatMulQuant(const QuantMatMulArgs& args);
#endif

namespace {

struct NamedIsa {
  Isa isa;
  std::string_view name;
};
constexpr NamedIsa kNames[] = {{Isa::kPortable, "portable"},
                               {Isa::kAvx2, "avx2"},
                               {Isa::kAvx512, "avx512"},
                               {Isa::kAvx512Bf16, "avx512_bf16"},
                               {Isa::kAmxBf16, "amx_bf16"}};

#if defined(__x86_64__) && defined(__linux__)
struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Returns zeros if the processor has no such leaf.
Leaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf result;
  __get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

bool ProcessorHasTiles() {
  constexpr uint32_t kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr uint32_t kNeeded = kBf16 | kTile | kInt8;
  if ((Cpuid(7, 0).edx & kNeeded) != kNeeded) return false;
  // Palette 1: ebx = bytes per row | tiles << 16, ecx = rows.
  const Leaf palette = Cpuid(0x1d, 1);
  return (palette.ebx & 0xffffu) >= 64 && palette.ebx >> 16 >= 8 && (palette.ecx & 0xffffu) >= 16;
}

bool SystemSavesTiles() {
  constexpr uint32_t kOsXsave = 1u << 27;
  if ((Cpuid(1, 0).ecx & kOsXsave) == 0) return false;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr uint32_t kTileConfigAndData = 3u << 17;
  return (low & kTileConfigAndData) == kTileConfigAndData;
}

// A thread's first use of a tile grows the state that the system keeps for it; a process must
// request this (Linux 5.16; Documentation/arch/x86/xstate.rst).
bool SystemAllowsTiles() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

// Asks the system once, at the first call; the answer applies to every thread.
bool AmxAvailable() {
  static const bool available = ProcessorHasTiles() && SystemSavesTiles() && SystemAllowsTiles();
  return available;
}
#elif defined(__x86_64__)
bool AmxAvailable() { return false; }
#endif

#if defined(__x86_64__)
Kernels WithQuant(Kernels table, void (*matmul_quant)(const QuantMatMulArgs&)) {
  table.matmul_quant = matmul_quant;
  return table;
}

// Returns `table` of `isa`, with VNNI's products of integer weights if the processor has them
// beyond the instruction set. They give the same bits: sums of integers are exact.
const Kernels& WithVnniQuant(const Kernels& table, Isa isa) {
  __builtin_cpu_init();
  if (isa == Isa::kAvx2 && __builtin_cpu_supports("avxvnni")) {
    static const Kernels kTable = WithQuant(table, Avx2VnniMatMulQuant);
    return kTable;
  }
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) {
    static const Kernels kTable = WithQuant(table, Avx512VnniMatMulQuant);
    return kTable;
  }
  return table;
}
#endif

}  // namespace

std::string_view IsaName(Isa isa) {
  for (const NamedIsa& named : kNames) {
    if (named.isa == isa) return named.name;
  }
  return "?";
}

std::optional<Isa> IsaFromName(std::string_view name) {
  for (const NamedIsa& named : kNames) {
    if (named.name == name) return named.isa;
  }
  return std::nullopt;
}

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> isas = {Isa::kPortable};
#if defined(__x86_64__)
  // The builtins also ask the operating system whether it saves the wide registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return isas;
  }
  isas.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return isas;
  }
  isas.push_back(Isa::kAvx512);
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) return isas;
  isas.push_back(Isa::kAvx512Bf16);
  if (AmxAvailable()) isas.push_back(Isa::kAmxBf16);
#endif
  return isas;
}

const Kernels& KernelsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return WithVnniQuant(Avx2Kernels(), isa);
    case Isa::kAvx512:
      return WithVnniQuant(Avx512Kernels(), isa);
    case Isa::kAvx512Bf16:
      return Avx512Bf16Kernels();
    case Isa::kAmxBf16:
      return AmxBf16Kernels(AmxVectorsAgree());
#endif
    default:
      return PortableKernels();
  }
}

}  // namespace tlm
