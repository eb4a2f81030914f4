#include "server/process/start_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "server/config/command_line.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(StartLimitsTest, ThreadsThatCanBeHadAreEnough) { EXPECT_THAT(CheckThreads(30), IsOk()); }

TEST(StartLimitsTest, MetricsAndKernelsTakeThreadsOfTheirOwn) {
  ServerOptions options;
  options.threads = 1;
  const int least = ThreadsNeeded(options);
  options.threads = 5;
  EXPECT_EQ(ThreadsNeeded(options), least + 4);
  options.service.metrics_port = 0;
  EXPECT_EQ(ThreadsNeeded(options), least + 4 + 202);
  options.backend = BackendKind::kCuda;
  EXPECT_EQ(ThreadsNeeded(options), least + 202);
  options.service.kv_events.endpoint = "ipc:///run/events";
  EXPECT_EQ(ThreadsNeeded(options), least + 202 + 3);
  options.service.otlp.endpoint = "localhost:4317";
  EXPECT_EQ(ThreadsNeeded(options), least + 202 + 3 + 1);
}

TEST(StartLimitsDeathTest, WhatNothingCatchesEndsTheStartInALine) {
  const auto start_with = [](auto fault) {
    const StartLimits limits;
    std::thread(fault).join();
  };
  EXPECT_EXIT(start_with([] { throw std::bad_alloc(); }), ::testing::ExitedWithCode(kExitFailure),
              "^tlm-server: out of memory while starting[^\n]*\n$");
  EXPECT_EXIT(
      start_with([] {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }),
      ::testing::ExitedWithCode(kExitFailure),
      "^tlm-server: cannot create a thread at start[^\n]*\n$");
}

TEST(StartLimitsDeathTest, OtherFaultsStayWhatTheyAre) {
  const auto abort_after = [](auto fault) {
    const StartLimits limits;
    fault();
    std::abort();
  };
  EXPECT_EXIT(abort_after([] {}), ::testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(std::thread([&] { abort_after([] { throw std::logic_error("a bug"); }); }).join(),
              ::testing::KilledBySignal(SIGABRT), "a bug");
  EXPECT_EXIT(
      {
        { const StartLimits limits; }
        std::thread([] { throw std::bad_alloc(); }).join();
      },
      ::testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace tlm
