// What the host's memory and vector units do at the most: the bounds that times are held against.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::bench {

// What a product multiplies.
enum class Operands { kFloat, kBf16, kInt8 };

// 0 and empty where nothing was measured.
struct CpuCeilings {
  double read_bytes_per_second = 0;    // all threads stream memory that no cache holds
  double float_flops_per_second = 0;   // products of floats in registers
  double matmul_flops_per_second = 0;  // products of the operands asked for, likewise
  std::string float_instruction;       // "vfmadd231ps zmm"
  std::string matmul_instruction;      // "vdpbf16ps zmm"

  // The seconds that so many bytes and operations take at the least: the longer of the two. Sums of
  // floats, such as attention over floats, come beside those of the matrices' operands.
  double LeastSeconds(double bytes, double matmul_flops, double float_flops = 0) const;
  // Of LeastSeconds, the part in `seconds`; 0 where nothing was measured.
  double Fraction(double seconds, double bytes, double matmul_flops, double float_flops = 0) const;
};

// In one line for people.
std::string Describe(const CpuCeilings& ceilings);
nlohmann::ordered_json ToJson(const CpuCeilings& ceilings);

// Measures for about half a second with `threads` threads, one a processor; each figure is the
// median of several passes. `arithmetic` names the instruction set, as DeviceInfo does; operands
// that it has no products of count as floats. INVALID_ARGUMENT: the machine or this build does not
// have the instruction set; RESOURCE_EXHAUSTED: no memory to read.
absl::StatusOr<CpuCeilings> MeasureCpuCeilings(std::string_view arithmetic, Operands operands,
                                               int threads);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_
