#include "server/rpc/call/call_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "model/base/errors.h"
#include "server/observe/log.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "the rain in Spain";

// A method of every service, and what is no method.
constexpr const char* kRpcs[] = {
    "Generate",        "Forward",          "Score",      "Verify",        "Tokenize",
    "Detokenize",      "ModelInfo",        "GetLoad",    "Abort",         "StreamCoreMetrics",
    "dynamo.Generate", "openengine.Abort", "ModelInfer", "vllm.Generate", "unknown"};

constexpr absl::StatusCode kCodes[] = {
    absl::StatusCode::kInvalidArgument,  absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kNotFound,         absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnauthenticated,
    absl::StatusCode::kUnimplemented,    absl::StatusCode::kAlreadyExists,
    absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable};

class CallLogTest : public ::testing::Test {
 protected:
  ~CallLogTest() override { spdlog::set_default_logger(before_); }

  // The line of the call's end, in that format, without its line break.
  std::string LineOf(LogFormat format, const char* rpc, const absl::Status& status,
                     bool calls = true) {
    EXPECT_THAT(SetUpLog("info", format, calls), IsOk());
    std::ostringstream out;
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
    if (format == LogFormat::kJson) {
      logger->set_formatter(std::make_unique<JsonFormatter>());
    } else {
      logger->set_pattern("%v");
    }
    spdlog::set_default_logger(logger);
    CallRecord record;
    record.rpc = rpc;
    record.clock = Clock::Monotonic();
    record.arrival = record.clock->Now();
    record.metrics = &metrics_;
    record.status = status;
    EndCall(record);
    std::string lines = out.str();
    if (lines.ends_with('\n')) lines.pop_back();
    return lines;
  }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  Metrics metrics_;
};

TEST_F(CallLogTest, EveryRefusalHasReasonAndFieldButNoText) {
  for (const char* const rpc : kRpcs) {
    for (const absl::StatusCode code : kCodes) {
      for (const std::string_view reason : {"", "SOME_REASON"}) {
        for (const std::string_view field : {"", "sampling.logit_bias[3]"}) {
          absl::Status status = MakeStatus(code, "quotes '{}'", kSecret);
          if (!reason.empty()) status = WithReason(status, reason);
          if (!field.empty()) status = WithField(status, field);
          const std::string text = LineOf(LogFormat::kText, rpc, status);
          std::string begin = fmt::format("request rpc={} id=\"\" tenant=\"\" status={}", rpc,
                                          absl::StatusCodeToString(code));
          if (!reason.empty()) begin += fmt::format(" reason={}", reason);
          if (!field.empty()) begin += fmt::format(" field={}", field);
          EXPECT_TRUE(text.starts_with(begin + " ")) << text;
          EXPECT_THAT(text, Not(HasSubstr("Spain")));

          const std::string line = LineOf(LogFormat::kJson, rpc, status);
          const auto json = nlohmann::json::parse(line);
          EXPECT_EQ(json["rpc"], rpc);
          EXPECT_EQ(json["code"], absl::StatusCodeToString(code));
          EXPECT_EQ(json["reason"], reason);
          EXPECT_EQ(json.value("field", ""), field);
          EXPECT_EQ(json.contains("field"), !field.empty());
          EXPECT_THAT(line, Not(HasSubstr("Spain")));
        }
      }
    }
  }
}

TEST_F(CallLogTest, AFieldEndsBeforeTheClientsText) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"chat.messages[2].tool_calls[0].arguments_json",
       "chat.messages[2].tool_calls[0].arguments_json"},
      {"parameters[max_tokens]", "parameters[max_tokens]"},
      {"openengine-priority", "openengine-priority"},
      {"parameters['the rain in Spain']", "parameters"},
      {"request.parameters['the'].x", "request.parameters"},
      {"a.'b'", "a"},
      {"a\nb=c", "a"},
      {"a b", "a"},
      {"a=b", "a"},
      {"\u00e9", ""},
  };
  for (const auto& [field, logged] : kCases) {
    const absl::Status status = WithField(InvalidArgument("no"), field);
    EXPECT_EQ(
        nlohmann::json::parse(LineOf(LogFormat::kJson, "Generate", status)).value("field", ""),
        logged);
    const std::string text = LineOf(LogFormat::kText, "Generate", status);
    const std::string shown = logged.empty() ? "" : fmt::format(" field={}", logged);
    EXPECT_THAT(text, HasSubstr(fmt::format("status=INVALID_ARGUMENT{} peer=", shown)));
  }
}

TEST_F(CallLogTest, ASuccessHasNeither) {
  EXPECT_THAT(LineOf(LogFormat::kText, "ModelInfo", absl::OkStatus()),
              ::testing::AllOf(Not(HasSubstr("reason=")), Not(HasSubstr("field="))));
}

TEST_F(CallLogTest, WithoutCallsOnlyFaultsOfTheServerAreLogged) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    for (const absl::Status& status : {absl::OkStatus(), absl::Status(InvalidArgument("no")),
                                       absl::UnauthenticatedError("no")}) {
      EXPECT_EQ(LineOf(format, "Generate", status, /*calls=*/false), "");
    }
    EXPECT_THAT(LineOf(format, "Generate", Internal("the device failed"), /*calls=*/false),
                HasSubstr("the device failed"));
  }
}

}  // namespace
}  // namespace tlm
