#include "model/ops/cpu/kernels/isa.h"

#include "model/ops/cpu/kernels/amx.h"

namespace tlm {
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

}  // namespace tlm
