#include "server/rpc/otlp/otlp_exporter.h"

#include <fmt/format.h>
#include <openssl/pem.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/base/certificate.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/base/thread_name.h"
#include "server/observe/log.h"
#include "server/rpc/otlp/call_spans.h"

namespace tlm {
namespace {

constexpr size_t kMaxCaBytes = size_t{1} << 20;
// Short, because a collector may restart within seconds.
constexpr int kFirstReconnectMs = 250;
constexpr int kLongestReconnectMs = 5'000;

absl::Time Now() { return Clock::Monotonic()->Now(); }

// Checks the file, because gRPC accepts text without any certificate and then fails every
// handshake.
absl::StatusOr<std::string> ReadAuthorities(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  TLM_ASSIGN_OR_RETURN(std::string pem, file.Read(kMaxCaBytes));
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const X509Ptr first(bio == nullptr ? nullptr
                                     : PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (first == nullptr) return FailedPrecondition("{}: holds no certificate in PEM", path);
  return pem;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const OtlpOptions& options) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls) {
    grpc::SslCredentialsOptions ssl;
    if (!options.ca_file.empty()) {
      TLM_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadAuthorities(options.ca_file));
    }
    credentials = grpc::SslCredentials(ssl);
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  return grpc::CreateCustomChannel(options.endpoint, credentials, arguments);
}

// Returns a random UUID that identifies one start of the server.
std::string InstanceId() {
  absl::BitGen random;
  const uint64_t high = (random() & ~uint64_t{0xf000}) | 0x4000;  // version 4
  const uint64_t low = (random() >> 2) | (uint64_t{1} << 63);     // variant 10
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xffff,
                     high & 0xffff, low >> 48, low & 0xffff'ffff'ffff);
}

otlp_trace::ResourceSpans Origin(const OtlpOptions& options, std::string_view version) {
  otlp_trace::ResourceSpans origin;
  auto& attributes = *origin.mutable_resource()->mutable_attributes();
  AddAttribute("service.name", options.service_name, attributes);
  AddAttribute("service.version", version, attributes);
  AddAttribute("service.instance.id", InstanceId(), attributes);
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) AddAttribute("host.name", host, attributes);
  otlp_common::InstrumentationScope& scope = *origin.add_scope_spans()->mutable_scope();
  scope.set_name("tlm-server");
  scope.set_version(std::string(version));
  return origin;
}

// Returns the time that the collector asks clients to wait.
std::optional<absl::Duration> RetryDelayIn(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    if (!detail.Is<google::rpc::RetryInfo>() || !detail.UnpackTo(&retry)) continue;
    return absl::Seconds(retry.retry_delay().seconds()) +
           absl::Nanoseconds(retry.retry_delay().nanos());
  }
  return std::nullopt;
}

// Follows OTLP's table.
bool MayRetry(const grpc::Status& status, bool with_delay) {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return with_delay;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(const OtlpOptions& options,
                                                                  std::string_view version,
                                                                  MethodNames methods,
                                                                  Metrics& metrics,
                                                                  const Timing& timing) {
  TLM_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, ChannelTo(options));
  return std::unique_ptr<OtlpExporter>(
      new OtlpExporter(options, version, std::move(methods), metrics, timing, channel));
}

OtlpExporter::OtlpExporter(const OtlpOptions& options, std::string_view version,
                           MethodNames methods, Metrics& metrics, const Timing& timing,
                           const std::shared_ptr<grpc::Channel>& channel)
    : options_(options),
      methods_(std::move(methods)),
      metrics_(metrics),
      timing_(timing),
      origin_(Origin(options, version)),
      stub_(TraceService::NewStub(channel)) {
  // Counts all results at once: the rate of a counter that appears later misses its first event.
  for (const char* const result : {"exported", "queue_full", "refused", "unreachable"}) {
    metrics_.CountSpans(result, 0);
  }
  thread_ = std::thread([this] { Run(); });
}

OtlpExporter::~OtlpExporter() { Stop(absl::ZeroDuration()); }

// Uses the last 56 bits of the trace's id, which are random (Trace Context, level 2).
bool OtlpExporter::Samples(const TraceContext& trace) const {
  constexpr size_t kDigits = 14;
  const uint64_t random =
      std::stoull(trace.trace_id.substr(trace.trace_id.size() - kDigits), nullptr, 16);
  return static_cast<double>(random) < options_.sample_ratio * static_cast<double>(1ull << 56);
}

void OtlpExporter::OnCallEnd(const CallRecord& record, const CallSummary& summary) {
  if (!record.trace.sampled || !record.access.ok()) return;
  Spans spans = SpansOf(record, summary, methods_(record.rpc), absl::Now());
  const auto count = static_cast<int64_t>(spans.size());
  {
    MutexLock lock(&mutex_);
    if (!stopping_ && queue_.size() < kMaxQueuedCalls) {
      queue_.push_back(std::move(spans));
      if (queue_.size() == 1 || queue_.size() == kMaxBatchCalls) changed_.NotifyAll();
      return;
    }
  }
  metrics_.CountSpans("queue_full", count);
}

void OtlpExporter::Stop(absl::Duration limit) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_by_ = Now() + limit;
    changed_.NotifyAll();
    for (absl::Duration left = limit; !done_ && left > absl::ZeroDuration();
         left = stop_by_ - Now()) {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
    if (running_ != nullptr) running_->TryCancel();
  }
  thread_.join();
}

void OtlpExporter::Run() {
  NameThisThread("otlp");
  Request request;
  while (const int64_t spans = TakeBatch(request)) Send(request, spans);
  MutexLock lock(&mutex_);
  done_ = true;
  changed_.NotifyAll();
}

int64_t OtlpExporter::TakeBatch(Request& request) {
  std::vector<Spans> calls;
  {
    MutexLock lock(&mutex_);
    while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
    const absl::Time due = Now() + timing_.gather;
    for (absl::Duration left = timing_.gather;
         !stopping_ && queue_.size() < kMaxBatchCalls && left > absl::ZeroDuration();
         left = due - Now()) {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
    while (!queue_.empty() && calls.size() < kMaxBatchCalls) {
      calls.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }
  request.Clear();
  *request.add_resource_spans() = origin_;
  auto& all = *request.mutable_resource_spans(0)->mutable_scope_spans(0)->mutable_spans();
  for (Spans& call : calls) {
    for (auto& span : call) *all.Add() = std::move(span);
  }
  return all.size();
}

void OtlpExporter::Send(const Request& request, int64_t spans) {
  const absl::Time since = Now();
  absl::Duration pause = timing_.first_retry;
  for (;;) {
    Response response;
    const grpc::Status status = TryOnce(request, response);
    if (status.ok()) return Accepted(response, spans);
    NoteFault(status.error_message());
    const std::optional<absl::Duration> asked = RetryDelayIn(status);
    if (!MayRetry(status, asked.has_value())) return metrics_.CountSpans("refused", spans);
    if (!WaitToRetry(since, asked.value_or(pause))) {
      return metrics_.CountSpans("unreachable", spans);
    }
    pause = std::min(2 * pause, timing_.longest_retry);
  }
}

grpc::Status OtlpExporter::TryOnce(const Request& request, Response& response) {
  grpc::ClientContext context;
  {
    MutexLock lock(&mutex_);
    const absl::Duration limit = std::min(timing_.export_timeout, stop_by_ - Now());
    if (limit <= absl::ZeroDuration() || gone_) {
      return {grpc::StatusCode::UNAVAILABLE, "the server ends"};
    }
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(limit));
    running_ = &context;
  }
  const grpc::Status status = stub_->Export(&context, request, &response);
  MutexLock lock(&mutex_);
  running_ = nullptr;
  return status;
}

bool OtlpExporter::WaitToRetry(absl::Time since, absl::Duration delay) {
  // Varies the delay, so that replicas that lost one collector do not all return at once.
  delay *= absl::Uniform(random_, 0.8, 1.2);
  const absl::Time until = Now() + delay;
  if (until - since > timing_.give_up) return false;
  MutexLock lock(&mutex_);
  for (absl::Duration left = delay; !stopping_ && left > absl::ZeroDuration();
       left = until - Now()) {
    changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
  }
  gone_ = stopping_;
  return !stopping_;
}

void OtlpExporter::Accepted(const Response& response, int64_t spans) {
  const int64_t refused =
      std::clamp<int64_t>(response.partial_success().rejected_spans(), 0, spans);
  metrics_.CountSpans("exported", spans - refused);
  if (refused > 0) {
    metrics_.CountSpans("refused", refused);
    NoteFault(response.partial_success().error_message());
  } else if (std::exchange(faulty_, false)) {
    spdlog::info("traces: {} accepts them again", options_.endpoint);
  }
}

void OtlpExporter::NoteFault(const std::string& fault) {
  if (std::exchange(faulty_, true)) return;
  spdlog::warn("traces: {} does not accept them: {}", options_.endpoint, LogQuoted(fault));
}

}  // namespace tlm
