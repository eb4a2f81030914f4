#include "model/config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::Eq;
using ::testing::Optional;

absl::StatusOr<GenerationDefaults> Read(const std::string& text) {
  const TempDir dir;
  dir.Write("generation_config.json", text);
  return ReadGenerationDefaults(dir.path());
}

TEST(GenerationConfigTest, NothingIsSetWithoutAFile) {
  const TempDir dir;
  const auto defaults = ReadGenerationDefaults(dir.path());
  ASSERT_THAT(defaults, IsOk());
  EXPECT_THAT(defaults->temperature, Eq(std::nullopt));
  EXPECT_THAT(defaults->top_k, Eq(std::nullopt));
  EXPECT_THAT(defaults->top_p, Eq(std::nullopt));
  EXPECT_THAT(defaults->min_p, Eq(std::nullopt));
  EXPECT_THAT(defaults->typical_p, Eq(std::nullopt));
  EXPECT_THAT(defaults->repetition_penalty, Eq(std::nullopt));
}

TEST(GenerationConfigTest, ReadsEveryValue) {
  const auto defaults = Read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
      "min_p": 0.05, "typical_p": 0.9, "repetition_penalty": 1.05, "eos_token_id": [1, 2],
      "pad_token_id": 0, "transformers_version": "4.51.0", "something": {"else": 1}})");
  ASSERT_THAT(defaults, IsOk());
  EXPECT_THAT(defaults->temperature, Optional(0.6f));
  EXPECT_THAT(defaults->top_k, Optional(20u));
  EXPECT_THAT(defaults->top_p, Optional(0.95f));
  EXPECT_THAT(defaults->min_p, Optional(0.05f));
  EXPECT_THAT(defaults->typical_p, Optional(0.9f));
  EXPECT_THAT(defaults->repetition_penalty, Optional(1.05f));
}

TEST(GenerationConfigTest, NeutralValuesAndLimitsBelong) {
  const auto defaults = Read(R"({"temperature": 1, "top_k": 0, "top_p": 1.0, "min_p": 0,
      "typical_p": 1, "repetition_penalty": 1})");
  ASSERT_THAT(defaults, IsOk());
  EXPECT_THAT(defaults->top_k, Optional(0u));
  EXPECT_THAT(defaults->min_p, Optional(0.0f));
  EXPECT_THAT(Read(R"({"top_k": 4294967295, "min_p": 1, "temperature": 0})"), IsOk());
  EXPECT_THAT(Read(R"({"temperature": null, "top_k": null, "top_p": null})"), IsOk());
}

TEST(GenerationConfigTest, WithoutSamplingTheTemperatureIsZero) {
  EXPECT_THAT(Read(R"({"do_sample": false, "temperature": 0.7})")->temperature, Optional(0.0f));
  EXPECT_THAT(Read(R"({"do_sample": false})")->temperature, Optional(0.0f));
  EXPECT_THAT(Read(R"({"do_sample": true})")->temperature, Eq(std::nullopt));
  EXPECT_THAT(Read(R"({"temperature": 0.7})")->temperature, Optional(0.7f));
  EXPECT_THAT(Read("{}")->temperature, Eq(std::nullopt));
}

TEST(GenerationConfigTest, NamesFileKeyAndValueOfWhatIsWrong) {
  for (const auto& [text, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temperature": -0.5})", "temperature is -0.5, it must be at least 0"},
           {R"({"temperature": 1e39})", "temperature is 1e+39"},
           {R"({"temperature": "hot"})", "temperature is 'hot'"},
           {R"({"top_k": -1})", "top_k is -1, it must be between 0 and 4294967295"},
           {R"({"top_k": 4294967296})", "top_k is 4294967296"},
           {R"({"top_k": 5.5})", "top_k is 5.5"},
           {R"({"top_p": 0})", "top_p is 0, it must be above 0 and at most 1"},
           {R"({"top_p": 1e-60})", "top_p is 1e-60, it must be above 0"},
           {R"({"top_p": 7})", "top_p is 7"},
           {R"({"top_p": -0.1})", "top_p is -0.1"},
           {R"({"top_p": [0.9]})", "top_p is an array"},
           {R"({"min_p": 1.5})", "min_p is 1.5, it must be at least 0 and at most 1"},
           {R"({"min_p": -0.5})", "min_p is -0.5"},
           {R"({"typical_p": 0.0})", "typical_p is 0"},
           {R"({"repetition_penalty": 0})", "repetition_penalty is 0, it must be above 0"},
           {R"({"repetition_penalty": -1.1})", "repetition_penalty is -1.1"},
           {R"({"do_sample": "no"})", "do_sample is 'no'"},
           {R"({"do_sample": false, "top_p": 2})", "top_p is 2"},
           {R"({"temperature": NaN})", "not valid JSON"},
           {"[]", "is array, not a JSON object"},
           {"", "not valid JSON"}}) {
    EXPECT_THAT(Read(text), IsInvalidArgument("/generation_config.json: ", message)) << text;
  }
}

absl::StatusOr<GenerationDefaults> Read(const GgufWriter& writer) {
  const GgufInMemory gguf(writer);
  if (!gguf.header.ok()) return gguf.header.status();
  return ReadGgufGenerationDefaults(gguf.header->metadata);
}

TEST(GgufGenerationDefaultsTest, ReadsEveryValue) {
  GgufWriter writer;
  EXPECT_THAT(Read(writer)->temperature, Eq(std::nullopt));
  writer.Set<float>("general.sampling.temp", 0.6f);
  writer.Set<int32_t>("general.sampling.top_k", 20);
  writer.Set<float>("general.sampling.top_p", 0.95f);
  writer.Set<float>("general.sampling.min_p", 0.05f);
  writer.Set<float>("general.sampling.penalty_repeat", 1.5f);
  auto defaults = Read(writer);
  ASSERT_THAT(defaults, IsOk());
  EXPECT_THAT(defaults->temperature, Optional(0.6f));
  EXPECT_THAT(defaults->top_k, Optional(20u));
  EXPECT_THAT(defaults->top_p, Optional(0.95f));
  EXPECT_THAT(defaults->min_p, Optional(0.05f));
  EXPECT_THAT(defaults->typical_p, Eq(std::nullopt));
  // Over a window, not the whole text.
  EXPECT_THAT(defaults->repetition_penalty, Eq(std::nullopt));
  writer.Set<int32_t>("general.sampling.penalty_last_n", -1);
  writer.Set<int32_t>("general.sampling.top_k", -1);
  defaults = Read(writer);
  ASSERT_THAT(defaults, IsOk());
  EXPECT_THAT(defaults->repetition_penalty, Optional(1.5f));
  EXPECT_THAT(defaults->top_k, Optional(0u));
}

TEST(GgufGenerationDefaultsTest, ValuesOutsideTheirRangeNameTheirKey) {
  for (const auto& [key, value] : {std::pair("general.sampling.temp", -1.0f),
                                   {"general.sampling.top_p", 0.0f},
                                   {"general.sampling.top_p", 1.5f},
                                   {"general.sampling.min_p", -0.5f},
                                   {"general.sampling.penalty_repeat", 0.0f}}) {
    GgufWriter writer;
    writer.Set<int32_t>("general.sampling.penalty_last_n", -1);
    writer.Set(key, value);
    EXPECT_THAT(Read(writer), IsInvalidArgument(key, "it must be"));
  }
  GgufWriter writer;
  writer.Set<uint64_t>("general.sampling.top_k", uint64_t{1} << 40);
  EXPECT_THAT(Read(writer), IsInvalidArgument("key 'general.sampling.top_k' is 1099511627776,"
                                              " it must be between 0 and 4294967295"));
  writer.SetText("general.sampling.top_k", "20");
  EXPECT_THAT(Read(writer), IsInvalidArgument("'general.sampling.top_k' is '20'"));
}

}  // namespace
}  // namespace tlm
