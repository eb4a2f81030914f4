#include "client/cli/bench_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/status.h"

namespace tlm::cli {

BenchCall::BenchCall(const Plan& plan, std::unique_ptr<grpc::ClientContext> context,
                     Listener* listener)
    : plan_(plan), listener_(listener), context_(std::move(context)) {}

void BenchCall::Start(v1::LanguageModel::Stub* stub, grpc::CompletionQueue* queue,
                      const v1::GenerateRequest& request) {
  reader_ = stub->PrepareAsyncGenerate(context_.get(), request, queue);
  reader_->StartCall(this);
}

void BenchCall::OnEvent(bool ok) {
  if (awaits_ == Awaits::kStatus) {
    return listener_->OnDone(*this, client::FromGrpcStatus(status_));
  }
  if (awaits_ == Awaits::kMessage && ok) OnMessage();
  if (ok) return ReadNext();
  awaits_ = Awaits::kStatus;
  reader_->Finish(&status_, this);
}

void BenchCall::ReadNext() {
  awaits_ = Awaits::kMessage;
  reader_->Read(&response_, this);
}

void BenchCall::OnMessage() {
  if (response_.has_started()) {
    prompt_tokens_ = response_.started().prompt_token_count();
    listener_->OnStarted(*this, response_.started());
  }
  const auto tokens = static_cast<uint64_t>(response_.tokens().tokens_size());
  if (tokens == 0) return;
  const absl::Time now = absl::Now();
  std::optional<absl::Duration> gap;
  if (last_token_) gap = now - *last_token_;
  last_token_ = now;
  listener_->OnTokens(*this, tokens, gap);
}

}  // namespace tlm::cli
