#include "model/ops/cpu/kernels/int8_vnni.h"

namespace tlm {

#if defined(__x86_64__)

void Avx2VnniMatMulInt8(const Int8MatMulArgs& args);
void Avx512VnniMatMulInt8(const Int8MatMulArgs& args);

namespace {

Kernels With(Kernels table, void (*matmul_int8)(const Int8MatMulArgs&)) {
  table.matmul_int8 = matmul_int8;
  return table;
}

}  // namespace

const Kernels& WithVnniInt8(const Kernels& table, Isa isa) {
  __builtin_cpu_init();
  if (isa == Isa::kAvx2 && __builtin_cpu_supports("avxvnni")) {
    static const Kernels kTable = With(table, Avx2VnniMatMulInt8);
    return kTable;
  }
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) {
    static const Kernels kTable = With(table, Avx512VnniMatMulInt8);
    return kTable;
  }
  return table;
}

#else

const Kernels& WithVnniInt8(const Kernels& table, Isa) { return table; }

#endif

}  // namespace tlm
