// What runs the kernels that use tiles, and their random operands.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CPU_AMX_MACHINES_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CPU_AMX_MACHINES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model/ops/cpu/kernels/isa.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "tests/support/amx/emulated_kernels.h"

namespace tlm {

struct Machine {
  const char* name;
  Isa needs;
  bool (*vectors_agree)();
  const Kernels& (*kernels)(bool vectors_agree);
};
inline constexpr Machine kMachines[] = {
    {"Emulated", Isa::kAvx512Bf16, EmulatedAmxVectorsAgree, EmulatedAmxKernels},
    {"Processor", Isa::kAmxBf16, AmxVectorsAgree, AmxBf16Kernels},
};
inline std::string NameOfMachine(const ::testing::TestParamInfo<Machine>& info) {
  return info.param.name;
}

class AmxTest : public ::testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    const std::vector<Isa> isas = AvailableIsas();
    if (std::find(isas.begin(), isas.end(), GetParam().needs) == isas.end()) {
      GTEST_SKIP() << "this machine cannot run " << IsaName(GetParam().needs);
    }
  }
};

// Random bfloat16 of exponents around that of 1 and, `wild`, now and then of any.
inline std::vector<uint16_t> RandomBf16(int64_t count, uint64_t seed, bool wild) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    const uint64_t bits = random();
    const uint64_t exponent = wild && bits >> 60 == 0 ? (bits >> 32) % 255 : 120 + (bits >> 32) % 8;
    value = static_cast<uint16_t>((bits & 0x807fu) | exponent << 7);
  }
  return values;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CPU_AMX_MACHINES_H_
