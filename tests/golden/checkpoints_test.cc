// Runs complete checkpoints through the real server: rows of the Forward RPC against double
// precision, greedy Generate against recorded ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client/cpp/client.h"
#include "tests/support/oracles.h"
#include "tests/support/random_model.h"
#include "tests/support/reference_model.h"
#include "tests/support/server_process.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

class CheckpointTest : public ::testing::Test {
 protected:
  void Serve(const std::string& model_dir) {
    server_ = ServerProcess::Serve({"--model=" + model_dir});
    ASSERT_NE(server_, nullptr);
    auto client = client::Client::Connect(server_->address());
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
  }

  // Returns the rows of all positions of `ids`.
  std::vector<float> ForwardAll(const std::vector<int32_t>& ids) {
    v1::ForwardRequest request;
    request.add_sequences()->mutable_ids()->Add(ids.begin(), ids.end());
    request.set_all(true);
    const auto result = client_->Forward(request);
    EXPECT_THAT(result, IsOk());
    if (!result.ok()) return {};
    EXPECT_EQ(result->rows.size(), ids.size());
    return result->values;
  }

  std::vector<int32_t> GenerateGreedily(const std::vector<int32_t>& prompt, uint32_t count) {
    v1::GenerateRequest request;
    request.mutable_prompt_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
    request.mutable_sampling()->set_temperature(0.0f);
    request.mutable_stopping()->set_max_new_tokens(count);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_output()->set_token_ids(true);
    request.mutable_output()->set_text(false);
    const auto result = client_->Generate(request);
    EXPECT_THAT(result, IsOk());
    std::vector<int32_t> ids;
    if (!result.ok()) return ids;
    for (const v1::TokenInfo& token : result->outputs[0].tokens) {
      ids.push_back(static_cast<int32_t>(token.id()));
    }
    return ids;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
};

std::vector<int32_t> ToIds(const std::vector<double>& values) {
  return std::vector<int32_t>(values.begin(), values.end());
}

double Spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

double WorstError(const std::vector<float>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double worst = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  return worst;
}

// --- Checkpoints and results made by others ------------------------------------------------------

class StoriesTest : public CheckpointTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(StoriesTest, LogitsAndGreedyTokensAreTheRecordedOnes) {
  const std::optional<std::string> model = OraclePath(std::string("stories260K/") + GetParam());
  if (!model.has_value()) GTEST_SKIP() << "no oracle directory beside the checkout";
  ASSERT_NO_FATAL_FAILURE(Serve(*model));
  const std::string expected = *OraclePath("stories260K/expected");
  const std::vector<int32_t> ids = ToIds(ReadNpy(expected + "/greedy_ids_200.npy").values);
  ASSERT_EQ(ids.size(), 200u);
  const NpyArray logits = ReadNpy(expected + "/logits_200x512_f64.npy");
  EXPECT_LT(WorstError(ForwardAll(ids), logits.values), 1e-4);
  EXPECT_EQ(GenerateGreedily({ids[0]}, 199), std::vector<int32_t>(ids.begin() + 1, ids.end()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoriesTest,
                         ::testing::Values("stories260K-cs336", "stories260K-hf-llama"),
                         [](const auto& info) {
                           return std::string(info.param).find("cs336") != std::string::npos
                                      ? "Cs336"
                                      : "HuggingFaceLlama";
                         });

class TinyTest : public CheckpointTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(TinyTest, LogitsAreTheRecordedOnes) {
  const std::optional<std::string> model = OraclePath(std::string("tiny/") + GetParam());
  if (!model.has_value()) GTEST_SKIP() << "no oracle directory beside the checkout";
  ASSERT_NO_FATAL_FAILURE(Serve(*model));
  const NpyArray inputs = ReadNpy(*model + "/input_ids.npy");
  const NpyArray expected = ReadNpy(*model + "/logits_f64.npy");
  const int64_t length = inputs.shape[1];
  const int64_t row_values = length * expected.shape[2];
  for (int64_t row = 0; row < inputs.shape[0]; ++row) {
    const auto begin = inputs.values.begin() + row * length;
    const auto logits = expected.values.begin() + row * row_values;
    const std::vector<double> row_logits(logits, logits + row_values);
    EXPECT_LT(WorstError(ForwardAll(ToIds({begin, begin + length})), row_logits),
              1e-4 * Spread(row_logits));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TinyTest,
                         ::testing::Values("qwen3-tiny-untied", "llama-tiny-plain",
                                           "gpt2-tiny-gelu_new"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('-'));
                         });

class RecordedGpt2Test : public CheckpointTest {
 protected:
  void SetUp() override {
    const std::optional<std::string> directory = OraclePath("gpt2-tiny-recorded");
    if (!directory.has_value()) GTEST_SKIP() << "no oracle directory beside the checkout";
    directory_ = *directory;
    std::ifstream(directory_ + "/expected.json") >> expected_;
    ASSERT_NO_FATAL_FAILURE(Serve(directory_));
  }

  std::string directory_;
  nlohmann::json expected_;
};

TEST_F(RecordedGpt2Test, LogitsAreTheRecordedOnes) {
  std::vector<float> logits;
  for (const auto& prompt : expected_["prompt_ids"]) {
    const std::vector<float> rows = ForwardAll(prompt);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  const NpyArray exact = ReadNpy(directory_ + "/prompt_logits_numpy_f64.npy");
  EXPECT_LT(WorstError(logits, exact.values), 1e-4 * Spread(exact.values));
  const std::vector<double> published = expected_["published_prompt_logits_every_200th"];
  std::vector<float> sample;
  for (size_t i = 0; i < logits.size(); i += 200) sample.push_back(logits[i]);
  EXPECT_LT(WorstError(sample, published), double{expected_["tolerance"]});
}

TEST_F(RecordedGpt2Test, GreedyTokensAreTheRecordedOnes) {
  const auto& prompts = expected_["prompt_ids"];
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> ids = prompts[i];
    const std::vector<int32_t> whole = expected_["greedy_max_length_10"][i];
    const std::vector<int32_t> sampled =
        GenerateGreedily(ids, static_cast<uint32_t>(whole.size() - ids.size()));
    ids.insert(ids.end(), sampled.begin(), sampled.end());
    EXPECT_EQ(ids, whole);
  }
}

// --- The same checks with the project's own reference --------------------------------------------

struct RandomCase {
  const char* config;
  DType dtype;
  int shards;
};

class RandomCheckpointTest : public CheckpointTest,
                             public ::testing::WithParamInterface<RandomCase> {};

TEST_P(RandomCheckpointTest, LogitsAreThoseOfTheReference) {
  const RandomModel model(SmallConfig(GetParam().config), GetParam().dtype, 20);
  const TempDir directory;
  model.Save(directory.path(), GetParam().shards);
  ASSERT_NO_FATAL_FAILURE(Serve(directory.path()));
  std::vector<int32_t> ids;
  for (int i = 0; i < 140; ++i) ids.push_back((i * i * 7 + 3) % 131);
  const std::vector<double> expected = ReferenceLogits(model.config(), model.weights(), ids);
  const std::vector<float> actual = ForwardAll(ids);
  ASSERT_EQ(actual.size(), expected.size());
  // Weights of 16 bits come with keys and values, and on some machines activations, of their type.
  const DType dtype = GetParam().dtype;
  const double tolerance = dtype == DType::kF32 ? 2e-6 : dtype == DType::kF16 ? 1e-3 : 1e-2;
  EXPECT_LT(RelativeError(actual, expected), tolerance);
}

// Every family, in every type and both forms of checkpoint.
INSTANTIATE_TEST_SUITE_P(
    Families, RandomCheckpointTest,
    ::testing::Values(RandomCase{"cs336", DType::kF32, 1}, RandomCase{"qwen3_mha", DType::kF32, 1},
                      RandomCase{"llama", DType::kBF16, 3}, RandomCase{"mistral", DType::kF32, 1},
                      RandomCase{"qwen2", DType::kBF16, 1}, RandomCase{"qwen3", DType::kF32, 2},
                      RandomCase{"qwen3", DType::kF16, 1}, RandomCase{"gpt2", DType::kF16, 2},
                      RandomCase{"lm_layer_norm_outside", DType::kF32, 1}),
    [](const auto& info) {
      return std::string(info.param.config) + "_" + DTypeName(info.param.dtype);
    });

}  // namespace
}  // namespace tlm
