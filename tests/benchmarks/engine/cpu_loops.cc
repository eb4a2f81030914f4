#include "tests/benchmarks/engine/cpu_loops.h"

namespace tlm::bench {
namespace {

// Vectors of 16 bytes, which every processor this builds for has.
using Floats = float __attribute__((vector_size(16)));
using Words = uint64_t __attribute__((vector_size(16)));

constexpr int kSums = 12;

uint64_t ReadPortable(const char* data, size_t bytes) {
  const auto* words = reinterpret_cast<const Words*>(data);
  Words seen[8] = {};
  for (size_t i = 0; i < bytes / sizeof(Words); i += 8) {
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j) seen[j] |= words[i + j];
  }
  uint64_t all = 0;
  for (const Words& word : seen) all |= word[0] | word[1];
  return all;
}

float MultiplyAddPortable(int64_t rounds) {
  const Floats a = {0.5f, 0.25f, 0.125f, 0.75f}, b = {0.1f, 0.2f, 0.3f, 0.4f};
  Floats sums[kSums];  // begin with different values: equal ones would be computed once
  for (int j = 0; j < kSums; ++j) sums[j] = b * static_cast<float>(j);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = sums[j] * a + b;
  }
  float total = 0;
  for (const Floats& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  return total;
}

constexpr CpuLoops kPortable = {
    .read = ReadPortable,
    .floats = {"multiply and add of 4 floats", 2.0 * kSums * 4, MultiplyAddPortable}};

}  // namespace

const CpuLoops* LoopsOf(std::string_view arithmetic) {
  return arithmetic == "portable" ? &kPortable : X86LoopsOf(arithmetic);
}

}  // namespace tlm::bench
