#include "client/openai/routes/page.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"
#include "model/base/sha256.h"

namespace tlm::openai {

// The build writes it (client/openai/page/embed.cmake).
extern const char kPage[];
extern const size_t kPageSize;

namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);

// Adds the hashes of the contents of all elements of this name: 'sha256-...'.
std::string HashesOf(std::string_view page, const std::string& element) {
  std::string hashes;
  size_t at = 0;
  while ((at = page.find('<' + element, at)) != page.npos) {
    const size_t begin = page.find('>', at);
    const size_t end = page.find("</" + element, at);
    if (begin == page.npos || end == page.npos || end < begin) break;
    const auto digest = Sha256(page.substr(begin + 1, end - begin - 1));
    if (digest.ok()) {
      const absl::string_view bytes(reinterpret_cast<const char*>(digest->data()), digest->size());
      hashes += fmt::format(" 'sha256-{}'", std::string(absl::Base64Escape(bytes)));
    }
    at = end;
  }
  return hashes.empty() ? " 'none'" : hashes;
}

// Reads a whole number of 32 bits from the query; 0 if it is absent.
absl::StatusOr<uint32_t> NumberOf(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return 0U;
  uint32_t number = 0;
  const std::string& text = found->second;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return number;
  return WithField(InvalidArgument("{} is {}, it must be a whole number", name, Quoted(text)),
                   name);
}

// Chooses by ?model=NAME; the first model without it.
absl::StatusOr<Backend*> BackendOf(Front* front, const Incoming& incoming) {
  const auto& query = incoming.exchange->request().query;
  const auto found = query.find("model");
  if (found == query.end() || found->second.empty()) return front->backends.front().get();
  const auto chosen = ChooseBackend(front, found->second, incoming.Options(*front));
  if (!chosen.ok()) return chosen.status();
  return chosen->backend;
}

absl::StatusOr<v1::ModelInfoResponse> InfoOf(Front* front, const Incoming& incoming,
                                             Backend* backend) {
  const HttpRequest& request = incoming.exchange->request();
  TLM_ASSIGN_OR_RETURN(const uint32_t prompt_tokens, NumberOf(request, "prompt_tokens"));
  TLM_ASSIGN_OR_RETURN(const uint32_t output_tokens, NumberOf(request, "output_tokens"));
  v1::ModelInfoRequest query;
  if (prompt_tokens > 0 || output_tokens > 0) {
    query.mutable_flops()->set_prompt_tokens(prompt_tokens);
    query.mutable_flops()->set_new_tokens(output_tokens);
  }
  client::CallOptions options = incoming.Options(*front);
  options.timeout = std::min(options.timeout, kTimeout);
  return backend->client().ModelInfo(query, options);
}

double NamedMetric(const ReplicaLoad::Report& report, const char* name) {
  const auto found = report.named_metrics().find(name);
  return found == report.named_metrics().end() ? 0 : found->second;
}

Json ReplicaJson(const absl::StatusOr<ReplicaLoad::Report>& report, uint64_t kv_blocks) {
  if (!report.ok()) {
    return {{"serving", false}, {"error", std::string(report.status().message())}};
  }
  const double usage = NamedMetric(*report, "kv_cache_usage_perc");
  const double used = std::round(usage * static_cast<double>(kv_blocks));
  return {{"serving", true},
          {"running_requests", NamedMetric(*report, "num_requests_running")},
          {"waiting_requests", NamedMetric(*report, "num_requests_waiting")},
          {"kv_blocks_total", kv_blocks},
          {"kv_blocks_free", kv_blocks - std::min(kv_blocks, static_cast<uint64_t>(used))},
          {"kv_cache_usage", usage},
          {"utilization", report->application_utilization()}};
}

}  // namespace

std::string_view EmbeddedPage() { return {kPage, kPageSize}; }

std::string SecurityPolicyOf(std::string_view page) {
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      HashesOf(page, "script"), HashesOf(page, "style"));
}

void Page(Front* front, const Incoming& incoming) {
  if (EmbeddedPage().empty()) {
    return RespondError(
        front, incoming,
        WithReason(NotFound("this build has no page: the API is at /v1"), "unknown_url"));
  }
  static const std::string& policy = *new std::string(SecurityPolicyOf(EmbeddedPage()));
  ResponseHead head = HeadFor(incoming, 200, "text/html; charset=utf-8");
  head.headers.emplace_back("Content-Security-Policy", policy);
  head.headers.emplace_back("Referrer-Policy", "no-referrer");
  front->metrics.CountRequest(incoming.route, head.status);
  incoming.exchange->Respond(std::move(head), std::string(EmbeddedPage()));
}

void PageModelInfo(Front* front, const Incoming& incoming) {
  const auto backend = BackendOf(front, incoming);
  if (!backend.ok()) return RespondError(front, incoming, backend.status());
  const auto info = InfoOf(front, incoming, *backend);
  if (!info.ok()) return RespondError(front, incoming, info.status());
  std::string json;
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(*info, &json, print).ok()) {
    return RespondError(front, incoming, Internal("ModelInfo could not be written as JSON"));
  }
  RespondText(front, incoming, 200, "application/json", std::move(json));
}

void PageStatus(Front* front, const Incoming& incoming) {
  const auto backend = BackendOf(front, incoming);
  if (!backend.ok()) return RespondError(front, incoming, backend.status());
  const auto info = InfoOf(front, incoming, *backend);
  const absl::StatusCode code = info.status().code();
  if (code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kPermissionDenied ||
      code == absl::StatusCode::kInvalidArgument) {
    return RespondError(front, incoming, info.status());
  }
  client::CallOptions options = incoming.Options(*front);
  options.timeout = std::min(options.timeout, kTimeout);
  Json replicas = Json::array();
  for (const auto& load : (*backend)->loads()) {
    replicas.push_back(
        ReplicaJson(load->Read(options), info.ok() ? info->memory().kv_blocks_total() : 0));
  }
  const std::string name =
      info.ok() && (*backend)->name().empty() ? info->identity().model_id() : (*backend)->name();
  RespondJson(front, incoming,
              {{"model", name},
               {"replicas", std::move(replicas)},
               {"front",
                {{"running_calls", front->calls.running()},
                 {"queued_calls", front->calls.queued()},
                 {"tokens_per_second", front->metrics.TokensPerSecond(absl::Now())}}}});
}

}  // namespace tlm::openai
