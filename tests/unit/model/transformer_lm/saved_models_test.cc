// What RandomModel saves is what the program reads: the other tests that start from a directory
// stand on this, and so do the families' configurations and names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config/config_reader.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"
#include "tests/support/random_model.h"
#include "tests/support/reference_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

class SavedModelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SavedModelsTest, ReadBackComputesTheSame) {
  const RandomModel model(SmallConfig(GetParam()), DType::kF32, 1);
  const TempDir directory;
  model.Save(directory.path(), 2);
  const auto config = ReadModelConfig(directory.path());
  ASSERT_THAT(config, IsOk());
  const auto checkpoint = Checkpoint::Open(directory.path());
  ASSERT_THAT(checkpoint, IsOk());
  const auto weights = BindWeights(*config, *checkpoint);
  ASSERT_THAT(weights, IsOk());
  // Longer than every window.
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 90; ++i) ids.push_back((i * i * 7 + 3) % 131);
  EXPECT_EQ(ReferenceLogits(*config, *weights, ids),
            ReferenceLogits(model.config(), model.weights(), ids));
}

INSTANTIATE_TEST_SUITE_P(Families, SavedModelsTest, ::testing::ValuesIn(SmallConfigNames()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tlm
