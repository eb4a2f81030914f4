#include "client/cli/bench_load.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/cli/base/messages.h"
#include "client/cpp/client_context.h"
#include "client/cpp/status.h"

namespace tlm::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kConnectTime = absl::Seconds(5);
constexpr absl::Duration kShortestRetry = absl::Milliseconds(10);
constexpr absl::Duration kLongestRetry = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<BenchLoad>> BenchLoad::Create(
    const BenchOptions& options, const BenchPrompts& prompts,
    const std::vector<std::string>& targets, const client::ClientOptions& client_options) {
  // The constructor is private, out of make_unique's reach.
  std::unique_ptr<BenchLoad> load(
      new BenchLoad(options, prompts, client::AuthorizationOf(client_options)));
  for (uint32_t i = 0; i < options.connections; ++i) {
    for (const std::string& target : targets) {
      const auto channel = client::MakeChannel(target, client_options);
      if (!channel.ok()) return channel.status();
      load->channels_.push_back(*channel);
      load->stubs_.push_back(v1::LanguageModel::NewStub(*channel));
    }
  }
  return load;
}

BenchLoad::BenchLoad(const BenchOptions& options, const BenchPrompts& prompts,
                     std::string authorization)
    : options_(options),
      prompts_(prompts),
      authorization_(std::move(authorization)),
      request_(options.request),
      arrivals_(options.seed) {}

BenchLoad::~BenchLoad() {
  CancelAll();
  while (!in_flight_.empty()) HandleEvent(absl::InfiniteFuture());
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

BenchResult BenchLoad::Run(const client::CancelToken& cancel, const OnProgress& on_progress) {
  Connect(cancel);
  const absl::Time now = absl::Now();
  begin_ = now + options_.warmup;
  end_ = begin_ + options_.duration;
  const uint32_t first = options_.rate ? 1 : options_.concurrency;
  for (uint32_t i = 0; i < first; ++i) due_.push(now);

  Offer(cancel, on_progress);
  draining_ = true;
  // Requests that were asked for by number are measured to their ends.
  if (!options_.requests || cancel.cancelled()) CloseWindow();
  Drain(cancel, on_progress);
  CloseWindow();
  return std::move(result_);
}

// A server that is not there shows in the requests.
void BenchLoad::Connect(const client::CancelToken& cancel) {
  const absl::Time deadline = absl::Now() + kConnectTime;
  for (const auto& channel : channels_) {
    while (!cancel.cancelled() && absl::Now() < deadline &&
           !channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kTick))) {
    }
  }
}

bool BenchLoad::Offering(absl::Time now) const {
  return now < end_ && (!options_.requests || result_.sent + result_.not_sent < *options_.requests);
}

void BenchLoad::Offer(const client::CancelToken& cancel, const OnProgress& on_progress) {
  absl::Time next_tick = absl::InfinitePast();
  for (absl::Time now = absl::Now(); Offering(now) && !cancel.cancelled(); now = absl::Now()) {
    SendDue();
    if (now >= next_tick) {
      on_progress(ProgressAt(now), result_);
      next_tick = now + kTick;
    }
    absl::Time wake = std::min(end_, next_tick);
    if (!due_.empty()) wake = std::min(wake, due_.top());
    HandleEvent(wake);
  }
}

void BenchLoad::Drain(const client::CancelToken& cancel, const OnProgress& on_progress) {
  absl::Time next_tick = absl::InfinitePast();
  while (!in_flight_.empty()) {
    if (cancel.cancelled() && !result_.interrupted) {
      result_.interrupted = true;
      CloseWindow();
      CancelAll();
    }
    if (absl::Now() >= next_tick) {
      next_tick = absl::Now() + kTick;
      on_progress(ProgressAt(absl::Now()), result_);
    }
    HandleEvent(next_tick);
  }
  if (cancel.cancelled()) result_.interrupted = true;
}

void BenchLoad::CancelAll() {
  for (const auto& [call, owner] : in_flight_) call->Cancel();
}

void BenchLoad::SendDue() {
  while (!due_.empty() && due_.top() <= absl::Now() && Offering(absl::Now())) {
    const absl::Time due = due_.top();
    due_.pop();
    Send(due);
    if (!options_.rate) continue;
    std::exponential_distribution<double> gap(*options_.rate);
    due_.push(due + absl::Seconds(gap(arrivals_)));
  }
}

void BenchLoad::Send(absl::Time due) {
  const BenchCall::Plan plan = {due, IsMeasured(due)};
  const bool has_place = in_flight_.size() < options_.concurrency;
  if (plan.measured) ++(has_place ? result_.sent : result_.not_sent);
  if (!has_place) return;
  client::CallOptions call_options;
  call_options.timeout = options_.timeout;
  auto call =
      std::make_unique<BenchCall>(plan, client::MakeContext(call_options, authorization_), this);
  BenchCall* const key = call.get();
  in_flight_.emplace(key, std::move(call));
  prompts_.Set(next_request_, &request_);
  key->Start(stubs_[next_request_ % stubs_.size()].get(), &queue_, request_);
  ++next_request_;
}

void BenchLoad::HandleEvent(absl::Time until) {
  void* tag = nullptr;
  bool ok = false;
  const auto event = queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(until));
  if (event == grpc::CompletionQueue::GOT_EVENT) static_cast<BenchCall*>(tag)->OnEvent(ok);
}

void BenchLoad::OnStarted(const BenchCall& call, const v1::GenerateStarted& started) {
  if (!call.plan().measured || !started.has_queue_time()) return;
  result_.queue.Add(absl::ToDoubleSeconds(FromProto(started.queue_time())));
}

void BenchLoad::OnTokens(const BenchCall& call, uint64_t tokens,
                         std::optional<absl::Duration> gap) {
  const absl::Time now = absl::Now();
  if (IsMeasured(now)) {
    result_.output_tokens += tokens;
    if (!gap) result_.prompt_tokens += call.prompt_tokens();
  }
  if (!call.plan().measured) return;
  if (gap) {
    result_.inter_token.Add(absl::ToDoubleSeconds(*gap) / static_cast<double>(tokens), tokens);
  } else {
    result_.ttft.Add(absl::ToDoubleSeconds(now - call.plan().due));
  }
}

void BenchLoad::OnDone(BenchCall& call, const absl::Status& status) {
  const absl::Time now = absl::Now();
  if (status.ok() && IsMeasured(now)) ++result_.completed;
  if (call.plan().measured) CountEnd(status, now - call.plan().due);
  in_flight_.erase(&call);
  if (options_.rate || draining_) return;
  absl::Duration pause = absl::ZeroDuration();
  if (!status.ok()) {
    pause = std::clamp(client::DetailsOf(status).retry_delay.value_or(kShortestRetry),
                       kShortestRetry, kLongestRetry);
  }
  due_.push(now + pause);
}

void BenchLoad::CountEnd(const absl::Status& status, absl::Duration time) {
  if (status.ok()) {
    ++result_.ok;
    result_.end_to_end.Add(absl::ToDoubleSeconds(time));
  } else if (result_.interrupted && absl::IsCancelled(status)) {
    ++result_.cut_off;
  } else {
    result_.AddFailure(client::CodeName(status.code()), client::DetailsOf(status).reason);
  }
}

void BenchLoad::CloseWindow() {
  const absl::Time now = absl::Now();
  // Interrupted in the warm-up, there is nothing measured.
  begin_ = std::min(begin_, now);
  end_ = std::min(end_, now);
  result_.seconds = absl::ToDoubleSeconds(end_ - begin_);
}

BenchProgress BenchLoad::ProgressAt(absl::Time now) const {
  BenchProgress progress;
  progress.warming_up = now < begin_;
  progress.draining = draining_;
  progress.in_flight = in_flight_.size();
  const absl::Duration elapsed = std::max(now - begin_, absl::ZeroDuration());
  if (options_.duration < absl::InfiniteDuration()) {
    progress.done = absl::FDivDuration(elapsed, options_.duration);
  }
  if (options_.requests) {
    progress.done = std::max(progress.done,
                             static_cast<double>(result_.ok + result_.failed + result_.not_sent) /
                                 static_cast<double>(*options_.requests));
  }
  progress.done = std::clamp(progress.done, 0.0, 1.0);
  return progress;
}

}  // namespace tlm::cli
