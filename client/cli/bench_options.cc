#include "client/cli/bench_options.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/bench_prompts.h"

using tlm::cli::TimeSpan;

ABSL_DECLARE_FLAG(std::optional<uint64_t>, seed);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, prompt_tokens);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, max_new_tokens);

ABSL_FLAG(std::optional<uint32_t>, concurrency, std::nullopt,
          "requests in flight, 1 to 4096: 8 if not given; with --rate at the most, and 1024 if not "
          "given");
ABSL_FLAG(std::optional<uint64_t>, requests, std::nullopt, "measure this many requests");
ABSL_FLAG(std::optional<TimeSpan>, duration, std::nullopt,
          "measure for this long, in seconds or like 1m30s; 10s if neither this nor --requests is "
          "given");
ABSL_FLAG(
    std::optional<double>, rate, std::nullopt,
    "send this many requests per second at random times (a Poisson process), whatever becomes "
    "of them, instead of the next when one is over");
ABSL_FLAG(TimeSpan, warmup, TimeSpan{absl::ZeroDuration()},
          "offer the load this long before measuring");
ABSL_FLAG(uint32_t, connections, 1, "connections to each target, 1 to 64");
ABSL_FLAG(std::string, prompts_file, "",
          "prompts, one a line, in turn; a line in double quotes is a JSON string");
ABSL_FLAG(bool, until_eos, false,
          "let outputs end at end-of-sequence tokens, before --max_new_tokens");

namespace tlm::cli {
namespace {

constexpr uint32_t kCallers = 8;
constexpr uint32_t kMostInFlight = 1024;
constexpr uint32_t kPromptTokens = 128;
constexpr uint32_t kNewTokens = 64;
constexpr absl::Duration kDuration = absl::Seconds(10);
constexpr double kMaxRate = 1e5;

absl::Status CheckRange(std::string_view flag, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--{} is {}, the range is [{}, {}]", flag, value, low, high));
}

absl::Status ReadLoad(BenchOptions* options) {
  options->rate = absl::GetFlag(FLAGS_rate);
  // Written so that NaN is out of range.
  if (options->rate && !(*options->rate > 0 && *options->rate <= kMaxRate)) {
    return absl::InvalidArgumentError(
        fmt::format("--rate is {}, the range is (0, {:.0f}]", *options->rate, kMaxRate));
  }
  options->concurrency =
      absl::GetFlag(FLAGS_concurrency).value_or(options->rate ? kMostInFlight : kCallers);
  options->connections = absl::GetFlag(FLAGS_connections);
  if (absl::Status status =
          CheckRange("concurrency", options->concurrency, 1, kMaxBenchConcurrency);
      !status.ok()) {
    return status;
  }
  return CheckRange("connections", options->connections, 1, kMaxBenchConnections);
}

absl::Status ReadEnd(BenchOptions* options) {
  options->requests = absl::GetFlag(FLAGS_requests);
  if (const std::optional<TimeSpan> given = absl::GetFlag(FLAGS_duration)) {
    options->duration = given->duration;
  } else if (!options->requests) {
    options->duration = kDuration;
  }
  if (options->duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(fmt::format("--duration is {}, it must be more than 0",
                                                  absl::FormatDuration(options->duration)));
  }
  options->warmup = absl::GetFlag(FLAGS_warmup).duration;
  if (options->warmup == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError("--warmup is inf, it must end");
  }
  if (options->requests) return CheckRange("requests", *options->requests, 1, UINT32_MAX);
  return absl::OkStatus();
}

absl::Status ReadRequest(BenchOptions* options) {
  options->prompts_file = absl::GetFlag(FLAGS_prompts_file);
  const std::optional<uint32_t> prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  if (prompt_tokens && !options->prompts_file.empty()) {
    return absl::InvalidArgumentError("--prompt_tokens and --prompts_file exclude each other");
  }
  options->prompt_tokens = prompt_tokens.value_or(kPromptTokens);
  if (absl::Status status =
          CheckRange("prompt_tokens", options->prompt_tokens, 1, BenchPrompts::kMaxTokens);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = SetGenerationFromFlags(&options->request); !status.ok()) return status;
  v1::StoppingCriteria& stopping = *options->request.mutable_stopping();
  if (!stopping.has_max_new_tokens()) stopping.set_max_new_tokens(kNewTokens);
  stopping.set_ignore_eos(!absl::GetFlag(FLAGS_until_eos));
  // Ids, to count the tokens of each event by.
  options->request.mutable_output()->set_token_ids(true);
  return CheckRange("max_new_tokens", stopping.max_new_tokens(), 1, UINT32_MAX);
}

}  // namespace

absl::StatusOr<BenchOptions> BenchOptionsFromFlags() {
  BenchOptions options;
  options.seed = absl::GetFlag(FLAGS_seed).value_or(0);
  options.timeout = TimeoutFromFlags();
  for (absl::Status (*read)(BenchOptions*) : {ReadLoad, ReadEnd, ReadRequest}) {
    if (absl::Status status = read(&options); !status.ok()) return status;
  }
  return options;
}

}  // namespace tlm::cli
