#include "model/config/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/config/config_reader.h"
#include "tests/support/oracles.h"

namespace tlm {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelConfig Parse(std::string_view name) {
  const absl::StatusOr<std::string> text = PresetConfig(name);
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return {};
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(*text);
  EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  return config.value_or(ModelConfig());
}

TEST(PresetsTest, EveryOneIsAConfigurationThatCanBeRun) {
  EXPECT_GE(PresetNames().size(), 24u);
  for (const std::string& name : PresetNames()) Parse(name);
}

TEST(PresetsTest, UnknownNameListsThoseThereAreInOneLine) {
  const absl::Status status = PresetConfig("gpt-2\n").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'gpt-2?'"));
  for (const std::string& name : PresetNames()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  EXPECT_FALSE(PresetConfig("").ok());
  EXPECT_FALSE(PresetConfig("GPT2").ok());
}

TEST(PresetsTest, FamiliesHaveTheirFields) {
  const ModelConfig gpt2 = Parse("gpt2");
  EXPECT_EQ(gpt2.norm_kind, NormKind::kLayer);
  EXPECT_TRUE(gpt2.learned_positions);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  EXPECT_EQ(gpt2.ffn_kind, FfnKind::kGeluTanh);
  EXPECT_EQ(gpt2.d_ff, 3072);
  EXPECT_EQ(gpt2.context_length, 1024);

  const ModelConfig qwen25 = Parse("qwen2.5-7b");
  EXPECT_TRUE(qwen25.biases.qkv);
  EXPECT_FALSE(qwen25.biases.attention_output);
  EXPECT_EQ(qwen25.WindowOf(0), 0);

  const ModelConfig llama31 = Parse("llama-3.1-8b");
  ASSERT_TRUE(llama31.rope_scaling.has_value());
  EXPECT_EQ(llama31.rope_scaling->kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(llama31.rope_scaling->factor, 8.0);
  EXPECT_FALSE(Parse("llama-3-8b").rope_scaling.has_value());
  EXPECT_EQ(Parse("llama-3-8b").context_length, 8192);

  EXPECT_EQ(Parse("mistral-7b").WindowOf(0), 4096);
  EXPECT_EQ(Parse("cs336-xl").rope_layout, RopeLayout::kInterleaved);
  EXPECT_EQ(Parse("cs336-2.7b").head_dim, 80);
}

// Every key of the preset stands in the file its publisher gives out, with the same value.
void ExpectPublished(std::string_view preset, const char* file) {
  const std::optional<std::string> path = OraclePath(std::string("configs/") + file);
  if (!path.has_value()) GTEST_SKIP() << "no " << file << " among the oracles";
  const auto text = ReadFile(*path, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto published = ParseJson(*text);
  ASSERT_TRUE(published.ok()) << published.status();
  const auto ours = ParseJson(*PresetConfig(preset));
  ASSERT_TRUE(ours.ok()) << ours.status();
  for (const auto& [key, value] : ours->items()) {
    ASSERT_TRUE(published->contains(key)) << key;
    EXPECT_EQ(value, (*published)[key]) << key;
  }
}

TEST(PresetsTest, Qwen3SmallIsAsPublished) {
  ExpectPublished("qwen3-0.6b", "config-Qwen3-0.6B.json");
}

TEST(PresetsTest, Qwen3MediumIsAsPublished) { ExpectPublished("qwen3-4b", "config-Qwen3-4B.json"); }

}  // namespace
}  // namespace tlm
