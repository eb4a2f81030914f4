// What is found without looking at single tokens, against looking at every one.
#include "model/sampling/vocabulary_scan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  std::string name;
  std::vector<float> logits;
};

// Rows on which shortcuts go wrong.
std::vector<Row> Rows() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Row> rows = {{"one", {3.0f}}, {"equal", std::vector<float>(700, 1.5f)}};
  rows.push_back({"flat", std::vector<float>(5003)});
  for (float& logit : rows.back().logits) logit = normal(random);
  rows.push_back({"peaked", std::vector<float>(4096)});
  for (float& logit : rows.back().logits) logit = 4.0f * normal(random);
  rows.back().logits[4095] = 25.0f;
  rows.push_back({"ties", std::vector<float>(3001)});
  for (float& logit : rows.back().logits) logit = static_cast<float>(random() % 5);
  rows.push_back({"few", std::vector<float>(2000, -kInfinity)});
  for (const size_t id : {3, 4, 1500, 1999}) rows.back().logits[id] = normal(random);
  rows.push_back({"zeros", std::vector<float>(300, -0.0f)});
  rows.back().logits[211] = 0.0f;
  rows.push_back({"far", std::vector<float>(600, -3e38f)});
  rows.back().logits[599] = 3e38f;
  return rows;
}

std::vector<Candidate> Ordered(const std::vector<float>& logits) {
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -kInfinity) candidates.push_back({logits[id], static_cast<int32_t>(id)});
  }
  std::sort(candidates.begin(), candidates.end(), MoreLikely);
  return candidates;
}

class VocabularyScanTest : public ::testing::TestWithParam<const ScanKernels*> {
 protected:
  VocabularyScan scan_{*GetParam()};
};

TEST_P(VocabularyScanTest, TheMostLikelyTokenIsTheFirstOfTheOrder) {
  for (const Row& row : Rows()) {
    const auto best = scan_.MostLikely(row.logits);
    ASSERT_TRUE(best.ok()) << row.name;
    EXPECT_EQ(*best, Ordered(row.logits).front().id) << row.name;
  }
  EXPECT_EQ(*scan_.MostLikely(std::vector<float>(100, -kInfinity)), -1);
}

TEST_P(VocabularyScanTest, TheFirstLogitThatIsNoneIsNamed) {
  std::vector<float> logits(5000, 0.0f);
  logits[4321] = kInfinity;
  logits[4400] = std::numeric_limits<float>::quiet_NaN();
  const auto best = scan_.MostLikely(logits);
  ASSERT_EQ(best.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(best.status().message()).find("4321"), std::string::npos)
      << best.status().message();
}

TEST_P(VocabularyScanTest, TheTopAreAmongThoseFound) {
  for (const Row& row : Rows()) {
    const std::vector<Candidate> ordered = Ordered(row.logits);
    for (const uint32_t count : {1u, 2u, 7u, 40u}) {
      std::vector<Candidate> found;
      if (!scan_.FindTop(row.logits, count, &found)) continue;
      std::sort(found.begin(), found.end(), MoreLikely);
      ASSERT_GE(found.size(), count) << row.name;
      for (uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(found[i].id, ordered[i].id) << row.name << ", place " << i;
        ASSERT_EQ(found[i].logit, ordered[i].logit);
      }
    }
  }
  std::vector<Candidate> found;
  EXPECT_TRUE(scan_.FindTop(std::vector<float>(6400, 1.0f), 100, &found));
  EXPECT_FALSE(scan_.FindTop(std::vector<float>(6400, 1.0f), 101, &found));
}

TEST_P(VocabularyScanTest, TheLastTokenWithinAProbabilityIsThatOfTheWholeOrder) {
  for (const Row& row : Rows()) {
    const std::vector<Candidate> ordered = Ordered(row.logits);
    const Candidate best = ordered.front();
    for (const float temperature : {0.01f, 0.7f, 1.0f, 30.0f}) {
      const double inverse = 1.0 / double{temperature};
      uint64_t total = 0;
      for (const Candidate& candidate : ordered) {
        total += ProbabilityWeight(ScaledLogit(candidate.logit, best.logit, inverse));
      }
      for (const float probability : {1e-6f, 0.1f, 0.5f, 0.9f, 0.99f, 0.99999994f}) {
        uint64_t sum = 0;
        Candidate expected{};
        for (const Candidate& candidate : ordered) {
          if (static_cast<double>(sum) >= double{probability} * static_cast<double>(total)) break;
          sum += ProbabilityWeight(ScaledLogit(candidate.logit, best.logit, inverse));
          expected = candidate;
        }
        const Candidate last = scan_.LastWithin(row.logits, best, probability, inverse);
        ASSERT_EQ(last.id, expected.id)
            << row.name << ", temperature " << temperature << ", probability " << probability;
        ASSERT_EQ(last.logit, expected.logit);
      }
    }
  }
}

TEST_P(VocabularyScanTest, FindsTheArgmaxOfEveryTokensNoise) {
  for (const Row& row : Rows()) {
    const std::vector<Candidate> ordered = Ordered(row.logits);
    const Candidate best = ordered.front();
    const Candidate middle = ordered[ordered.size() / 2];
    const Kept keeps[] = {{}, {.last = middle}, {.least_scaled = -2.5}, {.last = best}};
    for (const Kept& kept : keeps) {
      for (const float temperature : {1e-3f, 0.7f, 1.0f, 50.0f}) {
        const double inverse = 1.0 / double{temperature};
        for (uint64_t position = 0; position < 8; ++position) {
          const NoiseKey noise{.seed = 31, .position = position, .output_index = 2};
          double largest = -std::numeric_limits<double>::infinity();
          int32_t winner = -1;
          for (const Candidate& candidate : ordered) {
            const double scaled = ScaledLogit(candidate.logit, best.logit, inverse);
            if (MoreLikely(kept.last, candidate) || scaled < kept.least_scaled) continue;
            const double value = scaled + GumbelNoise(NoiseWord(noise, candidate.id));
            if (value < largest || (value == largest && candidate.id > winner)) continue;
            largest = value;
            winner = candidate.id;
          }
          ASSERT_EQ(scan_.ArgmaxWithNoise(row.logits, best, inverse, kept, noise), winner)
              << row.name << ", temperature " << temperature << ", position " << position;
        }
      }
    }
  }
}

TEST_P(VocabularyScanTest, TheNormaliserIsTheSumOfEveryWeight) {
  for (const Row& row : Rows()) {
    const float max = Ordered(row.logits).front().logit;
    const double scale = NormaliserScale(static_cast<int64_t>(row.logits.size()));
    uint64_t sum = 0;
    for (const float logit : row.logits) sum += NormaliserWeight(logit, max, scale);
    EXPECT_EQ(scan_.NormaliserOf(row.logits), Normaliser(max, sum, scale)) << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, VocabularyScanTest, ::testing::ValuesIn(AvailableScanKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tlm
