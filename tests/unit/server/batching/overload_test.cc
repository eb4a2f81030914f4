// What the queue makes of more work than the engine can do: the real RequestQueue and ServiceRates
// in front of a synthetic engine, in simulated time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "server/batching/request_queue.h"
#include "server/batching/service_rates.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kPlaces = 16;
constexpr int64_t kPrefillTokens = 256;  // of one step
constexpr int64_t kMaxNewTokens = 64;
constexpr int64_t kQueued = 512;

// Steps as a processor takes them: so long for the weights, then for every token.
absl::Duration StepTime(int64_t prefill_tokens, int64_t decodes) {
  return absl::Milliseconds(5) + absl::Microseconds(50) * prefill_tokens +
         absl::Microseconds(300) * decodes;
}

// Requests per second that kPlaces sequences finish, with 100 prompt tokens and 40 to draw.
constexpr double kCapacity = 34;

// What is asked for during some time.
struct Mix {
  double requests_per_second = 0;
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;
};

struct Load {
  double requests_per_second = 0;
  absl::Duration duration = absl::Seconds(40);
  std::vector<absl::Duration> deadlines;  // drawn from; infinite: none
  absl::Duration max_queue_time = absl::InfiniteDuration();
  std::vector<Mix> phases = {};  // instead, each for kPhase
};
constexpr absl::Duration kPhase = absl::Seconds(25);

struct Outcome {
  int64_t offered = 0;
  int64_t finished = 0;  // in time
  int64_t late = 0;      // begun, and not finished in time
  int64_t dropped = 0;   // not begun in time
  int64_t infeasible = 0;
  int64_t full = 0;
  double goodput = 0;
  absl::Duration longest_wait;  // of those that were begun
  absl::Duration longest_run;   // of a whole request
  // Of each that was begun: what its wait was estimated to be, and what it was.
  std::vector<std::pair<absl::Duration, absl::Duration>> waits;
  int64_t most_queued = 0;
};

// The engine's part: what EngineLoop and Scheduler do, as far as it matters here.
class SyntheticEngine {
 public:
  explicit SyntheticEngine(const Load& load)
      : load_(load),
        queue_({.requests = kQueued, .prompt_tokens = 1 << 20}, load.max_queue_time),
        random_(7) {}

  Outcome Run() {
    absl::Time arrival = now_ + NextGap();
    const absl::Time end = now_ + load_.duration;
    while (now_ < end) {
      while (arrival <= now_) {
        Offer(arrival);
        arrival += NextGap();
      }
      if (!Step()) now_ = arrival;
    }
    outcome_.goodput =
        static_cast<double>(outcome_.finished) / absl::ToDoubleSeconds(load_.duration);
    return outcome_;
  }

 private:
  struct Work {
    Request request;
    int64_t input_tokens = 0;
    int64_t prefill_left = 0;
    int64_t tokens = 0;  // that it will draw
    int64_t tokens_left = 0;
    absl::Duration estimated_wait;
    absl::Time begun;
  };

  // Of the time `at`, if the load has phases; all of the same size.
  const Mix* PhaseAt(absl::Time at) const {
    if (load_.phases.empty()) return nullptr;
    const auto phase = static_cast<size_t>((at - absl::UnixEpoch()) / kPhase);
    return &load_.phases[std::min(phase, load_.phases.size() - 1)];
  }

  absl::Duration NextGap() {
    const Mix* const mix = PhaseAt(now_);
    const double rate = mix != nullptr ? mix->requests_per_second : load_.requests_per_second;
    return absl::Seconds(std::exponential_distribution<double>(rate)(random_));
  }

  void Offer(absl::Time at) {
    ++outcome_.offered;
    const Mix* const mix = PhaseAt(at);
    const int64_t prompt =
        mix != nullptr ? mix->prompt_tokens : 50 + static_cast<int64_t>(random_() % 101);
    Request request = GenerateRequest(std::vector<int32_t>(static_cast<size_t>(prompt)),
                                      mix != nullptr ? mix->new_tokens : kMaxNewTokens, nullptr);
    const absl::Duration estimated_wait = rates_.Estimates().QueueTime(queue_.waiting());
    request.deadline = at + load_.deadlines[random_() % load_.deadlines.size()];
    const absl::Status status = queue_.Push(std::move(request), at);
    outcome_.most_queued = std::max(outcome_.most_queued, queue_.waiting().requests);
    if (status.ok()) return estimated_waits_.push_back(estimated_wait);
    const bool infeasible = ReasonOf(status) == "INFEASIBLE";
    ++(infeasible ? outcome_.infeasible : outcome_.full);
    EXPECT_NE(infeasible, RetryAfterOf(status).has_value());
  }

  void TakeArrivals() {
    for (Request& request : queue_.Take()) {
      Work work;
      work.input_tokens = work.prefill_left = InputTokens(request);
      work.tokens = work.tokens_left = load_.phases.empty()
                                           ? 20 + static_cast<int64_t>(random_() % 41)
                                           : request.generate()->stop.max_new_tokens;
      work.estimated_wait = estimated_waits_.front();
      estimated_waits_.pop_front();
      work.request = std::move(request);
      waiting_.emplace(work.request.deadline, std::move(work));
    }
  }

  void DropHopeless() {
    const ServiceEstimates estimates = rates_.Estimates();
    // Those without a deadline are the last.
    for (auto at = waiting_.begin(); at != waiting_.end() && at->first < absl::InfiniteFuture();) {
      const Work& work = at->second;
      const LeastWork least = LeastWorkOf(work.request, 0);
      if (!estimates.Unreachable({}, least, now_, work.request.deadline)) {
        ++at;
        continue;
      }
      queue_.Release(work.request, work.input_tokens);
      ++outcome_.dropped;
      at = waiting_.erase(at);
    }
    std::erase_if(running_, [&](const Work& work) {
      if (work.request.deadline > now_) return false;
      ++outcome_.late;
      rates_.RecordLateOutput();
      return true;
    });
  }

  QueueLoad Admit() {
    QueueLoad started;
    while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < kPlaces) {
      Work& work = waiting_.begin()->second;
      queue_.Release(work.request, work.input_tokens);
      outcome_.longest_wait = std::max(outcome_.longest_wait, now_ - work.request.arrival);
      outcome_.waits.emplace_back(work.estimated_wait, now_ - work.request.arrival);
      work.begun = now_;
      ++started.requests;
      started.prompt_tokens += work.input_tokens;
      running_.push_back(std::move(work));
      waiting_.erase(waiting_.begin());
    }
    return started;
  }

  bool Step() {
    TakeArrivals();
    DropHopeless();
    const QueueLoad started = Admit();
    ServiceRates::Step step;
    for (Work& work : running_) {
      if (work.prefill_left == 0) {
        ++step.decode_tokens;
        --work.tokens_left;
        continue;
      }
      const int64_t chunk = std::min(work.prefill_left, kPrefillTokens - step.prefill_tokens);
      step.prefill_tokens += chunk;
      work.prefill_left -= chunk;
      if (chunk > 0 && work.prefill_left == 0) --work.tokens_left;
    }
    if (step.prefill_tokens + step.decode_tokens == 0) return false;
    step.elapsed = StepTime(step.prefill_tokens, step.decode_tokens);
    now_ += step.elapsed;
    rates_.RecordStep(step, now_);
    rates_.RecordDrain(started, static_cast<int64_t>(waiting_.size()), step.elapsed);
    std::erase_if(running_, [&](const Work& work) {
      if (work.tokens_left > 0) return false;
      outcome_.longest_run = std::max(outcome_.longest_run, now_ - work.begun);
      ++(work.request.deadline > now_ ? outcome_.finished : outcome_.late);
      rates_.RecordOutput(work.tokens, kMaxNewTokens);
      return true;
    });
    queue_.SetEstimates(rates_.Estimates());
    return true;
  }

  const Load load_;
  absl::Time now_ = absl::UnixEpoch();
  RequestQueue queue_;
  ServiceRates rates_{kPrefillTokens};
  std::multimap<absl::Time, Work> waiting_;  // by deadline, then in the order of arrival
  std::vector<Work> running_;
  std::deque<absl::Duration> estimated_waits_;  // of those that were not taken yet
  std::mt19937 random_;
  Outcome outcome_;
};

Outcome RunFor(double times_capacity, std::vector<absl::Duration> deadlines,
               absl::Duration max_queue_time = absl::InfiniteDuration()) {
  return SyntheticEngine({.requests_per_second = times_capacity * kCapacity,
                          .deadlines = std::move(deadlines),
                          .max_queue_time = max_queue_time})
      .Run();
}

// The most that finish in time at any load around the capacity.
double PeakGoodput(const std::vector<absl::Duration>& deadlines) {
  double peak = 0;
  for (const double times : {0.8, 1.0, 1.2, 2.0}) {
    peak = std::max(peak, RunFor(times, deadlines).goodput);
  }
  return peak;
}

const absl::Duration kNone = absl::InfiniteDuration();

TEST(OverloadTest, HalfTheCapacityIsNeverRefused) {
  for (const auto& deadlines : std::vector<std::vector<absl::Duration>>{
           {kNone}, {absl::Seconds(1)}, {absl::Seconds(2), absl::Seconds(10), kNone}}) {
    const Outcome outcome = RunFor(0.5, deadlines);
    EXPECT_GT(outcome.offered, 600);
    EXPECT_EQ(outcome.infeasible + outcome.full + outcome.late + outcome.dropped, 0);
  }
}

TEST(OverloadTest, TenTimesTheCapacityCostsNoGoodput) {
  for (const auto& deadlines :
       std::vector<std::vector<absl::Duration>>{{kNone},
                                                {absl::Seconds(3)},
                                                {absl::Seconds(10)},
                                                {absl::Seconds(2), absl::Seconds(10)},
                                                {absl::Seconds(1), absl::Seconds(20), kNone}}) {
    const Outcome outcome = RunFor(10, deadlines);
    EXPECT_GE(outcome.goodput, 0.9 * PeakGoodput(deadlines));
    EXPECT_LE(outcome.late, outcome.finished / 20);
    EXPECT_LE(outcome.most_queued, kQueued);
  }
}

TEST(OverloadTest, DeadlinesAreHardlyLongerThanTheRequests) {
  // Half of the second is spent running. Nothing is known when the load sets in.
  const Outcome outcome = RunFor(10, {absl::Seconds(1)});
  EXPECT_GE(outcome.goodput, 0.85 * PeakGoodput({absl::Seconds(1)}));
}

TEST(OverloadTest, WaitsStayBelowTheLimit) {
  const Outcome outcome = RunFor(10, {kNone}, /*max_queue_time=*/absl::Seconds(3));
  EXPECT_GE(outcome.goodput, 0.95 * PeakGoodput({kNone}));
  // The first ones came before any rate was known.
  EXPECT_LE(outcome.longest_wait, absl::Seconds(6));
  EXPECT_LT(outcome.most_queued, kQueued / 2);
}

TEST(OverloadTest, WithoutLimitsTheBoundOnRequestsBoundsTheWait) {
  const Outcome outcome = RunFor(10, {kNone});
  EXPECT_EQ(outcome.most_queued, kQueued);
  EXPECT_LE(outcome.longest_wait, absl::Seconds(1.2 * kQueued / kCapacity));
}

// Loads that follow each other: few that take long, many that take nothing, prompts of all lengths.
TEST(OverloadTest, NoWaitIsTakenToBeMuchLongerThanItIs) {
  std::mt19937 random(11);
  const auto log_uniform = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  double worst = 0;
  for (int run = 0; run < 200; ++run) {
    Load load{.deadlines = {kNone}};
    for (int phase = 0; phase < 4; ++phase) {
      const int64_t new_tokens = static_cast<int64_t>(log_uniform(1, 1500));
      const int64_t prompt = static_cast<int64_t>(log_uniform(1, 2000));
      const absl::Duration alone = StepTime(prompt, 0) + StepTime(0, kPlaces) * new_tokens;
      const double capacity = static_cast<double>(kPlaces) / absl::ToDoubleSeconds(alone);
      load.phases.push_back({std::max(log_uniform(0.02, 3) * capacity, 0.1), prompt, new_tokens});
    }
    load.duration = kPhase * static_cast<int64_t>(load.phases.size());
    const Outcome outcome = SyntheticEngine(load).Run();
    for (const auto& [estimated, waited] : outcome.waits) {
      worst = std::max(worst, absl::FDivDuration(estimated, waited + outcome.longest_run));
    }
  }
  // Short requests that begin to wait behind long ones are taken for as long.
  EXPECT_LT(worst, 25);
}

}  // namespace
}  // namespace tlm
