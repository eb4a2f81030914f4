#include "server/process/model_facts.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(FactsOfTest, NamesTheElementTypeOfKeysAndValues) {
  ServedModel served;
  served.memory.kv_dtype = DType::kF32;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "float32");
  served.memory.kv_dtype = DType::kBF16;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "bfloat16");
  served.memory.kv_dtype = DType::kF16;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "float16");
  served.memory.kv_dtype = DType::kF8E4M3;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "fp8");
}

}  // namespace
}  // namespace tlm
