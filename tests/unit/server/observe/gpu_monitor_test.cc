#include "server/observe/gpu_monitor.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <sstream>

#include "server/observe/metrics.h"
#include "tests/support/fake_clock.h"
#include "tests/support/nvml/fake_nvml.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kUuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

std::string Library(const std::string& version) {
  return std::string(std::getenv("TLM_FAKE_NVML")) + "/" + version + "/libnvidia-ml.so.1";
}

// The loaded library's own, as new; loaded for good.
FakeNvml& Fake(const std::string& version = "new") {
  void* const library = dlopen(Library(version).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  FakeNvml& fake = *static_cast<FakeNvml*>(dlsym(library, "fake_nvml"));
  EXPECT_EQ(fake.running, 0);
  EXPECT_EQ(fake.event_sets, 0);
  fake.uuid = kUuid;
  fake.errors.clear();
  fake.events.clear();
  fake.memory_calls = 0;
  return fake;
}

std::unique_ptr<Nvml> Open(const std::string& version = "new", const std::string& uuid = kUuid) {
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(uuid, Library(version));
  EXPECT_THAT(nvml, IsOk());
  return nvml.ok() ? *std::move(nvml) : nullptr;
}

class Logged {
 public:
  Logged() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~Logged() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST(NvmlTest, TellsFiguresInUnitsOfMetrics) {
  FakeNvml& fake = Fake();
  {
    const GpuFigures figures = Open()->Read();
    EXPECT_TRUE(figures.answers);
    EXPECT_EQ(figures.uuid, kUuid);
    EXPECT_EQ(figures.driver, "580.65.06");
    EXPECT_EQ(figures.utilization, 0.87);
    EXPECT_EQ(figures.memory_utilization, 0.4);
    EXPECT_EQ(figures.memory_used_bytes, 30'000);
    EXPECT_EQ(figures.memory_total_bytes, 80'000);
    EXPECT_EQ(figures.power_watts, 612.5);
    EXPECT_EQ(figures.power_limit_watts, 700);
    EXPECT_EQ(figures.temperature_celsius, 61);
    EXPECT_EQ(figures.sm_clock_hertz, 1755e6);
    EXPECT_EQ(figures.clock_reasons, 0x84);
    EXPECT_EQ(figures.ecc_uncorrected, 2);
    EXPECT_EQ(figures.pcie_replays, 7);
    EXPECT_EQ(figures.xid_errors, 0);
    EXPECT_EQ(figures.last_xid, std::nullopt);
  }
  EXPECT_EQ(fake.running, 0);
  EXPECT_EQ(fake.event_sets, 0);
}

TEST(NvmlTest, CountsXidErrorsAndLogsEach) {
  FakeNvml& fake = Fake();
  const std::unique_ptr<Nvml> nvml = Open();
  const Logged log;
  fake.events = {8, 31, 16, 5, 8, 79};  // the second is a change of clocks
  EXPECT_EQ(nvml->Read().xid_errors, 2);
  EXPECT_EQ(nvml->Read().last_xid, 79);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("Xid error 31"), HasSubstr("Xid error 79")));
  fake.events = {8, 31};
  fake.errors = {{"nvmlDeviceGetMemoryInfo", 15}};
  const GpuFigures lost = nvml->Read();
  EXPECT_FALSE(lost.answers);
  EXPECT_EQ(lost.xid_errors, 3);
  EXPECT_EQ(lost.utilization, std::nullopt);
}

TEST(NvmlTest, WhatAGpuDoesNotTellIsLeftOut) {
  FakeNvml& fake = Fake();
  fake.errors = {
      {"nvmlDeviceGetUtilizationRates", 3},  {"nvmlDeviceGetMemoryInfo", 3},
      {"nvmlDeviceGetTotalEccErrors", 3},    {"nvmlSystemGetDriverVersion", 999},
      {"nvmlDeviceRegisterEvents", 3},       {"nvmlDeviceGetTemperature", 999},
      {"nvmlDeviceGetPcieReplayCounter", 3}, {"nvmlDeviceGetCurrentClocksEventReasons", 3}};
  {
    const GpuFigures figures = Open()->Read();
    EXPECT_TRUE(figures.answers);
    EXPECT_EQ(figures.driver, "");
    for (const auto& figure :
         {figures.utilization, figures.memory_used_bytes, figures.memory_total_bytes,
          figures.ecc_uncorrected, figures.temperature_celsius, figures.pcie_replays}) {
      EXPECT_EQ(figure, std::nullopt);
    }
    EXPECT_EQ(figures.clock_reasons, std::nullopt);
    EXPECT_EQ(figures.xid_errors, std::nullopt);
    EXPECT_EQ(figures.power_watts, 612.5);
  }
  EXPECT_EQ(fake.event_sets, 0);
}

TEST(NvmlTest, AnOlderLibraryTellsWhatItKnows) {
  Fake("old");
  const GpuFigures figures = Open("old")->Read();
  EXPECT_TRUE(figures.answers);
  EXPECT_EQ(figures.memory_used_bytes, 30'000);
  EXPECT_EQ(figures.clock_reasons, 0x84);
  EXPECT_EQ(figures.utilization, std::nullopt);
  EXPECT_EQ(figures.power_watts, std::nullopt);
  EXPECT_EQ(figures.xid_errors, std::nullopt);
}

TEST(NvmlTest, AnInstanceHasItsOwnMemoryAndTheGpusHeat) {
  Fake().uuid = "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f";
  for (const std::string prefix : {"MIG-", "GPU-"}) {
    const GpuFigures figures = Open("new", prefix + std::string(kUuid).substr(4))->Read();
    EXPECT_EQ(figures.memory_total_bytes, 10'000);
    EXPECT_EQ(figures.utilization, std::nullopt);
    EXPECT_EQ(figures.power_watts, 612.5);
    EXPECT_EQ(figures.xid_errors, 0);
  }
}

TEST(NvmlTest, SaysWhyThereAreNoFigures) {
  const auto error = [](const std::string& uuid, const std::string& library) {
    const auto nvml = Nvml::Open(uuid, library);
    EXPECT_EQ(nvml.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(nvml.status().message());
  };
  FakeNvml& fake = Fake();
  EXPECT_THAT(error(kUuid, "libnvidia-none.so.1"), HasSubstr("libnvidia-none.so.1"));
  EXPECT_THAT(error(kUuid, "libm.so.6"), HasSubstr("libm.so.6: it has no nvmlInit_v2"));
  EXPECT_THAT(error("GPU-1", Library("new")), HasSubstr("GPU-1: Some Error (6)"));
  EXPECT_EQ(fake.running, 0);
  fake.errors = {{"nvmlInit_v2", 9}};
  EXPECT_THAT(error(kUuid, Library("new")), HasSubstr("nvmlInit: Driver Not Loaded (9)"));
  EXPECT_EQ(fake.running, 0);
}

// The first figures, once the library is open.
GpuFigures First(GpuMonitor& monitor) {
  std::optional<GpuFigures> figures;
  while (!(figures = monitor.Read()).has_value()) {
  }
  return *figures;
}

TEST(GpuMonitorTest, AsksTheDriverAtMostOnceASecondAndOnlyForReaders) {
  FakeNvml& fake = Fake();
  FakeClock clock;
  GpuMonitor monitor(kUuid, clock, Library("new"));
  EXPECT_EQ(First(monitor).power_watts, 612.5);
  const int calls = fake.memory_calls;
  clock.Advance(absl::Milliseconds(999));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(monitor.Read()->answers);
  EXPECT_EQ(fake.memory_calls, calls);
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(monitor.Read()->answers);
  EXPECT_EQ(fake.memory_calls, calls + 1);
}

TEST(GpuMonitorTest, ADriverThatHangsHoldsNobodyUp) {
  FakeNvml& fake = Fake();
  static FakeClock clock;
  const Logged log;
  {
    GpuMonitor monitor(kUuid, clock, Library("new"));
    First(monitor);
    fake.Set([&] { fake.hangs = true; });
    clock.Advance(absl::Seconds(30));
    EXPECT_TRUE(monitor.Read()->answers) << "what was read half a minute ago";
    clock.Advance(absl::Milliseconds(1));
    const std::optional<GpuFigures> figures = monitor.Read();
    EXPECT_FALSE(figures->answers);
    EXPECT_EQ(figures->uuid, kUuid);
    EXPECT_EQ(figures->power_watts, std::nullopt);
  }
  EXPECT_THAT(log.text(), HasSubstr("driver hangs"));
  fake.Set([&] { fake.hangs = false; });
  // The thread ends by itself.
  fake.WaitUntil([&] { return fake.running == 0; });
}

TEST(GpuMonitorTest, WithoutTheLibraryThereAreNoMetricsAndOneLine) {
  const Logged log;
  Metrics metrics;
  {
    GpuMonitor monitor(kUuid, *Clock::Monotonic(), "libnvidia-none.so.1");
    metrics.SetGpu([&] { return monitor.Read(); });
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(metrics.Text(LifeState::kServing), Not(HasSubstr("tlm_gpu")));
    }
    metrics.SetGpu(nullptr);
  }
  const std::string text = log.text();
  const size_t line = text.find("no metrics of the GPU: libnvidia-none.so.1");
  ASSERT_NE(line, text.npos);
  EXPECT_EQ(text.find("no metrics of the GPU", line + 1), text.npos);
}

TEST(GpuMetricsTest, AreThoseThatTheGpuTells) {
  Metrics metrics;
  EXPECT_THAT(metrics.Text(LifeState::kServing), Not(HasSubstr("tlm_gpu")));
  GpuFigures figures;
  figures.answers = true;
  figures.uuid = kUuid;
  figures.driver = "580";
  figures.power_watts = 612.5;
  figures.clock_reasons = 0x84;
  figures.xid_errors = 0;
  metrics.SetGpu([&] { return figures; });
  std::string text = metrics.Text(LifeState::kServing);
  EXPECT_THAT(text, AllOf(HasSubstr("tlm_gpu_info{driver=\"580\",uuid=\"" + std::string(kUuid)),
                          HasSubstr("\ntlm_gpu_up 1\n"), HasSubstr("\ntlm_gpu_power_watts 612.5\n"),
                          HasSubstr("\ntlm_gpu_xid_errors_total 0\n"),
                          HasSubstr("tlm_gpu_clock_limited{reason=\"power_cap\"} 1\n"),
                          HasSubstr("tlm_gpu_clock_limited{reason=\"hw_power_brake\"} 1\n"),
                          HasSubstr("tlm_gpu_clock_limited{reason=\"idle\"} 0\n")));
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("tlm_gpu_temperature")), Not(HasSubstr("tlm_gpu_last_xid"))));
  figures = GpuFigures();
  EXPECT_THAT(metrics.Text(LifeState::kServing), HasSubstr("\ntlm_gpu_up 0\n"));
}

}  // namespace
}  // namespace tlm
