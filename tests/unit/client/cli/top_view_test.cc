#include "client/cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/proto.h"

namespace tlm::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

ServerLoad Serving(const std::string& target) {
  const auto load = Proto<v1::GetLoadResponse>(R"(
      running_sequences: 12 parked_sequences: 1 queued_requests: 3 queued_tokens: 4000
      estimated_queue_time { seconds: 1 nanos: 500000000 }
      kv_blocks_total: 200 kv_blocks_used: 100 kv_blocks_cached: 40
      prefill_tokens_per_second: 1234.5 decode_tokens_per_second: 678.9
      active_calls: 15 steps: 9876 preemptions: 2 uptime { seconds: 3700 }
      prefix_cache { queried_tokens: 1000 hit_tokens: 250 })");
  ServerLoad server;
  server.target = target;
  server.asked = true;
  server.load = load;
  server.answered_at = kNow;
  server.history.Add(load, kNow);
  return server;
}

ServerLoad Unreachable(const std::string& target) {
  ServerLoad server;
  server.target = target;
  server.asked = true;
  server.status = absl::UnavailableError("connection\nrefused\x1b[2J");
  return server;
}

ServerLoad NotAskedYet(const std::string& target) {
  ServerLoad server;
  server.target = target;
  return server;
}

std::string Screen(const std::vector<ServerLoad>& servers, TerminalSize size, bool unicode = true) {
  std::string text;
  for (const StyledLine& line : TopLines(servers, kNow, {.size = size, .unicode = unicode})) {
    text += line.text() + '\n';
  }
  return text;
}

TEST(TopViewTest, ShowsABlockAServer) {
  EXPECT_THAT(
      Screen({Serving("a:1")}, {24, 120}),
      AllOf(
          HasSubstr("a:1  serving  up 1h1m40s"),
          HasSubstr("12 running, 3 waiting (about 1.5s, 4,000 tokens)   1 paused "
                    "(backpressure)   15 active calls\n"),
          HasSubstr("[#########################==========---------------]  50.0 %   100 used (#), "
                    "40 cached (=) of 200 blocks\n"),
          HasSubstr("25.0 % hit rate   1,000 prompt tokens\n"), HasSubstr("1,234.5 tok/s"),
          HasSubstr("678.9 tok/s"), HasSubstr("9,876, the last 0ms ago   2 preemptions")));
}

TEST(TopViewTest, TellsWhichServersAreNotReachedAndWhy) {
  ServerLoad lost = Unreachable("b:1");
  lost.load = v1::GetLoadResponse();
  lost.answered_at = kNow - absl::Seconds(9);
  const std::string screen = Screen({Serving("a:1"), lost, NotAskedYet("c:1")}, {40, 100});
  EXPECT_THAT(screen, HasSubstr("1 of 3 servers"));
  EXPECT_THAT(screen, HasSubstr("b:1  unreachable  for 9s  UNAVAILABLE: connection refused\\x1b"));
  EXPECT_THAT(screen, HasSubstr("c:1  connecting\n"));
}

TEST(TopViewTest, ShowsDraining) {
  ServerLoad server = Serving("a:1");
  server.load->set_draining(true);
  EXPECT_THAT(Screen({server}, {24, 80}), HasSubstr("a:1  draining"));
}

TEST(TopViewTest, ShowsARowAServerWhereBlocksDoNotFit) {
  const std::vector<ServerLoad> servers = {Serving("a:1"), Unreachable("b:1"), Serving("c:1")};
  const std::string screen = Screen(servers, {10, 140});
  EXPECT_THAT(screen, AllOf(HasSubstr("run  wait "), HasSubstr("a:1     serving"),
                            HasSubstr("b:1     unreachable\n"), Not(HasSubstr("KV cache"))));
}

TEST(TopViewTest, SaysNothingOfWhatIsNotThere) {
  ServerLoad idle = Serving("a:1");
  idle.load = v1::GetLoadResponse();
  idle.load->mutable_last_step_age()->set_seconds(4);
  const std::string screen = Screen({idle}, {24, 100});
  EXPECT_THAT(screen, AllOf(HasSubstr("0 running, 0 waiting   0 active calls\n"),
                            HasSubstr("no prompts so far\n"), HasSubstr("steps     0   0 pre")));
  for (const char* absent : {"about", "paused", "- ", " ago"}) {
    EXPECT_THAT(screen, Not(HasSubstr(absent))) << screen;
  }
}

// Whatever the terminal's width: what is shown is whole, and the load is among it.
TEST(TopViewTest, CutsNoNumber) {
  ServerLoad busy = Serving("127.0.0.1:50061");
  Merge(R"(kv_blocks_total: 1234567 kv_blocks_used: 1034567 prefill_tokens_per_second: 123456.7
           steps: 987654321)",
        *busy.load);
  for (const size_t servers : {size_t{1}, size_t{6}}) {
    for (const size_t columns : {20u, 40u, 80u, 120u}) {
      const std::string screen =
          Screen(std::vector<ServerLoad>(servers, busy), {24, columns}, /*unicode=*/false);
      std::istringstream lines(screen);
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), columns) << screen;
      }
      EXPECT_THAT(screen, AllOf(HasSubstr("127.0.0.1:50061"), ContainsRegex("run.* 12|12 run")))
          << columns;
    }
  }
}

TEST(TopViewTest, ShowsTheLoadOnTwentyColumns) {
  EXPECT_THAT(Screen({Serving("a:1"), Unreachable("b:1")}, {24, 20}),
              HasSubstr("a:1\n run 12, wait 3\n KV 50.0 %\n in  1,234 tok/s\n out 679 tok/s\n\n"
                        "b:1\n unreachable\n"));
  EXPECT_THAT(Screen({Serving("a:1"), Serving("b:1"), Serving("c:1")}, {15, 20}),
              AllOf(HasSubstr("b:1\n run 12"), HasSubstr("... and 1 more\n")));
}

TEST(TopViewTest, NeverShowsMoreLinesThanThereAre) {
  std::vector<ServerLoad> servers;
  for (int i = 0; i < 30; ++i) servers.push_back(Serving("server-" + std::to_string(i)));
  for (size_t rows = 1; rows < 40; ++rows) {
    EXPECT_LE(TopLines(servers, kNow, {.size = {rows, 80}}).size(), rows);
  }
  EXPECT_THAT(Screen(servers, {8, 140}), AllOf(HasSubstr("server-3 "), HasSubstr("... and 26 more"),
                                               Not(HasSubstr("server-4 "))));
}

TEST(TopViewTest, StandsATerminalOfOneColumn) {
  for (size_t columns = 1; columns < 50; ++columns) {
    for (const StyledLine& line : TopLines({Serving("a:1")}, kNow, {.size = {24, columns}})) {
      line.ForTerminal(columns);
    }
  }
}

TEST(TopViewTest, PrintsATable) {
  std::ostringstream out;
  PrintTopTable({Serving("a:1"), Unreachable("b:1")}, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("server  state "), HasSubstr("25.0 %"),
                               HasSubstr("1h1m40s\n"), HasSubstr("b:1     unreachable\n")));
}

TEST(SparklineTest, IsAsHighAsItsHighestValue) {
  EXPECT_EQ(Sparkline({0, 1, 4, 8}, 4, true), " ▁▄█");
  EXPECT_EQ(Sparkline({0, 1, 4, 8}, 4, false), " .=@");
}

TEST(SparklineTest, ShowsTheLatestOnTheRight) {
  EXPECT_EQ(Sparkline({8, 0, 8}, 5, true), "  █ █");
  EXPECT_EQ(Sparkline({9, 4, 8}, 2, true), "▄█");
  EXPECT_EQ(Sparkline({}, 3, true), "   ");
  EXPECT_EQ(Sparkline({1}, 0, true), "");
}

TEST(SparklineTest, ShowsWhateverIsNotNothing) {
  EXPECT_EQ(Sparkline({0.001, 1e9}, 2, true), "▁█");
  EXPECT_EQ(Sparkline({0, 0}, 2, true), "  ");
}

}  // namespace
}  // namespace tlm::cli
