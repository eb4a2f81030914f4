#include "server/observe/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/check_names.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace tlm {
namespace {

TEST(MetricTableTest, NamesAreGoodAndUnique) {
  std::set<std::string_view> names;
  for (const MetricSpec& spec : AllMetrics()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_TRUE(prometheus::CheckMetricName(std::string(spec.name))) << spec.name;
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    std::istringstream labels{std::string(spec.labels)};
    for (std::string label; labels >> label;) {
      EXPECT_THAT(label, ::testing::MatchesRegex("[a-z][a-z_]*"));
    }
  }
}

TEST(MetricTableTest, CountersEndInTotal) {
  for (const MetricSpec& spec : AllMetrics()) {
    const bool total = spec.name.ends_with("_total");
    // vLLM has a histogram of this name.
    if (spec.name == "vllm:iteration_tokens_total") continue;
    EXPECT_EQ(total, spec.kind == MetricKind::kCounter) << spec.name;
  }
}

TEST(MetricTableTest, IsWhatTheDocumentationSays) {
  const std::string path = std::string(std::getenv("TLM_SOURCE_DIR")) + "/server/observe/README.md";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, ::testing::HasSubstr(MetricTableMarkdown()))
      << "server/observe/README.md must hold this table:\n"
      << MetricTableMarkdown();
}

}  // namespace
}  // namespace tlm
