#include "server/observe/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace tlm {
namespace {

using Json = nlohmann::ordered_json;

class JsonFormatterTest : public ::testing::Test {
 protected:
  JsonFormatterTest() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_));
    logger->set_formatter(std::make_unique<JsonFormatter>());
    spdlog::set_default_logger(std::move(logger));
  }
  ~JsonFormatterTest() override { spdlog::set_default_logger(before_); }

  // What was logged, each line an object.
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::istringstream in(out_.str());
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  std::ostringstream out_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST_F(JsonFormatterTest, WritesTimeLevelAndMessage) {
  spdlog::warn("half {}", "full");
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "warning");
  EXPECT_EQ(lines[0]["msg"], "half full");
  EXPECT_THAT(lines[0]["ts"].get<std::string>(),
              ::testing::MatchesRegex("20..-..-..T..:..:..\\....Z"));
}

TEST_F(JsonFormatterTest, AddsTheFieldsOfAnEventInOrder) {
  Json fields;
  fields["b"] = 1;
  fields["a"] = Json::array({"x"});
  LogEvent(spdlog::level::info, "event", fields);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr(R"("msg":"event","b":1,"a":["x"]})"));
}

TEST_F(JsonFormatterTest, FieldsAreOfTheirEventAlone) {
  LogEvent(spdlog::level::info, "event", Json{{"field", 1}});
  spdlog::info("plain");
  EXPECT_FALSE(Lines().at(1).contains("field"));
}

TEST_F(JsonFormatterTest, StaysOneObjectALineWhateverIsWritten) {
  std::string everything;
  for (int c = 0; c < 256; ++c) everything += static_cast<char>(c);
  LogEvent(spdlog::level::info, everything, Json{{"id", everything}, {"id2", "\"}\n{\""}});
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["id2"], "\"}\n{\"");
  EXPECT_EQ(lines[0]["id"].get<std::string>().substr(0, 128), everything.substr(0, 128));
}

TEST(TextLogTest, StaysOneLineOfUtf8WhateverIsWritten) {
  const auto before = spdlog::default_logger();
  std::string everything;
  for (int c = 1; c < 256; ++c) everything += static_cast<char>(c);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(SetUpLog("info", LogFormat::kText).ok());
  spdlog::info("{}", everything);
  spdlog::debug("not this");
  spdlog::set_default_logger(before);
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1);
  EXPECT_EQ(written.find('\x1b'), std::string::npos);
  EXPECT_THAT(written, ::testing::HasSubstr("Z info ?"));
  EXPECT_THAT(Json(written).dump(), ::testing::HasSubstr("ABC"));  // throws for what is not UTF-8
}

TEST(TextLogTest, RefusesALevelThatItDoesNotKnow) {
  EXPECT_THAT(std::string(SetUpLog("loud", LogFormat::kText).message()),
              ::testing::HasSubstr("'loud'"));
}

TEST(LineLimitTest, LetsSoManyThroughInASecondAndTellsTheNextOneHowManyWereLeftOut) {
  LineLimit limit(2);
  const absl::Time now = absl::FromUnixSeconds(100);
  EXPECT_EQ(limit.Take(now), 0);
  EXPECT_EQ(limit.Take(now), 0);
  EXPECT_EQ(limit.Take(now), std::nullopt);
  EXPECT_EQ(limit.Take(now + absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(limit.Take(now + absl::Seconds(1)), 2);
  EXPECT_EQ(limit.Take(now + absl::Seconds(2)), 0);
}

}  // namespace
}  // namespace tlm
