#include "server/process/model_facts.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(FactsOfTest, NamesTheElementTypeOfKeysAndValues) {
  for (const auto& [type, name] :
       {std::pair(DType::kF32, "float32"), std::pair(DType::kBF16, "bfloat16"),
        std::pair(DType::kF16, "float16"), std::pair(DType::kF8E4M3, "fp8")}) {
    ServedModel served;
    served.memory.kv_dtype = type;
    EXPECT_EQ(FactsOf(served).kv_cache_dtype, name);
  }
}

}  // namespace
}  // namespace tlm
