#include "model/describe/flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/error_details.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"

namespace tlm {
namespace {

ModelConfig Gpt2Xl() {
  return ParseModelConfig(PresetConfig("gpt2-xl").value_or("")).value_or(ModelConfig());
}

v1::FlopsQuery Query(uint32_t batch, uint32_t prompt_tokens, uint32_t new_tokens) {
  v1::FlopsQuery query;
  query.set_batch(batch);
  query.set_prompt_tokens(prompt_tokens);
  query.set_new_tokens(new_tokens);
  return query;
}

struct Case {
  uint32_t prompt_tokens, new_tokens;
  uint64_t resolved_prompt;
};

TEST(ResolveFlopsQueryTest, FillsInTheContext) {
  for (const Case& c : {Case{0, 0, 1024}, Case{0, 24, 1000}, Case{0, 1023, 1}, Case{0, 1024, 0},
                        Case{0, 5000, 0}, Case{7, 0, 7}, Case{16384, 0, 16384},
                        Case{1000, 1000, 1000}, Case{1u << 24, 0, 1u << 24}}) {
    const auto resolved = ResolveFlopsQuery(Query(0, c.prompt_tokens, c.new_tokens), Gpt2Xl());
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->batch, 1u);
    EXPECT_EQ(resolved->prompt_tokens, c.resolved_prompt);
    EXPECT_EQ(resolved->new_tokens, c.new_tokens);
  }
}

TEST(ResolveFlopsQueryTest, NamesTheFieldThatIsTooLong) {
  for (const auto& [query, field] : {std::pair(Query(1, (1u << 24) + 1, 0), "flops.prompt_tokens"),
                                     std::pair(Query(1, 0, (1u << 24) + 1), "flops.new_tokens"),
                                     std::pair(Query(1, 1u << 24, 1), "flops.new_tokens"),
                                     std::pair(Query(1, ~0u, ~0u), "flops.prompt_tokens")}) {
    const absl::Status status = ResolveFlopsQuery(query, Gpt2Xl()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("16777216"));
  }
}

TEST(FillFlopsTest, AnswersTheCourse) {
  v1::FlopsInfo flops;
  FillFlops(Gpt2Xl(), *ResolveFlopsQuery(Query(0, 0, 0), Gpt2Xl()), flops);
  EXPECT_EQ(flops.query().batch(), 1u);
  EXPECT_EQ(flops.query().prompt_tokens(), 1024u);
  EXPECT_EQ(flops.total(), 3506703564800u);
  const v1::FlopsBreakdown& parts = flops.components();
  EXPECT_EQ(parts.lm_head().flops(), 164682137600u);
  EXPECT_NEAR(parts.lm_head().share(), 0.047, 5e-4);
  EXPECT_NEAR(parts.ffn_up().share() + parts.ffn_down().share(), 0.574, 5e-4);
  EXPECT_NEAR(parts.qkv().share() + parts.output_projection().share(), 0.287, 5e-4);
  EXPECT_NEAR(parts.scores().share() + parts.weighted_sum().share(), 0.092, 5e-4);
  EXPECT_EQ(parts.ffn_gate().flops(), 0u);
  EXPECT_EQ(flops.flops_per_token_linear() * 1024 +
                flops.attention_flops_per_token_per_context() * 1024 * 1024,
            flops.total());
  EXPECT_THAT(flops.convention(), testing::HasSubstr("sliding window"));
}

}  // namespace
}  // namespace tlm
