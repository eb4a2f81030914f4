#include "server/rpc/otlp/call_spans.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/escaping.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

using otlp_trace::Span;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Pair;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "00f067aa0ba902b7";
constexpr char kParent[] = "b7ad6b7169203331";

class CallSpansTest : public ::testing::Test {
 protected:
  // A successful stream: 10 ms until it is queued, 20 ms in the queue, 30 ms of prefill, 40 ms of
  // decode; written from 70 ms on; ended after 110 ms.
  CallSpansTest() {
    record_.rpc = "Generate";
    record_.trace = {kTrace, kSpan, kParent, true, "vendor=value"};
    record_.peer = "10.1.2.3";
    record_.request_id = "request 7";
    record_.model = "demo";
    record_.operation = "text_completion";
    record_.arrival = kArrival;
    record_.admitted = true;
    record_.queued = kArrival + absl::Milliseconds(10);
    record_.started = true;
    record_.queue_time = absl::Milliseconds(20);
    record_.first_token = kArrival + absl::Milliseconds(60);
    record_.first_write = kArrival + absl::Milliseconds(70);
    record_.prefill_time = absl::Milliseconds(30);
    record_.decode_time = absl::Milliseconds(40);
    record_.prompt_tokens = 100;
    record_.cached_prompt_tokens = 64;
    record_.completion_tokens = 12;
    record_.finishes = {"stop_string", "context_length"};
    record_.generate.emplace();
    record_.generate->streaming = true;
    summary_.rpc = "Generate";
    summary_.total = absl::Milliseconds(110);
  }

  std::vector<Span> Spans() const { return SpansOf(record_, summary_, method_, kEnd); }
  // The attributes of the call's span as text, numbers in decimal.
  std::map<std::string, std::string> Attributes() const {
    std::map<std::string, std::string> attributes;
    const Span span = Spans().front();
    for (const otlp_common::KeyValue& attribute : span.attributes()) {
      EXPECT_TRUE(attributes.emplace(attribute.key(), Text(attribute.value())).second)
          << attribute.key();
    }
    return attributes;
  }
  void ExpectAbsent(const std::vector<std::string>& keys) const {
    for (const std::string& key : keys) EXPECT_EQ(Attributes().count(key), 0u) << key;
  }
  static std::string Text(const otlp_common::AnyValue& value) {
    switch (value.value_case()) {
      case otlp_common::AnyValue::kStringValue:
        return value.string_value();
      case otlp_common::AnyValue::kBoolValue:
        return value.bool_value() ? "true" : "false";
      case otlp_common::AnyValue::kIntValue:
        return std::to_string(value.int_value());
      case otlp_common::AnyValue::kDoubleValue:
        return fmt::format("{}", value.double_value());
      case otlp_common::AnyValue::kArrayValue: {
        std::string list;
        for (const auto& element : value.array_value().values()) list += Text(element) + ";";
        return list;
      }
      case otlp_common::AnyValue::VALUE_NOT_SET:
        break;
    }
    return "unset";
  }
  static uint64_t Nanos(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

  static constexpr absl::Time kArrival = absl::FromUnixSeconds(1000);       // the call's clock
  static constexpr absl::Time kEnd = absl::FromUnixSeconds(1'800'000'000);  // the wall clock
  std::string method_ = "tlm.v1.LanguageModel/Generate";
  CallRecord record_;
  CallSummary summary_;
};

TEST_F(CallSpansTest, BelongsToTheTraceOfTheCaller) {
  const Span span = Spans().front();
  EXPECT_EQ(span.trace_id(), absl::HexStringToBytes(kTrace));
  EXPECT_EQ(span.span_id(), absl::HexStringToBytes(kSpan));
  EXPECT_EQ(span.parent_span_id(), absl::HexStringToBytes(kParent));
  EXPECT_EQ(span.trace_state(), "vendor=value");
  EXPECT_EQ(span.flags(), 0x301u);
  EXPECT_EQ(span.kind(), Span::SPAN_KIND_SERVER);
  EXPECT_EQ(span.name(), "text_completion demo");
  EXPECT_EQ(span.start_time_unix_nano(), Nanos(kEnd - absl::Milliseconds(110)));
  EXPECT_EQ(span.end_time_unix_nano(), Nanos(kEnd));
}

TEST_F(CallSpansTest, BeginsATraceWithoutAParent) {
  record_.trace.parent_span_id.clear();
  EXPECT_EQ(Spans().front().parent_span_id(), "");
  EXPECT_EQ(Spans().front().flags(), 0x1u);
}

TEST_F(CallSpansTest, NamesTheCallItsEndAndItsTokens) {
  EXPECT_THAT(
      Attributes(),
      IsSupersetOf(
          {Pair("rpc.system.name", "grpc"), Pair("rpc.method", "tlm.v1.LanguageModel/Generate"),
           Pair("rpc.status_code", "OK"), Pair("network.peer.address", "10.1.2.3"),
           Pair("tlm.request_id", "request 7"), Pair("gen_ai.operation.name", "text_completion"),
           Pair("gen_ai.provider.name", "tlm"), Pair("gen_ai.request.model", "demo"),
           Pair("gen_ai.response.model", "demo"), Pair("gen_ai.usage.input_tokens", "100"),
           Pair("gen_ai.usage.cache_read.input_tokens", "64"),
           Pair("gen_ai.response.id", "request 7"), Pair("gen_ai.usage.output_tokens", "12"),
           Pair("gen_ai.server.time_to_first_token", "0.06"),
           Pair("gen_ai.response.finish_reasons", "stop;length;")}));
  ExpectAbsent({"error.type", "tlm.reason", "tlm.tenant"});
  EXPECT_EQ(Spans().front().status().code(), otlp_trace::Status::STATUS_CODE_UNSET);
}

TEST_F(CallSpansTest, NamesWhatTheRequestAskedForAsTheConventionsWantIt) {
  record_.generate->streaming = false;
  ExpectAbsent({"gen_ai.request.stream", "gen_ai.request.seed", "gen_ai.request.top_k",
                "gen_ai.request.presence_penalty", "gen_ai.request.frequency_penalty",
                "gen_ai.request.choice.count"});
  *record_.generate = {.streaming = true,
                       .seed = 7,
                       .temperature = 0.5,
                       .top_k = 40,
                       .top_p = 0.95f,
                       .presence_penalty = 1,
                       .frequency_penalty = -1,
                       .max_new_tokens = 99,
                       .num_sequences = 3};
  EXPECT_THAT(
      Attributes(),
      IsSupersetOf(
          {Pair("gen_ai.request.stream", "true"), Pair("gen_ai.request.seed", "7"),
           Pair("gen_ai.request.temperature", "0.5"), Pair("gen_ai.request.top_k", "40"),
           Pair("gen_ai.request.top_p", "0.95"), Pair("gen_ai.request.presence_penalty", "1"),
           Pair("gen_ai.request.frequency_penalty", "-1"), Pair("gen_ai.request.max_tokens", "99"),
           Pair("gen_ai.request.choice.count", "3")}));
}

TEST_F(CallSpansTest, FaultsOfTheServerAreErrors) {
  record_.caller.tenant = "team";
  summary_.tenant = "team";
  summary_.code = absl::StatusCode::kUnavailable;
  summary_.reason = "DRAINING";
  const Span span = Spans().front();
  EXPECT_EQ(span.status().code(), otlp_trace::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(span.status().message(), "DRAINING");
  EXPECT_THAT(
      Attributes(),
      IsSupersetOf({Pair("rpc.status_code", "UNAVAILABLE"), Pair("error.type", "UNAVAILABLE"),
                    Pair("tlm.reason", "DRAINING"), Pair("tlm.tenant", "team")}));
}

TEST_F(CallSpansTest, FaultsOfTheClientAreNone) {
  record_.admitted = false;
  record_.status = InvalidArgument("the secret prompt");
  summary_.code = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Spans().size(), 1u);
  EXPECT_EQ(Spans().front().status().code(), otlp_trace::Status::STATUS_CODE_UNSET);
  EXPECT_EQ(Attributes().at("rpc.status_code"), "INVALID_ARGUMENT");
  ExpectAbsent({"error.type", "gen_ai.usage.input_tokens"});
  EXPECT_EQ(Spans().front().SerializeAsString().find("secret"), std::string::npos);
}

TEST_F(CallSpansTest, CallsThatAreNoneOfTheModelsHaveTheirMethodsName) {
  record_ = CallRecord();
  record_.trace = {kTrace, kSpan, "", true, ""};
  method_ = "tlm.v1.LanguageModel/ModelInfo";
  EXPECT_EQ(Spans().front().name(), method_);
  EXPECT_EQ(Attributes().at("rpc.method"), method_);
  ExpectAbsent({"gen_ai.operation.name"});
}

TEST_F(CallSpansTest, PhasesAreItsChildren) {
  const std::vector<Span> spans = Spans();
  std::vector<std::string> names;
  std::vector<std::string> ids;
  for (size_t i = 1; i < spans.size(); ++i) {
    const Span& span = spans[i];
    names.push_back(span.name());
    ids.push_back(absl::BytesToHexString(span.span_id()));
    EXPECT_EQ(span.trace_id(), spans.front().trace_id());
    EXPECT_EQ(span.parent_span_id(), spans.front().span_id());
    EXPECT_EQ(span.kind(), Span::SPAN_KIND_INTERNAL);
    EXPECT_EQ(span.flags(), 0x101u);
    EXPECT_THAT(span.attributes(), IsEmpty());
  }
  EXPECT_THAT(names, ElementsAre("queue", "prefill", "decode", "write"));
  std::vector<std::string> logged;
  for (const CallPhase& phase : PhasesOf(record_, kArrival + summary_.total)) {
    logged.push_back(phase.span_id);
  }
  EXPECT_EQ(ids, logged);
  const absl::Time begin = kEnd - absl::Milliseconds(110);
  EXPECT_EQ(spans[1].start_time_unix_nano(), Nanos(begin + absl::Milliseconds(10)));
  EXPECT_EQ(spans[1].end_time_unix_nano(), Nanos(begin + absl::Milliseconds(30)));
  EXPECT_EQ(spans[2].end_time_unix_nano(), Nanos(begin + absl::Milliseconds(60)));
  EXPECT_EQ(spans[3].end_time_unix_nano(), Nanos(begin + absl::Milliseconds(100)));
  EXPECT_EQ(spans[4].start_time_unix_nano(), Nanos(begin + absl::Milliseconds(70)));
  EXPECT_EQ(spans[4].end_time_unix_nano(), Nanos(kEnd));
}

TEST_F(CallSpansTest, RepairsTextThatIsNotUtf8) {
  record_.model = "a\xff";
  EXPECT_EQ(Spans().front().name(), "text_completion a\xEF\xBF\xBD");
  EXPECT_EQ(Attributes().at("gen_ai.request.model"), "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tlm
