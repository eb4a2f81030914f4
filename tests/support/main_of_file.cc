// The main function of a folder's tests. `--file=NAME_test.cc` runs the tests of one source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

// The tests that the source defines, as a filter of GoogleTest.
std::string FilterOf(std::string_view file) {
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string_view path = test.file();
      if (path.substr(path.rfind('/') + 1) != file) continue;
      filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kFlag = "--file=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    // A filter of the caller's, or of a death test that starts this program again, counts alone.
    if (!argument.starts_with(kFlag) || ::testing::GTEST_FLAG(filter) != "*") continue;
    const std::string filter = FilterOf(argument.substr(kFlag.size()));
    if (filter.empty()) {
      std::fprintf(stderr, "no test is defined in %s\n", argv[i] + kFlag.size());
      return 1;
    }
    ::testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
