#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/terminal.h"
#include "client/cli/bench_prompts.h"
#include "client/cli/bench_report.h"
#include "client/cpp/client.h"
#include "client/cpp/status.h"
#include "client/load/generate_call.h"
#include "client/load/load_generator.h"
#include "model/base/errors.h"

using tlm::cli::TimeSpan;

ABSL_DECLARE_FLAG(std::optional<uint64_t>, seed);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, prompt_tokens);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, max_new_tokens);

ABSL_FLAG(std::optional<uint32_t>, concurrency, std::nullopt,
          "requests in flight, 1 to 4096; default 8. With --rate the most in flight; default 1024");
ABSL_FLAG(std::optional<uint64_t>, requests, std::nullopt, "number of requests to measure");
ABSL_FLAG(std::optional<TimeSpan>, duration, std::nullopt,
          "time to measure, in seconds or as 1m30s; 10s without --duration and --requests");
ABSL_FLAG(std::optional<double>, rate, std::nullopt,
          "open loop: requests per second, sent in a Poisson process independently of the answers; "
          "default: a closed loop");
ABSL_FLAG(TimeSpan, warmup, TimeSpan{absl::ZeroDuration()}, "time of load before the measurement");
ABSL_FLAG(uint32_t, connections, 1, "connections to each target, 1 to 64");
ABSL_FLAG(std::string, prompts_file, "",
          "file of prompts, one per line, in turn; a line in double quotes is a JSON string");
ABSL_FLAG(bool, until_eos, false,
          "let outputs end at end-of-sequence tokens, before --max_new_tokens");

namespace tlm::cli {
namespace {

// Defaults of the flags.
constexpr uint32_t kCallers = 8;
constexpr uint32_t kMaxInFlight = 1024;
constexpr uint32_t kPromptTokens = 128;
constexpr uint32_t kNewTokens = 64;
constexpr absl::Duration kDuration = absl::Seconds(10);

// A request in flight and a connection take some 30 KiB of memory each.
constexpr uint32_t kMaxConcurrency = 4096;
constexpr uint32_t kMaxConnections = 64;
constexpr double kMaxRate = 1e5;

absl::Status CheckRange(std::string_view flag, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("--{} is {}, the range is [{}, {}]", flag, value, low, high);
}

absl::Status ReadLoad(BenchOptions* options) {
  const std::optional<double> rate = absl::GetFlag(FLAGS_rate);
  // Written so that NaN is out of range.
  if (rate && !(*rate > 0 && *rate <= kMaxRate)) {
    return InvalidArgument("--rate is {}, the range is (0, {:.0f}]", *rate, kMaxRate);
  }
  const uint32_t concurrency =
      absl::GetFlag(FLAGS_concurrency).value_or(rate ? kMaxInFlight : kCallers);
  options->load.rate = rate;
  options->load.concurrency = concurrency;
  options->connections = absl::GetFlag(FLAGS_connections);
  TLM_RETURN_IF_ERROR(CheckRange("concurrency", concurrency, 1, kMaxConcurrency));
  return CheckRange("connections", options->connections, 1, kMaxConnections);
}

absl::Status ReadEnd(BenchOptions* options) {
  const std::optional<uint64_t> requests = absl::GetFlag(FLAGS_requests);
  const std::optional<TimeSpan> given = absl::GetFlag(FLAGS_duration);
  absl::Duration duration = requests ? absl::InfiniteDuration() : kDuration;
  if (given) duration = given->duration;
  if (duration <= absl::ZeroDuration()) {
    return InvalidArgument("--duration is {}, it must be more than 0",
                           absl::FormatDuration(duration));
  }
  const absl::Duration warmup = absl::GetFlag(FLAGS_warmup).duration;
  if (warmup == absl::InfiniteDuration()) {
    return InvalidArgument("--warmup is inf, it must end");
  }
  options->load.requests = requests;
  options->load.seconds = absl::ToDoubleSeconds(duration);
  options->load.warmup_seconds = absl::ToDoubleSeconds(warmup);
  if (requests) return CheckRange("requests", *requests, 1, UINT32_MAX);
  return absl::OkStatus();
}

absl::Status ReadRequest(BenchOptions* options) {
  options->prompts_file = absl::GetFlag(FLAGS_prompts_file);
  const std::optional<uint32_t> prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  if (prompt_tokens && !options->prompts_file.empty()) {
    return InvalidArgument("--prompt_tokens and --prompts_file exclude each other");
  }
  options->prompt_tokens = prompt_tokens.value_or(kPromptTokens);
  TLM_RETURN_IF_ERROR(
      CheckRange("prompt_tokens", options->prompt_tokens, 1, BenchPrompts::kMaxTokens));
  TLM_RETURN_IF_ERROR(SetGenerationFromFlags(&options->request));
  v1::StoppingCriteria& stopping = *options->request.mutable_stopping();
  if (!stopping.has_max_new_tokens()) stopping.set_max_new_tokens(kNewTokens);
  stopping.set_ignore_eos(!absl::GetFlag(FLAGS_until_eos));
  // The tokens of an event are counted by their ids.
  options->request.mutable_output()->set_token_ids(true);
  return CheckRange("max_new_tokens", stopping.max_new_tokens(), 1, UINT32_MAX);
}

absl::StatusOr<BenchOptions> BenchOptionsFromFlags() {
  BenchOptions options;
  options.load.seed = absl::GetFlag(FLAGS_seed).value_or(0);
  options.timeout_seconds = absl::ToDoubleSeconds(TimeoutFromFlags());
  TLM_RETURN_IF_ERROR(ReadLoad(&options));
  TLM_RETURN_IF_ERROR(ReadEnd(&options));
  TLM_RETURN_IF_ERROR(ReadRequest(&options));
  return options;
}

absl::StatusOr<BenchPrompts> MakePrompts(const BenchOptions& options,
                                         const v1::ModelInfoResponse& model) {
  if (!options.prompts_file.empty()) return BenchPrompts::FromFile(options.prompts_file);
  return BenchPrompts::Random(options.prompt_tokens, model.architecture().vocab_size(),
                              options.load.seed);
}

class BenchListener final : public load::LoadListener {
 public:
  explicit BenchListener(Console* console) : line_(&console->err, console->err_is_terminal) {}

  void OnTokens(const load::CallRecord& call, int64_t tokens,
                const load::LoadWindow& window) override {
    if (!window.Contains(call.due)) return;
    if (call.gaps.empty()) {
      result_.ttft.Add(load::Seconds(call.due, *call.first_token));
    } else {
      result_.inter_token.Add(call.gaps.back() / static_cast<double>(tokens),
                              static_cast<uint64_t>(tokens));
    }
  }

  void OnDone(load::CallRecord call, const load::LoadWindow& window) override {
    if (call.ok() && window.Contains(call.done)) ++result_.completed;
    if (!window.Contains(call.due)) return;
    if (call.queue_seconds) result_.queue.Add(*call.queue_seconds);
    if (call.ok()) {
      ++result_.ok;
      result_.end_to_end.Add(load::Seconds(call.due, call.done));
    } else if (call.cancelled && call.code == absl::StatusCode::kCancelled) {
      ++result_.cut_off;
    } else {
      result_.AddFailure(client::CodeName(call.code), call.reason);
    }
  }

  void OnWindow(bool /*open*/) override {}

  void OnProgress(const load::LoadProgress& progress, const load::LoadWindow& window) override {
    line_.Show(progress.done,
               progress.warming_up
                   ? fmt::format("warming up, {} in flight", progress.in_flight)
                   : fmt::format("{} ok, {} failed, {} in flight, {} tokens{}", result_.ok,
                                 result_.failed, progress.in_flight, window.output_tokens,
                                 progress.draining ? "; waiting for the last ones" : ""));
  }

  BenchResult TakeResult() { return std::move(result_); }

 private:
  ProgressLine line_;
  BenchResult result_;
};

BenchResult Measure(const BenchOptions& options, const BenchPrompts& prompts,
                    load::Connections* connections, const client::CancelToken& cancel,
                    Console* console) {
  BenchListener listener(console);
  load::LoadGenerator generator(
      *connections,
      [&](uint64_t index) {
        load::PlannedRequest request = {options.request, options.timeout_seconds};
        prompts.Set(index, &request.message);
        return request;
      },
      options.load, listener);
  // An unreachable server shows in the requests.
  constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
  connections->WaitUntilConnected(kConnectTimeout, &cancel);
  const load::LoadWindow window = generator.Run(&cancel);
  BenchResult result = listener.TakeResult();
  result.window = window;
  return result;
}

BenchSubject SubjectOf(const v1::ModelInfoResponse& model) {
  const auto& identity = model.identity();
  return {TargetsFromFlags(), identity.model_id(),
          fmt::format("{} on {}", identity.server_version(), identity.device_name())};
}

absl::StatusOr<int> RunBench(const Arguments& /*arguments*/, Console* console) {
  TLM_ASSIGN_OR_RETURN(const BenchOptions options, AsUsage(BenchOptionsFromFlags()));
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  v1::ModelInfoRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  TLM_ASSIGN_OR_RETURN(const auto model,
                       session->client().ModelInfo(request, session->call_options()));
  TLM_ASSIGN_OR_RETURN(const BenchPrompts prompts, MakePrompts(options, model));
  TLM_ASSIGN_OR_RETURN(
      auto connections,
      load::Connections::Create(TargetsFromFlags(), static_cast<int>(options.connections),
                                session->client_options()));
  const BenchResult result = Measure(options, prompts, &connections, *session->cancel(), console);
  const auto print = absl::GetFlag(FLAGS_json) ? PrintBenchJson : PrintBenchTables;
  print(SubjectOf(model), options, result, console->out);
  console->out.flush();
  if (Interrupt::exit_code() != 0) return Interrupt::exit_code();
  return result.ok > 0 ? kSuccess : kFailure;
}

}  // namespace

Command BenchCommand() {
  return {
      .name = "bench",
      .summary = "measure a server under load",
      .details =
          R"(Sends Generate requests, --concurrency at a time or --rate per second, and reports requests
and tokens per second, and mean and percentiles of TTFT (time to first token), inter-token
latency, end-to-end latency and queue time. Latencies count from when a request was due.
Prompts are random tokens unless --prompts_file names some. Ctrl-C ends it early, with what
was measured. The exit code is 1 when no request ended well.

  tlm bench --concurrency=16 --duration=30s --prompt_tokens=256 --max_new_tokens=64)",
      .flags =
          "concurrency rate requests duration warmup prompt_tokens prompts_file max_new_tokens "
          "until_eos connections temperature top_k top_p seed priority soft_time_limit "
          "bypass_prefix_cache cache_salt model json",
      .connects = true,
      .run = RunBench,
      .flag_help = {
          {"prompt_tokens", "random tokens in each prompt; 128 if not given"},
          {"max_new_tokens", "tokens in each output; 64 if not given"},
          {"seed", "of prompts and times; sampling has the same seed in every request then"},
          {"timeout", "deadline of each request"},
          {"json", "print one JSON object, times in seconds"}}};
}

}  // namespace tlm::cli
