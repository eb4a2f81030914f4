#include "client/cli/admin_output.h"

#include <fmt/format.h>

#include "client/cli/base/proto_values.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

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

}  // namespace

std::string RoundedTime(const google::protobuf::Duration& duration) {
  const absl::Duration time = FromProto(duration);
  // What nobody wants to know more precisely.
  return absl::FormatDuration(
      absl::Trunc(time, time < absl::Minutes(1) ? absl::Milliseconds(1) : absl::Seconds(1)));
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

}  // namespace tlm::cli
