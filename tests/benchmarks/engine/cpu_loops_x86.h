// The loops of x86-64's instruction sets; see cpu_loops.h.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_X86_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_X86_H_

#include <string_view>

#include "tests/benchmarks/engine/cpu_loops.h"

namespace tlm::bench {

// Null if this machine lacks it; always null on other CPUs.
const CpuLoops* X86LoopsOf(std::string_view arithmetic);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_X86_H_
