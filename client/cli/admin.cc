#include <fmt/format.h>

#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/messages.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cpp/admin_client.h"

ABSL_FLAG(std::string, admin_target, "",
          "the admin port of a server, as host:port; not the port of --target");
ABSL_FLAG(bool, all, false, "abort: every active request");
ABSL_FLAG(std::string, tenant, "", "abort: only requests of this tenant; default: of every tenant");
ABSL_FLAG(tlm::cli::TimeSpan, time_limit, tlm::cli::TimeSpan{absl::InfiniteDuration()},
          "drain: time for running requests to finish; default: the server's --drain_timeout");

namespace tlm::cli {
namespace {

std::string Part(uint64_t part, uint64_t whole) {
  if (whole == 0) return "0";
  return fmt::format("{} ({})", WithSeparators(part),
                     Percent(static_cast<double>(part) / static_cast<double>(whole)));
}

std::string Queued(const v1::GetLoadResponse& load) {
  if (load.queued_requests() == 0) return "0 requests";
  return fmt::format("{} requests, {} tokens, about {} to wait",
                     WithSeparators(load.queued_requests()), WithSeparators(load.queued_tokens()),
                     RoundedTime(load.estimated_queue_time()));
}

std::string Running(const v1::GetLoadResponse& load) {
  const std::string running = WithSeparators(load.running_sequences()) + " sequences";
  if (load.parked_sequences() == 0) return running;
  return fmt::format("{}, {} of them paused (backpressure)", running,
                     WithSeparators(load.parked_sequences()));
}

void PrintLoad(const v1::GetLoadResponse& load, std::ostream& out) {
  const v1::PrefixCacheLoad& cache = load.prefix_cache();
  Table table({Align::kLeft, Align::kLeft});
  table.AddRow({"state", load.draining() ? "draining" : "serving"});
  table.AddRow({"uptime", RoundedTime(load.uptime())});
  table.AddRow({"active calls", WithSeparators(load.active_calls())});
  table.AddRow({"queued", Queued(load)});
  table.AddRow({"running", Running(load)});
  table.AddRow({"speed", fmt::format("prefill {} tok/s, decode {} tok/s",
                                     WithSeparators(load.prefill_tokens_per_second(), 1),
                                     WithSeparators(load.decode_tokens_per_second(), 1))});
  table.AddRow({"KV blocks", WithSeparators(load.kv_blocks_total())});
  table.AddRow({"  used", Part(load.kv_blocks_used(), load.kv_blocks_total())});
  table.AddRow({"  cached", Part(load.kv_blocks_cached(), load.kv_blocks_total())});
  table.AddRow(
      {"prefix cache", fmt::format("{} tokens looked up", WithSeparators(cache.queried_tokens()))});
  table.AddRow({"  found", Part(cache.hit_tokens(), cache.queried_tokens())});
  table.AddRow({"finished requests", WithSeparators(load.finished_requests())});
  table.AddRow({"preemptions", WithSeparators(load.preemptions())});
  table.AddRow({"steps", fmt::format("{}, the last {} ago", WithSeparators(load.steps()),
                                     RoundedTime(load.last_step_age()))});
  table.Print(out);
}

void PrintAbort(const v1::AbortResponse& response, std::ostream& out) {
  for (const std::string& id : response.aborted()) out << "ended " << Printable(id) << '\n';
  for (const std::string& id : response.not_found()) out << "not active " << Printable(id) << '\n';
  out << WithSeparators(response.aborted_total()) << " requests ended\n";
}

void PrintDrain(const v1::DrainResponse& response, std::ostream& out) {
  out << fmt::format("{}, {} calls active\n",
                     response.already_draining() ? "draining already" : "draining",
                     WithSeparators(response.active_requests()));
}

void PrintFlush(const v1::FlushPrefixCacheResponse& response, std::ostream& out) {
  out << WithSeparators(response.blocks_freed()) << " KV blocks freed\n";
}

void PrintConfig(const v1::GetConfigResponse& config, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft, Align::kLeft});
  for (const auto& option : config.options()) {
    const bool changed = option.value() != option.default_value();
    table.AddRow({changed ? "*" : "", Printable(option.name()), Printable(option.value())});
  }
  table.Print(out);
}

template <typename Response>
absl::Status Print(const absl::StatusOr<Response>& response,
                   void (*print)(const Response&, std::ostream&), Console* console) {
  if (!response.ok()) return response.status();
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*response, console->out);
  } else {
    print(*response, console->out);
  }
  return absl::OkStatus();
}

struct Call {
  client::AdminClient* client;
  const client::CallOptions& options;
  const Arguments& request_ids;
  Console* console;
};

absl::Status RunLoad(const Call& call) {
  return Print(call.client->GetLoad(call.options), PrintLoad, call.console);
}

absl::Status RunAbort(const Call& call) {
  v1::AbortRequest request;
  request.mutable_request_ids()->Add(call.request_ids.begin(), call.request_ids.end());
  request.set_all(absl::GetFlag(FLAGS_all));
  const std::string tenant = absl::GetFlag(FLAGS_tenant);
  if (!tenant.empty()) request.set_tenant(tenant);
  return Print(call.client->Abort(request, call.options), PrintAbort, call.console);
}

absl::Status RunDrain(const Call& call) {
  v1::DrainRequest request;
  const absl::Duration limit = absl::GetFlag(FLAGS_time_limit).duration;
  if (limit < absl::InfiniteDuration()) *request.mutable_time_limit() = ToProto(limit);
  return Print(call.client->Drain(request, call.options), PrintDrain, call.console);
}

absl::Status RunFlush(const Call& call) {
  return Print(call.client->FlushPrefixCache(call.options), PrintFlush, call.console);
}

absl::Status RunConfig(const Call& call) {
  return Print(call.client->GetConfig(call.options), PrintConfig, call.console);
}

using RunCall = absl::Status (*)(const Call&);

// Returns null for an unknown word.
RunCall FindCall(const std::string& word) {
  static const std::map<std::string, RunCall> kCalls = {{"load", RunLoad},
                                                        {"abort", RunAbort},
                                                        {"drain", RunDrain},
                                                        {"flush", RunFlush},
                                                        {"config", RunConfig}};
  const auto found = kCalls.find(word);
  return found == kCalls.end() ? nullptr : found->second;
}

// Returns the error of the command line; empty if there is no error.
std::string UsageError(const Arguments& arguments) {
  if (arguments.empty() || FindCall(arguments[0]) == nullptr) {
    return "takes one of load, abort, drain, flush and config";
  }
  const bool has_ids = arguments.size() > 1;
  if (arguments[0] != "abort" && has_ids) {
    return fmt::format("{} takes nothing after it", arguments[0]);
  }
  if (arguments[0] == "abort" && has_ids == absl::GetFlag(FLAGS_all)) {
    return "abort takes request ids, or --all";
  }
  if (arguments[0] != "abort" && !absl::GetFlag(FLAGS_tenant).empty()) {
    return fmt::format("{} takes no --tenant, abort does", arguments[0]);
  }
  if (absl::GetFlag(FLAGS_admin_target).empty()) {
    return "needs --admin_target, the host:port of the server's --admin_port";
  }
  return "";
}

int RunAdmin(const Arguments& arguments, Console* console) {
  if (const std::string error = UsageError(arguments); !error.empty()) {
    return ReportUsage("admin", error, console);
  }
  const auto client_options = ClientOptionsFromFlags(console);
  if (!client_options.ok()) return ReportError("admin", client_options.status(), console);
  const auto client =
      client::AdminClient::Connect(absl::GetFlag(FLAGS_admin_target), *client_options);
  if (!client.ok()) return ReportError("admin", client.status(), console);

  Interrupt interrupt;
  client::CallOptions options;
  options.timeout = TimeoutFromFlags();
  options.cancel = interrupt.token();
  const Arguments request_ids(arguments.begin() + 1, arguments.end());
  const absl::Status status =
      FindCall(arguments[0])({client->get(), options, request_ids, console});
  if (status.ok()) return kSuccess;
  if (interrupt.exit_code() != 0 && absl::IsCancelled(status)) return interrupt.exit_code();
  return ReportError("admin", status, console);
}

}  // namespace

Command AdminCommand() {
  return {.name = "admin",
          .arguments = "load|abort|drain|flush|config [REQUEST_ID...]",
          .summary = "administer a running server, at its admin port",
          .details = R"(  load    what waits and runs, how full the KV cache is
  abort   end the requests of these ids, or --all of them, perhaps of one --tenant
  drain   begin to shut down; what runs may go on for --time_limit
  flush   free the blocks that only the prefix cache holds
  config  every flag of the server and its value; what was changed has a star

  tlm admin load --admin_target=127.0.0.1:50061)",
          .flags = {"admin_target", "all", "tenant", "time_limit", "json"},
          .connects = true,
          .run = RunAdmin};
}

}  // namespace tlm::cli
