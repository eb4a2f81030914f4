#include "model/ops/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tlm {
namespace {

constexpr double kTheta = 10000.0;

double Plain(int64_t i, int64_t head_dim) {
  return std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
}

TEST(RopeTableTest, EntriesAreCosinesAndSinesOfAnyPosition) {
  const RopeTable table(8, kTheta);
  const std::vector<float> entries = table.Entries(5, 3);
  ASSERT_EQ(entries.size(), 3u * 8u);
  for (int64_t p = 0; p < 3; ++p) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(5 + p) * Plain(i, 8);
      EXPECT_EQ(entries[p * 8 + 2 * i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(entries[p * 8 + 2 * i + 1], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(RopeTableTest, LinearScalingDividesEveryFrequency) {
  const RopeTable table(8, kTheta, RopeScaling{.kind = RopeScaling::Kind::kLinear, .factor = 4.0});
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(table.frequencies()[i], Plain(i, 8) / 4.0);
}

// What transformers' modeling_rope_utils.py gives for Llama 3.1's own parameters, in double:
// theta 500000, head_dim 16 and 8192 original positions leave the fast pairs as they are, divide
// the slow ones by 8 and blend one between.
TEST(RopeTableTest, Llama3ScalingIsThatOfTheReferenceImplementation) {
  const RopeTable table(16, 500000.0,
                        RopeScaling{.kind = RopeScaling::Kind::kLlama3,
                                    .factor = 8.0,
                                    .low_freq_factor = 1.0,
                                    .high_freq_factor = 4.0,
                                    .original_context_length = 8192});
  const double expected[] = {1.0,
                             0.19392274474868576,
                             0.03760603093086393,
                             0.0072926647372171085,
                             0.0005248461609929547,
                             3.428102195952591e-05,
                             6.647869871181236e-06,
                             1.2891731721515574e-06};
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(table.frequencies()[i], expected[i], 1e-14 * expected[i]) << "pair " << i;
  }
}

// Likewise, with a ramp whose ends are whole pairs or not.
TEST(RopeTableTest, YarnScalingIsThatOfTheReferenceImplementation) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kYarn,
                      .factor = 4.0,
                      .original_context_length = 2048,
                      .attention_factor = 1.1386294361119891};
  const double truncated[] = {1.0,     0.31622776601683794,   0.1,     0.02569350598886808,
                              0.00625, 0.0013834964763236657, 0.00025, 7.905694150420948e-05};
  const double exact[] = {1.0,
                          0.31622776601683794,
                          0.1,
                          0.023870192321736323,
                          0.005056971521129435,
                          0.0008112903817014309,
                          0.00025,
                          7.905694150420948e-05};
  const RopeTable whole(16, kTheta, scaling);
  scaling.truncate = false;
  const RopeTable fractional(16, kTheta, scaling);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(whole.frequencies()[i], truncated[i], 1e-14 * truncated[i]) << "pair " << i;
    EXPECT_NEAR(fractional.frequencies()[i], exact[i], 1e-14 * exact[i]) << "pair " << i;
  }
  const std::vector<float> entries = whole.Entries(7, 1);
  EXPECT_EQ(entries[0], static_cast<float>(1.1386294361119891 * std::cos(7.0)));
  EXPECT_EQ(entries[1], static_cast<float>(1.1386294361119891 * std::sin(7.0)));
}

// Where both ends fall on the first pair the ramp is a step, not a division by zero.
TEST(RopeTableTest, YarnRampOfNoWidthIsAStep) {
  const RopeTable table(8, kTheta,
                        RopeScaling{.kind = RopeScaling::Kind::kYarn,
                                    .factor = 2.0,
                                    .original_context_length = 64,
                                    .beta_fast = 32.0,
                                    .beta_slow = 11.0});
  EXPECT_EQ(table.frequencies()[0], 1.0);
  for (int64_t i = 1; i < 4; ++i) EXPECT_DOUBLE_EQ(table.frequencies()[i], Plain(i, 8) / 2.0);
}

}  // namespace
}  // namespace tlm
