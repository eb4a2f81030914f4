#include "server/rpc/call/load_reporter.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/unit/server/rpc/fake_engine.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace tlm {
namespace {

using xds::data::orca::v3::OrcaLoadReport;

class LoadReporterTest : public ::testing::Test {
 protected:
  void SetLoad(int64_t running, int64_t waiting) {
    EngineStats stats;
    stats.running_requests = running;
    stats.waiting_requests = waiting;
    stats.kv_blocks_used = 30;
    stats.kv_blocks_total = 40;
    engine_.set_stats(stats);
  }
  OrcaLoadReport Report() {
    OrcaLoadReport report;
    EXPECT_TRUE(report.ParseFromString(reporter_.Serialized()));
    return report;
  }
  // As clients weigh a server: rps / utilization.
  double Weight() {
    const OrcaLoadReport report = Report();
    return report.rps_fractional() / report.application_utilization();
  }

  FakeClock clock_;
  FakeEngine engine_;
  LoadReporter reporter_{engine_, /*max_running_requests=*/4, clock_};
};

TEST_F(LoadReporterTest, HoldsTheShareOfTheRequestsThatCanRun) {
  SetLoad(3, 2);
  const OrcaLoadReport report = Report();
  EXPECT_DOUBLE_EQ(report.application_utilization(), (3 + 2 + LoadReporter::kIdleRequests) / 4);
  EXPECT_DOUBLE_EQ(report.rps_fractional(), 1);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("num_requests_running"), 3);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("num_requests_waiting"), 2);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("kv_cache_usage_perc"), 0.75);
}

TEST_F(LoadReporterTest, IsReadyBeforeTheEngineHasBlocks) {
  EXPECT_DOUBLE_EQ(Report().named_metrics().at("kv_cache_usage_perc"), 0);
}

// Without any utilization the policies of gRPC would spread calls evenly.
TEST_F(LoadReporterTest, AnIdleServerHasAWeightAndABusyOneLess) {
  SetLoad(0, 0);
  const double idle = Weight();
  SetLoad(1, 0);
  clock_.Advance(absl::Hours(1));
  EXPECT_GT(Weight(), 0);
  EXPECT_GE(idle, 2 * Weight());
}

TEST_F(LoadReporterTest, AveragesTheLoadOverItsMemory) {
  SetLoad(0, 0);
  Report();
  SetLoad(4, 0);
  clock_.Advance(LoadReporter::kMemory);
  EXPECT_NEAR(Report().application_utilization(), (4 * 0.632 + LoadReporter::kIdleRequests) / 4,
              0.001);
  clock_.Advance(20 * LoadReporter::kMemory);
  EXPECT_NEAR(Report().application_utilization(), (4 + LoadReporter::kIdleRequests) / 4, 0.001);
}

TEST_F(LoadReporterTest, KeepsAReportForAMoment) {
  SetLoad(0, 0);
  const std::string first = reporter_.Serialized();
  SetLoad(4, 0);
  clock_.Advance(LoadReporter::kMaxAge - absl::Microseconds(1));
  EXPECT_EQ(reporter_.Serialized(), first);
  clock_.Advance(absl::Microseconds(1));
  EXPECT_NE(reporter_.Serialized(), first);
}

}  // namespace
}  // namespace tlm
