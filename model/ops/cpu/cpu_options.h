// Options of the CPU backend.
#ifndef TLM_MODEL_OPS_CPU_CPU_OPTIONS_H_
#define TLM_MODEL_OPS_CPU_CPU_OPTIONS_H_

#include <string>
#include <string_view>

namespace tlm {

// Selects the best instruction set of the machine.
inline constexpr std::string_view kBestIsa = "auto";

struct CpuOptions {
  int threads = 0;                          // 0: every processor that this process may use
  std::string isa = std::string(kBestIsa);  // or a name from IsaName
  // Whether each thread stays on one processor if there are as many threads as processors.
  bool pin_threads = true;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_OPTIONS_H_
