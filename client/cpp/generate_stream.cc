#include "client/cpp/generate_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <regex>
#include <string>
#include <utility>

#include "client/cpp/client_context.h"
#include "client/cpp/status.h"
#include "client/cpp/stream_continuation.h"
#include "client/cpp/target_picker.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tlm::client {
namespace {

// Adds jitter, so that streams that lost the same replica do not all reconnect at once.
absl::Duration Jittered(absl::Duration backoff) {
  std::random_device random;
  return backoff * std::uniform_real_distribution<double>(0.5, 1.0)(random);
}

// Keeps code and details.
absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  absl::Status result(status.code(), message);
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

std::string Described(const absl::Status& status) {
  return fmt::format("{}: {}", CodeName(status.code()), std::string(status.message()));
}

// Makes the FAILED_PRECONDITION that a server would return.
absl::Status StaleFingerprint(const std::string& message) {
  google::rpc::ErrorInfo info;
  info.set_domain("tlm");
  info.set_reason("STALE_FINGERPRINT");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return FromGrpcStatus(
      {grpc::StatusCode::FAILED_PRECONDITION, message, details.SerializeAsString()});
}

// Cuts the fingerprints in a text.
std::string WithShortHashes(const std::string& text) {
  static const std::regex hash("\\b([0-9a-f]{8})[0-9a-f]{8,}\\b");
  return std::regex_replace(text, hash, "$1...");
}

// What the end of a call implies for a continuation of the stream.
enum class CallEnd {
  kFinal,       // any other replica would answer the same
  kLost,        // the replica died, is unreachable, starting or draining
  kOverloaded,  // the replica refuses until later
  kOtherModel,  // the replica cannot do this, or cannot continue this stream
  kIdInUse,     // the replica has a call with this request_id
};

// If false, gRPC in this process, or a proxy, made up the status: a server sends details.
bool IsFromServer(const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  return !details.domain.empty() || !details.reason.empty();
}

bool IsBrokenStream(const absl::Status& status, absl::string_view words) {
  return !IsFromServer(status) && status.message().find(words) != absl::string_view::npos;
}

// Classifies a status other than OK of a call that was not cancelled here. gRPC 1.51 reports:
//
//   kLost        UNAVAILABLE: connection refused or broken, STARTING, DRAINING;
//                CANCELLED: the server dropped the call when it shut down;
//                UNKNOWN "Stream removed", INTERNAL with "RST_STREAM": the connection, or a
//                proxy's, broke. A tlm server sends neither: they come without details.
//   kOverloaded  RESOURCE_EXHAUSTED with a retry delay; it is final without one (a message that is
//                too large).
//   kOtherModel  FAILED_PRECONDITION
//   kIdInUse     ALREADY_EXISTS
//   kFinal       all others: INVALID_ARGUMENT, DEADLINE_EXCEEDED, DATA_LOSS, ABORTED, INTERNAL, ...
CallEnd ClassifyEnd(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return CallEnd::kLost;
    case absl::StatusCode::kUnknown:
      return IsBrokenStream(status, "Stream removed") ? CallEnd::kLost : CallEnd::kFinal;
    case absl::StatusCode::kInternal:
      return IsBrokenStream(status, "RST_STREAM") ? CallEnd::kLost : CallEnd::kFinal;
    case absl::StatusCode::kResourceExhausted:
      return DetailsOf(status).retry_delay ? CallEnd::kOverloaded : CallEnd::kFinal;
    case absl::StatusCode::kFailedPrecondition:
      return CallEnd::kOtherModel;
    case absl::StatusCode::kAlreadyExists:
      return CallEnd::kIdInUse;
    default:
      return CallEnd::kFinal;
  }
}

}  // namespace

// A call, counted among the running calls of its target.
struct GenerateStream::RunningCall {
  TargetPicker::RunningCall running;
  std::unique_ptr<Call> call;
};

GenerateStream::GenerateStream(const v1::GenerateRequest& request, const CallOptions& options,
                               TargetPicker* picker, std::optional<uint64_t> affinity,
                               StartCall start_call)
    : options_(options),
      picker_(picker),
      affinity_(affinity),
      start_call_(std::move(start_call)),
      deadline_(MonotonicNow() + options.timeout),
      cancel_(options.cancel),
      continuation_(std::make_unique<StreamContinuation>(request, MonotonicNow())) {
  const absl::Time now = MonotonicNow();
  const size_t target = *Pick(now, {});
  if (resumable()) {
    BeginSearch(absl::OkStatus(), now);
    Start(target);
    return;
  }
  CallOptions unchanged = options_;
  unchanged.cancel = &cancel_;
  StartCallTo(target, request, unchanged);
}

GenerateStream::~GenerateStream() = default;

std::optional<size_t> GenerateStream::Pick(absl::Time now, const std::set<size_t>& excluded) const {
  return affinity_ ? picker_->NextFor(*affinity_, now, excluded) : picker_->Next(now, excluded);
}

void GenerateStream::StartCallTo(size_t target, const v1::GenerateRequest& request,
                                 const CallOptions& options) {
  target_ = target;
  // Counted before it starts: starting may block.
  call_.reset(new RunningCall{{picker_, target}, nullptr});
  call_->call = start_call_(target, request, options);
}

bool GenerateStream::Read(v1::GenerateResponse* event) {
  while (!status_) {
    if (!call_->call->Read(event)) {
      EndCall();
      continue;
    }
    if (!resumable()) return true;
    const absl::StatusOr<StreamContinuation::Taken> taken = continuation_->Take(event);
    if (!taken.ok()) {
      call_.reset();
      status_ = taken.status();
    } else if (*taken == StreamContinuation::Taken::kOtherModel) {
      call_.reset();
      GoOnAfter(absl::FailedPreconditionError(continuation_->DifferenceOf(event->started())));
    } else {
      NoteProgress();
      if (*taken == StreamContinuation::Taken::kDeliver) return true;
    }
  }
  return false;
}

absl::Status GenerateStream::Finish() {
  v1::GenerateResponse dropped;
  while (Read(&dropped)) {
  }
  return *status_;
}

void GenerateStream::NoteProgress() {
  if (!search_) return;
  if (!search_->cause.ok()) ++resumes_;
  search_.reset();
  picker_->MarkServing(target_);
}

void GenerateStream::EndCall() {
  const absl::Status status = call_->call->Finish();
  call_.reset();
  if (status.ok() || !resumable()) {
    status_ = status;
  } else if (cancel_.cancelled()) {
    status_ = absl::CancelledError("cancelled");
  } else {
    GoOnAfter(status);
  }
}

// `status` of the call, or the reason for dropping it.
void GenerateStream::GoOnAfter(const absl::Status& status) {
  const absl::Time now = MonotonicNow();
  const CallEnd end = ClassifyEnd(status);
  if (!search_) {
    const bool passes = end == CallEnd::kLost || end == CallEnd::kOverloaded;
    if (!passes || resumes_ == options_.resume.max_resumes) {
      status_ = status;
      return;
    }
    BeginSearch(status, now);
  }
  search_->tried.insert(target_);
  switch (end) {
    case CallEnd::kLost:
      lost_calls_.insert(target_);
      search_->worth_waiting = search_->worth_waiting || IsFromServer(status);
      picker_->MarkFailed(target_, now);
      break;
    case CallEnd::kOverloaded:
      search_->worth_waiting = true;
      search_->overloaded = status;
      picker_->MarkFailed(target_, now);
      break;
    case CallEnd::kOtherModel:
      if (!continuation_->started()) status_ = status;
      LeaveOut(status);
      break;
    case CallEnd::kIdInUse:
      if (!lost_calls_.contains(target_) || std::exchange(rename_, true)) status_ = status;
      search_->tried.erase(target_);
      break;
    case CallEnd::kFinal:
      status_ = status;
      break;
  }
  if (status_) return;
  if (const auto delay = DetailsOf(status).retry_delay) {
    search_->retry_delay = std::min(search_->retry_delay, *delay);
  }
  SearchOn(status);
}

void GenerateStream::BeginSearch(const absl::Status& cause, absl::Time now) {
  search_.emplace();
  search_->cause = cause;
  search_->end = now + options_.resume.timeout;
  search_->backoff = options_.resume.initial_backoff;
  search_->worth_waiting = !cause.ok();
}

void GenerateStream::LeaveOut(const absl::Status& status) {
  other_models_.insert(target_);
  why_other_ = fmt::format(
      "{} runs another build, model or configuration and cannot continue the stream byte for byte: "
      "{}",
      picker_->name(target_), WithShortHashes(std::string(status.message())));
}

// Starts the next call, or sets status_.
void GenerateStream::SearchOn(const absl::Status& status) {
  std::set<size_t> excluded = other_models_;
  excluded.insert(search_->tried.begin(), search_->tried.end());
  std::optional<size_t> target = Pick(MonotonicNow(), excluded);
  if (!target) {
    if (!other_models_.empty() && !search_->worth_waiting) {
      status_ = OnlyOtherModels();
      return;
    }
    if (!Pause(status)) return;
    target = Pick(MonotonicNow(), other_models_);
  }
  Start(*target);
}

// Waits until the targets may be tried again; false, with status_ set, if that is pointless.
bool GenerateStream::Pause(const absl::Status& status) {
  const absl::Time now = MonotonicNow();
  const bool has_delay = search_->retry_delay < absl::InfiniteDuration();
  if (!continuation_->started()) {
    const bool waits = options_.wait_for_ready || has_delay;
    if (!search_->overloaded.ok() || !waits) {
      status_ = search_->overloaded.ok() ? status : search_->overloaded;
      return false;
    }
  }
  absl::Duration delay = Jittered(search_->backoff);
  if (has_delay) delay = std::max(delay, search_->retry_delay);
  const bool waits_for_ready = !continuation_->started() && options_.wait_for_ready;
  if ((!waits_for_ready && now + delay > search_->end) || (has_delay && now + delay > deadline_)) {
    status_ = NoReplica(status);
    return false;
  }
  search_->backoff = std::min(search_->backoff * 2, options_.resume.max_backoff);
  search_->retry_delay = absl::InfiniteDuration();
  search_->overloaded = absl::OkStatus();
  search_->worth_waiting = false;
  search_->tried.clear();
  if (cancel_.WaitFor(std::min(delay, deadline_ - now))) {
    status_ = absl::CancelledError("cancelled");
    return false;
  }
  return true;
}

absl::Status GenerateStream::NoReplica(const absl::Status& last) const {
  if (search_->cause.ok()) return last;
  std::string reason(last.message());
  if (absl::IsFailedPrecondition(last)) {
    reason = why_other_;
  } else if (!why_other_.empty()) {
    reason += "; " + why_other_;
  }
  return WithMessage(
      last, fmt::format("the stream broke ({}), and no replica continued it within {}: {}",
                        Described(search_->cause), absl::FormatDuration(options_.resume.timeout),
                        reason));
}

absl::Status GenerateStream::OnlyOtherModels() const {
  std::string message =
      fmt::format("the stream broke ({}), and {}", Described(search_->cause), why_other_);
  if (picker_->size() > 1) {
    message += fmt::format("; targets that differ: {}, that cannot be reached: {}",
                           other_models_.size(), picker_->size() - other_models_.size());
  }
  return StaleFingerprint(message);
}

void GenerateStream::Start(size_t target) {
  const absl::Time now = MonotonicNow();
  CallOptions options = options_;
  options.timeout = deadline_ - now;
  options.cancel = &cancel_;
  // With several targets a call must not wait for an unreachable one.
  options.wait_for_ready = options_.wait_for_ready && picker_->size() == 1;
  StartCallTo(target, continuation_->NextRequest(now, rename_), options);
}

}  // namespace tlm::client
