#include "client/cli/info_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/proto.h"

namespace tlm::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

v1::ModelInfoResponse Info(const std::string& text) { return Proto<v1::ModelInfoResponse>(text); }

std::string Print(const v1::ModelInfoResponse& info) {
  std::ostringstream out;
  PrintModelInfo(info, out);
  return out.str();
}
std::string Print(const std::string& info) { return Print(Info(info)); }

std::string Summary(const v1::ModelInfoResponse& info) {
  std::ostringstream out;
  PrintModelSummary(info, out);
  return out.str();
}

void ExpectParts(const std::string& text, const std::vector<const char*>& parts,
                 const std::vector<const char*>& absent = {}) {
  for (const char* const part : parts) EXPECT_THAT(text, HasSubstr(part));
  for (const char* const part : absent) EXPECT_THAT(text, Not(HasSubstr(part)));
}

TEST(InfoSummaryTest, IsShortAndSaysWhatThereIs) {
  EXPECT_EQ(Summary({}), "");
  v1::ModelInfoResponse info = Info(R"(
      identity { model_id: "demo\033[2J" architecture: "Qwen3ForCausalLM" device_name: "a CPU" }
      parameters { total: 596049920 } architecture { num_layers: 28 context_length: 40960 }
      flops { total: 16575889408 flops_per_token_linear: 9895936
              attention_flops_per_token_per_context: 6144
              query { batch: 1 prompt_tokens: 1024 } }
      memory { kv_bytes_per_token: 3072 })");
  EXPECT_THAT(Summary(info), HasSubstr("120.00 MiB for 40,960 tokens, 3.00 KiB each\n"));
  Merge(R"(memory { kv_blocks_total: 1024 kv_block_tokens: 64 kv_type: "F8_E4M3"
                    device_total: 2147483648 }
           limits { max_running_sequences: 64 max_context_tokens: 1024 }
           capabilities { chat: true chat_format {} })",
        info);
  EXPECT_THAT(Summary(info), HasSubstr("tool calls         no\nreasoning          no\n"));
  Merge(R"(capabilities { chat_format { tool_format: "hermes" parallel_tool_calls: true tools: true
                                        reasoning_format: "think" } })",
        info);
  const std::string text = Summary(info);
  ExpectParts(text, {"demo\\x1b[2J\n", "Qwen3ForCausalLM\n", "596.0 M (596,049,920)\n", "28 layers",
                     "1,024 tokens\n", "192.00 MiB for 65,536 tokens, 3.00 KiB each, F8_E4M3\n",
                     "chat               yes\n", "tool calls         hermes, several an answer\n",
                     "reasoning          think\n", "64 running",
                     "9,895,936 FLOPs, and 6,144 for each token it attends to\n",
                     "16.58 GFLOPs at most: 1 x (1,024 prompt + 0 new tokens)\n", "a CPU\n"});
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
}

TEST(InfoSummaryTest, SaysWhyNothingIsGuaranteed) {
  v1::ModelInfoResponse info =
      Info("identity {} determinism { guarantee: DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE }");
  EXPECT_THAT(Summary(info), Not(HasSubstr("determinism")));
  Merge("determinism { guarantee: DETERMINISM_GUARANTEE_NONE }", info);
  EXPECT_THAT(Summary(info), HasSubstr("determinism  none\n"));
  Merge(R"(determinism { reason: "tiles\033[2J differ" })", info);
  EXPECT_THAT(Summary(info), HasSubstr("determinism  none: tiles\\x1b[2J differ\n"));
}

TEST(InfoTablesTest, PrintsEveryGroupThereIs) {
  EXPECT_EQ(Print(""), "");
  ExpectParts(Print("identity {} architecture {} parameters {} flops {} memory {} limits {} "
                    "capabilities {} default_sampling {} determinism {}"),
              {"Identity\n", "Architecture\n", "Parameters\n", "FLOPs of", "Memory, bytes\n",
               "Limits\n", "Capabilities\n", "Default sampling\n", "Determinism\n"});
}

TEST(InfoTablesTest, PrintsTimesAndScopesAsPeopleWriteThem) {
  ExpectParts(Print("limits { max_queue_time { seconds: 90 } }"), {"1m30s\n"}, {"nanos"});
  ExpectParts(Print(R"(determinism { guarantee: DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE
                  scope: [DETERMINISM_SCOPE_BATCH, DETERMINISM_SCOPE_PREFIX_CACHE] })"),
              {"same_build_and_device\n", "batch, prefix_cache\n"});
}

TEST(InfoTablesTest, PrintsArchitectureByField) {
  ExpectParts(
      Print(R"(architecture {
                  num_heads: 32 head_dim: 128 vocab_size: 50257
                  rope { theta: 10000 layout: ROPE_LAYOUT_HALF
                         scaling { kind: "llama3" factor: 8.5 factors: [1, 1.5] } }
                  activation: ACTIVATION_GELU_TANH norm { kind: NORM_KIND_LAYER eps: 1e-5 }
                  biases { qkv: true ffn: true } sliding_window: 4096 })"),
      {"num_heads       32\n", "head_dim        128\n", "vocab_size      50,257\n",
       "theta 10,000, layout half, scaling kind llama3, factor 8.5, factors 1, 1.5\n",
       "sliding_window  4,096\n", "kind layer, eps 1e-05\n", "gelu_tanh\n", "qkv yes, ffn yes\n"});
}

TEST(InfoTablesTest, LeavesOutUnusedFeatures) {
  ExpectParts(
      Print(R"(architecture { learned_positions: true biases {} }
                       parameters { total: 10 embedding: 10 })"),
      {"learned_positions  yes\n"},
      {"rope", "sliding", "qk_norm", "biases", "ffn gate", "position embedding", "stored", "tied"});
}

TEST(InfoTablesTest, PrintsParametersWithShares) {
  ExpectParts(Print(R"(parameters { total: 1557611200 stored: 1557611200 attention { q: 122880000 }
                  tensors { name: "layers.0.attn.q_proj.weight" dtype: DATA_TYPE_BLOCKS
                            stored_type: "Q4_K" stored_bytes: 1440000 shape: [1600, 1600]
                            elements: 2560000 } })"),
              {"1,557,611,200  100.0 %  1.56 B\n", "122,880,000    7.9 %\n",
               "layers.0.attn.q_proj.weight  blocks  Q4_K  1.37 MiB  2,560,000  1600 x 1600\n"},
              {"stored"});
  // A tied head counts too.
  ExpectParts(Print(R"(architecture { tie_word_embeddings: true }
                  parameters { total: 596049920 embedding: 155582464 stored: 751632384 })"),
              {"tied lm head counted too  751,632,384  126.1 %\n",
               "stored                    751,632,384  126.1 %\n"});
}

TEST(InfoTablesTest, PrintsFlopsByGroupAndLayer) {
  ExpectParts(Print(R"(architecture { num_layers: 48 }
                  flops { total: 3506703564800 convention: "this; that"
                          components { qkv { flops: 754974720000 }
                                       output_projection { flops: 251658240000 }
                                       lm_head { flops: 164682137600 } } })"),
              {"1,006,632,960,000   28.7 %    1.01 T  20,971,520,000\n",
               "3,506,703,564,800  100.0 %    3.51 T\n", "164,682,137,600    4.7 %  164.68 G\n",
               "  (this;\n   that)\n"},
              {"gate"});
}

TEST(InfoTablesTest, PrintsMemory) {
  const std::string text = Print(R"(memory {
      weights { dtype: DATA_TYPE_FLOAT32 bytes: 6230444800 }
      weights { dtype: DATA_TYPE_BLOCKS bytes: 2048 type: "Q4_K" }
      kv_blocks_total: 10 kv_block_tokens: 64 kv_bytes_per_token: 1024 })");
  ExpectParts(text, {"6,230,444,800    5.80 GiB\n", "655,360  640.00 KiB\n"}, {"graph pool"});
  EXPECT_THAT(text, ContainsRegex("weights Q4_K +2,048 +2.00 KiB\n"));
}

TEST(InfoTablesTest, EstimatesMemoryOfAModelWithoutAServer) {
  std::ostringstream out;
  PrintModelEstimate(Info(R"(parameters { total: 1557611200 } memory {}
                         architecture { num_layers: 48 num_kv_heads: 25 head_dim: 64
                                        context_length: 1024 })"),
                     out);
  ExpectParts(out.str(),
              {"6,230,444,800    5.80 GiB  3,115,222,400    2.90 GiB\n",
               "614,400  600.00 KiB        307,200  300.00 KiB\n"},
              {"kv blocks"});
}

TEST(InfoTablesTest, DisarmsTextOfTheServer) {
  EXPECT_THAT(Print(R"(identity { model_id: "\033[2J" })"), HasSubstr("\\x1b[2J"));
}

}  // namespace
}  // namespace tlm::cli
