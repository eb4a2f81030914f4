#include "server/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <vector>

#include "server/observe/engine_metrics.h"
#include "server/observe/metric_table.h"
#include "server/observe/request_metrics.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  std::string Text() const { return metrics_.Text(LifeState::kServing); }
  // The sample of this name and labels, as it is written; "" when there is none.
  std::string Sample(const std::string& series) const {
    std::istringstream lines(Text());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(series + " ")) return line.substr(series.size() + 1);
    }
    return "";
  }
  CallSummary Call(std::string_view tenant) {
    CallSummary call;
    call.rpc = "Generate";
    call.tenant = tenant;
    call.admitted = true;
    call.used_engine = true;
    return call;
  }
  EngineMetrics* SetModel() {
    ModelFacts facts;
    facts.name = "m";
    facts.max_context = 1000;
    facts.kv_blocks = 10;
    facts.max_draft_tokens = 2;
    return metrics_.SetModel(facts);
  }

  Metrics metrics_;
};

TEST_F(MetricsTest, AnAdmittedCallIsInFlightUntilItEnds) {
  const std::string in_flight = R"(tlm_requests_in_flight{rpc="Generate",tenant="acme"})";
  metrics_.CountAdmitted("Generate", "acme");
  EXPECT_EQ(Sample(in_flight), "1");
  metrics_.CountEnd(Call("acme"));
  EXPECT_EQ(Sample(in_flight), "0");
  EXPECT_EQ(Sample(R"(tlm_requests_admitted_total{rpc="Generate",tenant="acme"})"), "1");
  EXPECT_EQ(Sample(R"(tlm_requests_ended_total{code="OK",reason="",rpc="Generate",tenant="acme"})"),
            "1");
  EXPECT_THAT(Text(), Not(HasSubstr("tlm_requests_refused_total")));
}

TEST_F(MetricsTest, ARefusedCallIsCountedAsSuchAlone) {
  CallSummary call = Call("acme");
  call.admitted = false;
  call.code = absl::StatusCode::kResourceExhausted;
  call.reason = "QUEUE_FULL";
  metrics_.CountEnd(call);
  EXPECT_EQ(Sample(R"(tlm_requests_refused_total{code="RESOURCE_EXHAUSTED",reason="QUEUE_FULL",)"
                   R"(rpc="Generate",tenant="acme"})"),
            "1");
  EXPECT_THAT(Text(), Not(HasSubstr("tlm_requests_ended_total")));
}

TEST_F(MetricsTest, CountsFinishedReasonsInTheWordsOfVllm) {
  SetModel();
  const struct {
    std::string_view finish;
    absl::StatusCode code;
    std::string word;
  } kCases[] = {
      {"eos", absl::StatusCode::kOk, "stop"},
      {"stop_token", absl::StatusCode::kOk, "stop"},
      {"stop_string", absl::StatusCode::kOk, "stop"},
      {"", absl::StatusCode::kOk, "stop"},
      {"length", absl::StatusCode::kOk, "length"},
      {"context_length", absl::StatusCode::kOk, "length"},
      {"time_limit", absl::StatusCode::kOk, "length"},
      {"", absl::StatusCode::kCancelled, "abort"},
      {"", absl::StatusCode::kAborted, "abort"},
      {"", absl::StatusCode::kDeadlineExceeded, "abort"},
      {"", absl::StatusCode::kInternal, "error"},
  };
  std::map<std::string, int> expected;
  for (const auto& [finish, code, word] : kCases) {
    CallSummary call = Call("");
    call.finish = finish;
    call.code = code;
    metrics_.CountEnd(call);
    EXPECT_EQ(Sample("vllm:request_success_total{engine=\"0\",finished_reason=\"" + word +
                     "\",model_name=\"m\"}"),
              std::to_string(++expected[word]));
  }
}

TEST_F(MetricsTest, TenantsBeyondTheBoundShareOneName) {
  for (size_t i = 0; i < TenantLabels::kMaxTenants + 10; ++i) {
    metrics_.CountAdmitted("Generate", "t" + std::to_string(i));
  }
  metrics_.CountAdmitted("Generate", "t0");
  metrics_.CountAdmitted("Generate", "");
  EXPECT_EQ(Sample(R"(tlm_requests_admitted_total{rpc="Generate",tenant="other"})"), "10");
  EXPECT_EQ(Sample(R"(tlm_requests_admitted_total{rpc="Generate",tenant="t0"})"), "2");
  EXPECT_EQ(Sample(R"(tlm_requests_admitted_total{rpc="Generate",tenant="-"})"), "1");
}

TEST_F(MetricsTest, LabelsAreUtf8WhateverTheyWere) {
  metrics_.CountAdmitted("Generate", "caf\xc3\xa9 \"\\\n");
  metrics_.CountAdmitted("Generate", "bad\xff");
  EXPECT_EQ(Sample("tlm_requests_admitted_total{rpc=\"Generate\",tenant=\"caf\xc3\xa9 "
                   R"(\"\\\n"})"),
            "1");
  EXPECT_EQ(Sample(R"(tlm_requests_admitted_total{rpc="Generate",tenant="bad?"})"), "1");
}

TEST_F(MetricsTest, TellsTheStateAsOneOfAll) {
  const std::string text = metrics_.Text(LifeState::kDraining);
  EXPECT_THAT(text, HasSubstr("tlm_state{state=\"draining\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tlm_state{state=\"serving\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tlm_state{state=\"starting\"} 0\n"));
}

TEST_F(MetricsTest, AsksTheEngineAtEveryReadingAndKeepsItsLastWord) {
  SetModel();
  int64_t running = 3;
  metrics_.SetEngineStats([&running] {
    EngineStats stats;
    stats.running_requests = running;
    stats.kv_blocks_used = 5;
    stats.kv_blocks_total = 10;
    return stats;
  });
  const std::string series = R"(vllm:num_requests_running{engine="0",model_name="m"})";
  EXPECT_EQ(Sample(series), "3");
  EXPECT_EQ(Sample(R"(vllm:kv_cache_usage_perc{engine="0",model_name="m"})"), "0.5");
  running = 4;
  EXPECT_EQ(Sample(series), "4");
  running = 5;
  metrics_.SetEngineStats(nullptr);
  running = 6;
  EXPECT_EQ(Sample(series), "5");
}

TEST_F(MetricsTest, AnIdleEngineMakesNoProgressAndNeedsNone) {
  SetModel();
  EngineStats stats;
  stats.last_progress = absl::FromUnixSeconds(100);
  stats.taken = absl::FromUnixSeconds(160);
  metrics_.SetEngineStats([&stats] { return stats; });
  EXPECT_EQ(Sample("tlm_engine_last_progress_age_seconds"), "0");
  stats.busy = true;
  EXPECT_EQ(Sample("tlm_engine_last_progress_age_seconds"), "60");
}

TEST_F(MetricsTest, TellsHowStepsWereRun) {
  SetModel();
  EngineStats stats;
  stats.model_runs = {.ahead = 102,
                      .recorded = 3,
                      .replayed = 50,
                      .direct = 4,
                      .dropped = 1,
                      .library_failures = 5};
  metrics_.SetEngineStats([&stats] { return stats; });
  EXPECT_EQ(Sample(R"(tlm_model_steps_total{run="replayed"})"), "50");
  EXPECT_EQ(Sample(R"(tlm_model_steps_total{run="recorded"})"), "3");
  EXPECT_EQ(Sample(R"(tlm_model_steps_total{run="direct"})"), "4");
  EXPECT_EQ(Sample(R"(tlm_model_graphs_total{event="ahead"})"), "102");
  EXPECT_EQ(Sample(R"(tlm_model_graphs_total{event="dropped"})"), "1");
  EXPECT_EQ(Sample("tlm_model_library_failures_total"), "5");
}

TEST_F(MetricsTest, CountsCallsBeforeThereIsAModel) {
  CallSummary call = Call("");
  call.admitted = false;
  call.code = absl::StatusCode::kUnavailable;
  call.reason = "STARTING";
  metrics_.CountEnd(call);
  metrics_.RecordFirstToken(absl::Seconds(1));
  EXPECT_THAT(Text(), HasSubstr("STARTING"));
  EXPECT_THAT(Text(), Not(HasSubstr("vllm:")));
}

TEST_F(MetricsTest, ExposesEverythingThatIsDocumentedAndNothingElse) {
  metrics_.SetBuild("1.0", "abc");
  EngineMetrics* const engine = SetModel();
  metrics_.SetEngineStats([] {
    EngineStats stats;
    stats.kv_events.emplace();
    return stats;
  });
  engine->AddPrompt(1);
  engine->AddToken(absl::Milliseconds(1));
  engine->EndStep(1, absl::Milliseconds(1));
  metrics_.CountAdmitted("Generate", "t");
  metrics_.RecordFirstToken(absl::Milliseconds(5));
  CallSummary call = Call("t");
  call.queue = call.prefill = call.decode = absl::Milliseconds(1);
  metrics_.CountEnd(call);
  call.admitted = false;
  metrics_.CountEnd(call);
  metrics_.SetCertificateExpiry(absl::FromUnixSeconds(5));
  metrics_.CountCertificateReload(true);
  metrics_.SetApiKeys(2);
  metrics_.CountApiKeyReload(false);
  metrics_.CountSpans("exported", 1);
  metrics_.SetGpu([] {
    GpuFigures gpu;
    gpu.utilization = gpu.memory_utilization = 0.5;
    gpu.memory_used_bytes = gpu.memory_total_bytes = 1;
    gpu.power_watts = gpu.power_limit_watts = gpu.temperature_celsius = gpu.sm_clock_hertz = 1;
    gpu.clock_reasons = 0;
    gpu.ecc_uncorrected = gpu.pcie_replays = 0;
    gpu.xid_errors = gpu.last_xid = 1;
    return gpu;
  });
  std::map<std::string, std::string> exposed;
  std::istringstream lines(Text());
  std::string hash, word, name, type;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    if (words >> hash >> word >> name >> type && hash == "#" && word == "TYPE") {
      EXPECT_TRUE(exposed.emplace(name, type).second) << name << " occurs twice";
    }
  }
  std::map<std::string, std::string> documented;
  for (const MetricSpec& spec : AllMetrics()) {
    documented[std::string(spec.name)] = spec.kind == MetricKind::kCounter ? "counter"
                                         : spec.kind == MetricKind::kGauge ? "gauge"
                                                                           : "histogram";
  }
  EXPECT_EQ(exposed, documented);
}

}  // namespace
}  // namespace tlm
