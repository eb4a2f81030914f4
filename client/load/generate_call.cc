#include "client/load/generate_call.h"

#include <grpcpp/support/async_stream.h>

#include <algorithm>

#include "client/cpp/call_options.h"
#include "client/cpp/client_context.h"
#include "client/cpp/status.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::load {
namespace {

// A time later than the end of any run that does not overflow a clock's arithmetic.
constexpr double kFarSeconds = 1e8;
constexpr std::chrono::milliseconds kPollInterval{100};

class LanguageModelReader final : public EventReader {
 public:
  LanguageModelReader(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                      const v1::GenerateRequest& request, grpc::CompletionQueue* queue)
      : reader_(
            v1::LanguageModel::NewStub(channel)->PrepareAsyncGenerate(context, request, queue)) {}

  void StartCall(void* tag) override { reader_->StartCall(tag); }
  void Read(void* tag) override { reader_->Read(&event_, tag); }
  void Finish(grpc::Status* status, void* tag) override { reader_->Finish(status, tag); }
  const v1::GenerateResponse& event() override { return event_; }

 private:
  v1::GenerateResponse event_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader_;
};

}  // namespace

double Seconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

TimePoint After(TimePoint from, double seconds) {
  const std::chrono::duration<double> span(std::min(seconds, kFarSeconds));
  return from + std::chrono::duration_cast<SteadyClock::duration>(span);
}

absl::StatusOr<Connections> Connections::Create(const std::vector<std::string>& targets, int count,
                                                const client::ClientOptions& options) {
  Connections connections;
  connections.authorization_ = client::AuthorizationOf(options);
  connections.prepare_ = [](const auto& channel, grpc::ClientContext* context,
                            const v1::GenerateRequest& request, grpc::CompletionQueue* queue) {
    return std::make_unique<LanguageModelReader>(channel, context, request, queue);
  };
  for (int i = 0; i < count; ++i) {
    for (const std::string& target : targets) {
      const auto channel = client::MakeChannel(target, options);
      if (!channel.ok()) return channel.status();
      connections.channels_.push_back(*channel);
    }
  }
  return connections;
}

void Connections::WaitUntilConnected(absl::Duration timeout, const client::CancelToken* cancel) {
  const TimePoint deadline = After(SteadyClock::now(), absl::ToDoubleSeconds(timeout));
  for (const auto& channel : channels_) {
    while ((cancel == nullptr || !cancel->cancelled()) && SteadyClock::now() < deadline &&
           !channel->WaitForConnected(std::chrono::system_clock::now() + kPollInterval)) {
    }
  }
}

std::unique_ptr<EventReader> Connections::Prepare(grpc::ClientContext* context,
                                                  const v1::GenerateRequest& request,
                                                  grpc::CompletionQueue* queue) {
  return prepare_(channels_[next_++ % channels_.size()], context, request, queue);
}

GenerateCall::GenerateCall(Connections& connections, grpc::CompletionQueue& queue,
                           const PlannedRequest& request, TimePoint due, Listener& listener)
    : listener_(listener) {
  record_.due = due;
  record_.sent = SteadyClock::now();
  record_.wanted_tokens = request.message.stopping().max_new_tokens();
  client::CallOptions options;
  options.timeout = absl::Seconds(request.deadline_seconds - Seconds(due, record_.sent));
  context_ = client::MakeContext(options, connections.authorization());
  reader_ = connections.Prepare(context_.get(), request.message, &queue);
  reader_->StartCall(this);
}

void GenerateCall::OnEvent(bool ok) {
  if (awaits_ == Awaits::kStatus) return OnStatus();
  if (awaits_ == Awaits::kMessage && ok) OnMessage();
  if (ok) return ReadNext();
  awaits_ = Awaits::kStatus;
  reader_->Finish(&status_, this);
}

void GenerateCall::Cancel() {
  record_.cancelled = true;
  context_->TryCancel();
}

void GenerateCall::ReadNext() {
  awaits_ = Awaits::kMessage;
  reader_->Read(this);
}

void GenerateCall::OnMessage() {
  const v1::GenerateResponse& event = reader_->event();
  if (event.has_started()) {
    const v1::GenerateStarted& started = event.started();
    record_.started = true;
    record_.prompt_tokens = started.prompt_token_count();
    record_.cached_prompt_tokens = started.cached_prompt_tokens();
    if (started.has_queue_time()) {
      const auto& time = started.queue_time();
      record_.queue_seconds = static_cast<double>(time.seconds()) + 1e-9 * time.nanos();
    }
  }
  const int64_t tokens = event.tokens().tokens_size();
  if (tokens == 0) return;
  const TimePoint now = SteadyClock::now();
  if (record_.first_token.has_value()) {
    record_.gaps.push_back(static_cast<float>(Seconds(record_.last_token, now)));
  } else {
    record_.first_token = now;
  }
  record_.last_token = now;
  record_.tokens += tokens;
  listener_.OnTokens(*this, tokens);
}

void GenerateCall::OnStatus() {
  record_.done = SteadyClock::now();
  const absl::Status status = client::FromGrpcStatus(status_);
  const client::ErrorDetails details = client::DetailsOf(status);
  record_.code = status.code();
  record_.reason = details.reason;
  if (details.retry_delay) record_.retry_seconds = absl::ToDoubleSeconds(*details.retry_delay);
  listener_.OnDone(*this);
}

}  // namespace tlm::load
