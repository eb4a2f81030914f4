#include "client/cli/info_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace tlm::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string Print(const v1::ModelInfoResponse& info) {
  std::ostringstream out;
  PrintModelInfo(info, out);
  return out.str();
}

std::string Summary(const v1::ModelInfoResponse& info) {
  std::ostringstream out;
  PrintModelSummary(info, out);
  return out.str();
}

TEST(InfoSummaryTest, IsShortAndSaysWhatThereIs) {
  EXPECT_EQ(Summary({}), "");
  v1::ModelInfoResponse info;
  info.mutable_identity()->set_model_id("demo\x1b[2J");
  info.mutable_identity()->set_architecture("Qwen3ForCausalLM");
  info.mutable_identity()->set_device_name("a CPU");
  info.mutable_parameters()->set_total(596049920);
  info.mutable_architecture()->set_num_layers(28);
  info.mutable_architecture()->set_context_length(40960);
  info.mutable_flops()->set_total(16'575'889'408);
  info.mutable_flops()->set_flops_per_token_linear(9'895'936);
  info.mutable_flops()->set_attention_flops_per_token_per_context(6'144);
  info.mutable_flops()->mutable_query()->set_batch(1);
  info.mutable_flops()->mutable_query()->set_prompt_tokens(1024);
  info.mutable_memory()->set_kv_bytes_per_token(3072);
  EXPECT_THAT(Summary(info), HasSubstr("120.00 MiB for 40,960 tokens, 3.00 KiB each\n"));
  info.mutable_memory()->set_kv_blocks_total(1024);
  info.mutable_memory()->set_kv_block_tokens(64);
  info.mutable_memory()->set_kv_type("F8_E4M3");
  info.mutable_memory()->set_device_total(2 << 30);
  info.mutable_limits()->set_max_running_sequences(64);
  info.mutable_limits()->set_max_context_tokens(1024);
  info.mutable_capabilities()->set_chat(true);
  v1::ChatFormatInfo& format = *info.mutable_capabilities()->mutable_chat_format();
  EXPECT_THAT(Summary(info), HasSubstr("tool calls         no\nreasoning          no\n"));
  format.set_tool_format("hermes");
  format.set_parallel_tool_calls(true);
  format.set_tools(true);
  format.set_reasoning_format("think");
  const std::string text = Summary(info);
  for (const char* part :
       {"demo\\x1b[2J\n", "Qwen3ForCausalLM\n", "596.0 M (596,049,920)\n", "28 layers",
        "1,024 tokens\n", "192.00 MiB for 65,536 tokens, 3.00 KiB each, F8_E4M3\n",
        "chat               yes\n", "tool calls         hermes, several an answer\n",
        "reasoning          think\n", "64 running",
        "9,895,936 FLOPs, and 6,144 for each token it attends to\n",
        "16.58 GFLOPs at most: 1 x (1,024 prompt + 0 new tokens)\n", "a CPU\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
}

TEST(InfoSummaryTest, SaysWhyNothingIsGuaranteed) {
  v1::ModelInfoResponse info;
  info.mutable_identity();
  v1::DeterminismInfo& determinism = *info.mutable_determinism();
  determinism.set_guarantee(v1::DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE);
  EXPECT_THAT(Summary(info), Not(HasSubstr("determinism")));
  determinism.set_guarantee(v1::DETERMINISM_GUARANTEE_NONE);
  EXPECT_THAT(Summary(info), HasSubstr("determinism  none\n"));
  determinism.set_reason("tiles\x1b[2J differ");
  EXPECT_THAT(Summary(info), HasSubstr("determinism  none: tiles\\x1b[2J differ\n"));
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

TEST(InfoTablesTest, PrintsTimesAsPeopleWriteThem) {
  v1::ModelInfoResponse info;
  info.mutable_limits()->mutable_max_queue_time()->set_seconds(90);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("1m30s\n"));
  EXPECT_THAT(text, Not(HasSubstr("nanos")));
}

TEST(InfoTablesTest, PrintsArchitectureInWords) {
  v1::ModelInfoResponse info;
  v1::ArchitectureInfo& architecture = *info.mutable_architecture();
  architecture.set_num_layers(32);
  architecture.set_num_heads(32);
  architecture.set_num_kv_heads(8);
  architecture.set_head_dim(128);
  architecture.set_vocab_size(50257);
  architecture.mutable_rope()->set_theta(10000);
  architecture.mutable_rope()->set_layout(v1::ROPE_LAYOUT_HALF);
  architecture.mutable_rope()->mutable_scaling()->set_kind("llama3");
  architecture.mutable_rope()->mutable_scaling()->set_factor(8);
  architecture.set_activation(v1::ACTIVATION_GELU_TANH);
  architecture.mutable_norm()->set_kind(v1::NORM_KIND_LAYER);
  architecture.mutable_norm()->set_eps(1e-5);
  architecture.mutable_biases()->set_qkv(true);
  architecture.mutable_biases()->set_ffn(true);
  architecture.set_sliding_window(4096);
  architecture.set_sliding_window_layers(16);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("50,257\n"));
  EXPECT_THAT(text, HasSubstr("32 for queries, 8 for keys and values, each 128 wide\n"));
  EXPECT_THAT(text, HasSubstr("rotary, theta 10,000, pairs (i, i + d/2)\n"));
  EXPECT_THAT(text, HasSubstr("llama3, factor 8\n"));
  EXPECT_THAT(text, HasSubstr("4,096 tokens in 16 of 32 layers\n"));
  EXPECT_THAT(text, HasSubstr("layer, eps 1e-05 inside the root\n"));
  EXPECT_THAT(text, HasSubstr("gelu_tanh\n"));
  EXPECT_THAT(text, HasSubstr("qkv, ffn\n"));
}

TEST(InfoTablesTest, LeavesOutUnusedFeatures) {
  v1::ModelInfoResponse info;
  info.mutable_architecture()->set_learned_positions(true);
  info.mutable_architecture()->mutable_rope()->set_layout(v1::ROPE_LAYOUT_NONE);
  info.mutable_parameters()->set_total(10);
  info.mutable_parameters()->set_embedding(10);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("positions   learned\n"));
  for (const char* absent : {"rotary", "scaling", "sliding", "qk norm", "biases", "ffn gate",
                             "position embedding", "stored", "tied"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
}

TEST(InfoTablesTest, PrintsParametersWithShares) {
  v1::ModelInfoResponse info;
  v1::ParameterCounts& counts = *info.mutable_parameters();
  counts.set_total(1557611200);
  counts.set_stored(1557611200);
  counts.mutable_attention()->set_q(122880000);
  v1::TensorInfo& tensor = *counts.add_tensors();
  tensor.set_name("layers.0.attn.q_proj.weight");
  tensor.set_dtype(v1::DATA_TYPE_BLOCKS);
  tensor.set_stored_type("Q4_K");
  tensor.set_stored_bytes(1440000);
  tensor.add_shape(1600);
  tensor.add_shape(1600);
  tensor.set_elements(2560000);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("1,557,611,200  100.0 %  1.56 B\n"));
  EXPECT_THAT(text, HasSubstr("122,880,000    7.9 %\n"));
  EXPECT_THAT(
      text,
      HasSubstr("layers.0.attn.q_proj.weight  blocks  Q4_K  1.37 MiB  2,560,000  1600 x 1600\n"));
  EXPECT_THAT(text, Not(HasSubstr("stored")));
}

TEST(InfoTablesTest, TellsHowATiedHeadCounts) {
  v1::ModelInfoResponse info;
  info.mutable_architecture()->set_tie_word_embeddings(true);
  info.mutable_parameters()->set_total(596049920);
  info.mutable_parameters()->set_embedding(155582464);
  info.mutable_parameters()->set_stored(751632384);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("tied lm head counted too  751,632,384  126.1 %\n"));
  EXPECT_THAT(text, HasSubstr("stored                    751,632,384  126.1 %\n"));
}

TEST(InfoTablesTest, PrintsFlopsByGroupAndLayer) {
  v1::ModelInfoResponse info;
  info.mutable_architecture()->set_num_layers(48);
  v1::FlopsInfo& flops = *info.mutable_flops();
  flops.set_total(3506703564800);
  flops.set_convention("this; that");
  flops.mutable_components()->mutable_qkv()->set_flops(754974720000);
  flops.mutable_components()->mutable_output_projection()->set_flops(251658240000);
  flops.mutable_components()->mutable_lm_head()->set_flops(164682137600);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("1,006,632,960,000   28.7 %    1.01 T  20,971,520,000\n"));
  EXPECT_THAT(text, HasSubstr("3,506,703,564,800  100.0 %    3.51 T\n"));
  EXPECT_THAT(text, HasSubstr("164,682,137,600    4.7 %  164.68 G\n"));
  EXPECT_THAT(text, HasSubstr("  (this;\n   that)\n"));
  EXPECT_THAT(text, Not(HasSubstr("gate")));
}

TEST(InfoTablesTest, PrintsMemory) {
  v1::ModelInfoResponse info;
  v1::MemoryInfo& memory = *info.mutable_memory();
  v1::WeightBytes& weights = *memory.add_weights();
  weights.set_dtype(v1::DATA_TYPE_FLOAT32);
  weights.set_bytes(6230444800);
  v1::WeightBytes& blocks = *memory.add_weights();
  blocks.set_dtype(v1::DATA_TYPE_BLOCKS);
  blocks.set_bytes(2048);
  blocks.set_type("Q4_K");
  memory.set_kv_blocks_total(10);
  memory.set_kv_block_tokens(64);
  memory.set_kv_bytes_per_token(1024);
  const std::string text = Print(info);
  EXPECT_THAT(text, HasSubstr("6,230,444,800    5.80 GiB\n"));
  EXPECT_THAT(text, ContainsRegex("weights Q4_K +2,048 +2.00 KiB\n"));
  EXPECT_THAT(text, HasSubstr("655,360  640.00 KiB\n"));
  EXPECT_THAT(text, Not(HasSubstr("graph pool")));
}

TEST(InfoTablesTest, EstimatesMemoryOfAModelWithoutAServer) {
  v1::ModelInfoResponse info;
  info.mutable_parameters()->set_total(1557611200);
  v1::ArchitectureInfo& architecture = *info.mutable_architecture();
  architecture.set_num_layers(48);
  architecture.set_num_kv_heads(25);
  architecture.set_head_dim(64);
  architecture.set_context_length(1024);
  info.mutable_memory();
  std::ostringstream out;
  PrintModelEstimate(info, out);
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("6,230,444,800    5.80 GiB  3,115,222,400    2.90 GiB\n"));
  EXPECT_THAT(text, HasSubstr("614,400  600.00 KiB        307,200  300.00 KiB\n"));
  EXPECT_THAT(text, Not(HasSubstr("kv blocks")));
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
