#include "client/cli/info_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Print(const v1::ModelInfoResponse& info) {
  std::ostringstream out;
  PrintModelInfo(info, out);
  return out.str();
}

TEST(InfoTablesTest, PrintsEveryGroupThereIs) {
  EXPECT_EQ(Print({}), "");
  v1::ModelInfoResponse info;
  info.mutable_identity();
  info.mutable_architecture();
  info.mutable_parameters();
  info.mutable_flops();
  info.mutable_memory();
  info.mutable_limits();
  info.mutable_capabilities();
  info.mutable_default_sampling();
  info.mutable_determinism();
  const std::string text = Print(info);
  for (const char* heading :
       {"Identity\n", "Architecture\n", "Parameters\n", "FLOPs of", "Memory, bytes\n", "Limits\n",
        "Capabilities\n", "Default sampling\n", "Determinism\n"}) {
    EXPECT_THAT(text, HasSubstr(heading));
  }
}

TEST(InfoTablesTest, PrintsArchitectureInWords) {
  v1::ModelInfoResponse info;
  v1::ArchitectureInfo& architecture = *info.mutable_architecture();
  architecture.set_vocab_size(50257);
  architecture.mutable_rope()->set_theta(10000);
  architecture.mutable_rope()->set_layout(v1::ROPE_LAYOUT_HALF);
  architecture.set_activation(v1::ACTIVATION_GELU_TANH);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("50,257\n"));
  EXPECT_THAT(text, HasSubstr("theta 10000, layout half\n"));
  EXPECT_THAT(text, HasSubstr("gelu_tanh\n"));
  EXPECT_THAT(text, Not(HasSubstr("sliding_window")));
}

TEST(InfoTablesTest, PrintsParametersWithShares) {
  v1::ModelInfoResponse info;
  v1::ParameterCounts& counts = *info.mutable_parameters();
  counts.set_total(1557611200);
  counts.mutable_attention()->set_q(122880000);
  v1::TensorInfo& tensor = *counts.add_tensors();
  tensor.set_name("layers.0.attn.q_proj.weight");
  tensor.set_dtype(v1::DATA_TYPE_BFLOAT16);
  tensor.add_shape(1600);
  tensor.add_shape(1600);
  tensor.set_elements(2560000);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("1,557,611,200  100.0 %\n"));
  EXPECT_THAT(text, HasSubstr("122,880,000    7.9 %\n"));
  EXPECT_THAT(text, HasSubstr("layers.0.attn.q_proj.weight  bfloat16  2,560,000  1600 x 1600\n"));
}

TEST(InfoTablesTest, PrintsFlopsAndMemory) {
  v1::ModelInfoResponse info;
  info.mutable_flops()->set_total(3506703564800);
  info.mutable_flops()->mutable_components()->mutable_lm_head()->set_flops(164682137600);
  info.mutable_flops()->mutable_components()->mutable_lm_head()->set_share(0.047);
  v1::MemoryInfo& memory = *info.mutable_memory();
  v1::WeightBytes& weights = *memory.add_weights();
  weights.set_dtype(v1::DATA_TYPE_FLOAT32);
  weights.set_bytes(6230444800);
  memory.set_kv_blocks_total(10);
  memory.set_kv_block_tokens(64);
  memory.set_kv_bytes_per_token(1024);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("3,506,703,564,800  3.51 T\n"));
  EXPECT_THAT(text, HasSubstr("164,682,137,600   4.7 %\n"));
  EXPECT_THAT(text, HasSubstr("6,230,444,800    5.80 GiB\n"));
  EXPECT_THAT(text, HasSubstr("655,360  640.00 KiB\n"));
}

TEST(InfoTablesTest, ListsDeterminismScope) {
  v1::ModelInfoResponse info;
  info.mutable_determinism()->set_guarantee(v1::DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE);
  info.mutable_determinism()->add_scope(v1::DETERMINISM_SCOPE_BATCH);
  info.mutable_determinism()->add_scope(v1::DETERMINISM_SCOPE_PREFIX_CACHE);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("same_build_and_device\n"));
  EXPECT_THAT(text, HasSubstr("batch, prefix_cache\n"));
}

TEST(InfoTablesTest, DisarmsTextOfTheServer) {
  v1::ModelInfoResponse info;
  info.mutable_identity()->set_model_id("\x1b[2J");
  EXPECT_THAT(Print(info), HasSubstr("\\x1b[2J"));
}

}  // namespace
}  // namespace tlm::cli
