// The rates that the host's memory and its products reach at the most.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::bench {

// The operands of a matrix product.
enum class Operands { kFloat, kBf16, kInt8 };

// 0 and empty if not measured.
struct CpuCeilings {
  double read_bytes_per_second = 0;    // all threads stream memory that no cache holds
  double float_flops_per_second = 0;   // products of random floats, loaded from the L2 cache
  double matmul_flops_per_second = 0;  // products of the operands asked for, likewise
  std::string float_instruction;       // "vfmadd231ps zmm"
  std::string matmul_instruction;      // "vdpbf16ps zmm"

  // A lower bound of the seconds for these bytes and operations: the longer of the two. Operations
  // on floats, such as attention over floats, add to those on the matrices' operands.
  double LeastSeconds(double bytes, double matmul_flops, double float_flops = 0) const;
  // LeastSeconds as a share of `seconds`; 0 if not measured.
  double Fraction(double seconds, double bytes, double matmul_flops, double float_flops = 0) const;
};

// As one line of text.
std::string Describe(const CpuCeilings& ceilings);
nlohmann::ordered_json ToJson(const CpuCeilings& ceilings);

// Measures for about half a second with `threads` threads, one per CPU; each value is the
// median of several passes. `arithmetic` names the instruction set, as DeviceInfo does; operands
// that it cannot multiply count as floats. INVALID_ARGUMENT: the machine or this build does not
// have the instruction set; RESOURCE_EXHAUSTED: no memory to read.
absl::StatusOr<CpuCeilings> MeasureCpuCeilings(std::string_view arithmetic, Operands operands,
                                               int threads);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_CPU_CEILINGS_H_
