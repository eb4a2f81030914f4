#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/messages.h"
#include "client/cli/base/report.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cpp/admin_client.h"
#include "model/base/errors.h"

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
  if (response.ok() && !PrintedAsJson(*response, console)) print(*response, console->out);
  return response.status();
}

// Returns the error of the command line; empty if there is no error.
std::string UsageProblem(const Arguments& arguments) {
  const std::vector<std::string_view> calls = FlagNames("load abort drain flush config");
  if (arguments.empty() || std::find(calls.begin(), calls.end(), arguments[0]) == calls.end()) {
    return "takes one of load, abort, drain, flush and config";
  }
  const bool is_abort = arguments[0] == "abort";
  const bool has_ids = arguments.size() > 1;
  if (!is_abort && has_ids) return arguments[0] + " takes nothing after it";
  if (is_abort && has_ids == absl::GetFlag(FLAGS_all)) return "abort takes request ids, or --all";
  if (!is_abort && !absl::GetFlag(FLAGS_tenant).empty()) {
    return arguments[0] + " takes no --tenant, abort does";
  }
  if (!absl::GetFlag(FLAGS_admin_target).empty()) return "";
  return "needs --admin_target, the host:port of the server's --admin_port";
}

absl::Status Call(const Arguments& arguments, client::AdminClient* client,
                  const client::CallOptions& options, Console* console) {
  const std::string& call = arguments[0];
  if (call == "load") return Print(client->GetLoad(options), PrintLoad, console);
  if (call == "flush") return Print(client->FlushPrefixCache(options), PrintFlush, console);
  if (call == "config") return Print(client->GetConfig(options), PrintConfig, console);
  if (call == "drain") {
    v1::DrainRequest request;
    const absl::Duration limit = absl::GetFlag(FLAGS_time_limit).duration;
    if (limit < absl::InfiniteDuration()) *request.mutable_time_limit() = ToProto(limit);
    return Print(client->Drain(request, options), PrintDrain, console);
  }
  v1::AbortRequest request;
  request.mutable_request_ids()->Add(arguments.begin() + 1, arguments.end());
  request.set_all(absl::GetFlag(FLAGS_all));
  const std::string tenant = absl::GetFlag(FLAGS_tenant);
  if (!tenant.empty()) request.set_tenant(tenant);
  return Print(client->Abort(request, options), PrintAbort, console);
}

absl::StatusOr<int> RunAdmin(const Arguments& arguments, Console* console) {
  if (const std::string problem = UsageProblem(arguments); !problem.empty()) {
    return UsageError("{}", problem);
  }
  TLM_ASSIGN_OR_RETURN(const auto client_options, ClientOptionsFromFlags(console));
  TLM_ASSIGN_OR_RETURN(const auto client, client::AdminClient::Connect(
                                              absl::GetFlag(FLAGS_admin_target), client_options));
  Interrupt interrupt;
  client::CallOptions options;
  options.timeout = TimeoutFromFlags();
  options.cancel = interrupt.token();
  TLM_RETURN_IF_ERROR(Call(arguments, client.get(), options, console));
  return kSuccess;
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
          .flags = "admin_target all tenant time_limit json",
          .connects = true,
          .run = RunAdmin};
}

}  // namespace tlm::cli
