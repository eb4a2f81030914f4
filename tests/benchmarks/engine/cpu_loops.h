// Loops that saturate one unit of a CPU.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tlm::bench {

// A loop of one instruction on registers.
struct ProductLoop {
  const char* instruction = nullptr;
  double flops_per_round = 0;              // a multiply-add counts 2
  float (*run)(int64_t rounds) = nullptr;  // the result depends on every product
};

// Loops of one instruction set. Calling one that the machine lacks is a fault.
struct CpuLoops {
  // ORs of all of [data, data + bytes); `data` aligned to 64, `bytes` a multiple of 4096.
  uint64_t (*read)(const char* data, size_t bytes) = nullptr;
  ProductLoop floats = {};
  ProductLoop bf16 = {};  // `run` is null if the instruction set has none
  ProductLoop int8 = {};  // likewise
};

// Of "portable", "avx2", "avx512", "avx512_bf16" or "amx_bf16"; null if this build or this
// machine lacks it.
const CpuLoops* LoopsOf(std::string_view arithmetic);
// Of those of x86-64; always null on other CPUs.
const CpuLoops* X86LoopsOf(std::string_view arithmetic);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_
