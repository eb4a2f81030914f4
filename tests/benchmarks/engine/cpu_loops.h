// Loops that take a CPU to one of its limits.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_

#include <cstdint>
#include <string_view>

namespace tlm::bench {

// A product of rows x and weights w by one instruction, in the order of a matrix product that keeps
// its sums in registers. One operand stays in the L1 cache, the other one comes from the L2 cache.
struct ProductLoop {
  const char* instruction = nullptr;
  // Of the memory of each, aligned to 64 bytes. Together they fit an L2 cache.
  int64_t x_bytes = 0, w_bytes = 0, sums_bytes = 0;
  // 32 random bits are operands as (bits & random_bits) | fixed_bits: of floats, numbers of both
  // signs from 0.125 to 2.
  uint32_t random_bits = 0, fixed_bits = 0;
  double flops = 0;  // of a call; a multiply-add counts 2
  // Sets all sums, of float or of int32.
  void (*run)(const char* x, const char* w, char* sums) = nullptr;
};

// Loops of one instruction set. Calling one that the machine lacks is a fault.
struct CpuLoops {
  // ORs of all of [data, data + bytes), read from the first byte to the last and in four streams
  // side by side: which is faster depends on the processor. `data` aligned to 64, `bytes` a
  // multiple of 4096.
  uint64_t (*read[2])(const char* data, int64_t bytes) = {};
  ProductLoop floats = {};
  ProductLoop bf16 = {};  // `run` is null if the instruction set has none
  ProductLoop int8 = {};  // likewise; sums of int32
};

// Of "portable", "avx2", "avx512", "avx512_bf16" or "amx_bf16"; null if this build or this
// machine lacks it.
const CpuLoops* LoopsOf(std::string_view arithmetic);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_CPU_LOOPS_H_
