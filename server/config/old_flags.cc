#include "server/config/old_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "server/config/flag_types.h"

ABSL_FLAG(std::optional<std::string>, init, std::nullopt, "--random_weights");
ABSL_FLAG(std::optional<uint64_t>, seed, std::nullopt, "--random_weights=SEED");
ABSL_FLAG(std::optional<std::string>, weights_dtype, std::nullopt, "--random_weights=SEED:TYPE");
ABSL_FLAG(bool, pin_threads, true, "--debug_disable=pinning");
ABSL_FLAG(bool, cuda_graphs, true, "--debug_disable=cuda_graphs");
ABSL_FLAG(bool, cuda_overlap, true, "--debug_disable=cuda_overlap");
ABSL_FLAG(bool, cuda_library, true, "--debug_disable=cuda_library");
ABSL_FLAG(std::optional<int64_t>, max_prefill_tokens, std::nullopt, "--max_batch_tokens");
ABSL_FLAG(std::optional<int64_t>, short_prompt_tokens, std::nullopt, "--max_decode_stretch");
ABSL_FLAG(std::optional<std::string>, admin_port_file, std::nullopt,
          "--port_file=FILE, which writes FILE.admin");
ABSL_FLAG(std::optional<std::string>, metrics_port_file, std::nullopt,
          "--port_file=FILE, which writes FILE.metrics");
ABSL_FLAG(std::optional<bool>, oip, std::nullopt, "--facades=oip");
ABSL_FLAG(std::optional<absl::Duration>, max_connection_age_grace, std::nullopt,
          "deadlines of calls");

namespace tlm {
namespace {

// Adds a warning that names the flag's replacement.
template <typename T>
void Warn(const absl::Flag<T>& flag, ServerOptions* options) {
  options->warnings.push_back(fmt::format("--{} goes away in the next version: use {}",
                                          std::string(flag.Name()), flag.Help()));
}

// Returns the value, and adds a warning if there is one.
template <typename T>
std::optional<T> Given(const absl::Flag<std::optional<T>>& flag, ServerOptions* options) {
  std::optional<T> value = absl::GetFlag(flag);
  if (value.has_value()) Warn(flag, options);
  return value;
}

// Applies an old switch that is on by default: returns `on`, or adds a warning and returns false.
bool Left(const absl::Flag<bool>& flag, bool on, ServerOptions* options) {
  if (absl::GetFlag(flag)) return on;
  Warn(flag, options);
  return false;
}

// Sets the file of a port that is open only on request.
absl::Status TakePortFile(std::string_view port, const std::optional<std::string>& given, bool open,
                          std::string* file) {
  if (!given.has_value()) return absl::OkStatus();
  if (!open && !given->empty()) {
    return InvalidArgument("--{}_file={} needs --{}", port, *given, port);
  }
  *file = *given;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> OldRandomWeights(ServerOptions* options) {
  const std::optional<std::string> init = Given(FLAGS_init, options);
  const std::optional<uint64_t> seed = Given(FLAGS_seed, options);
  const std::optional<std::string> dtype = Given(FLAGS_weights_dtype, options);
  if (init.has_value() && *init != "files" && *init != "random") {
    return InvalidArgument("--init is {}, it may be files or random", *init);
  }
  if (init.value_or("files") == "random") {
    return fmt::format("{}{}{}", seed.value_or(0), dtype.has_value() ? ":" : "",
                       dtype.value_or(""));
  }
  if (seed.has_value()) return InvalidArgument("--seed={} needs --init=random", *seed);
  if (dtype.has_value()) {
    return InvalidArgument("--weights_dtype={} needs --init=random: files say their own type",
                           *dtype);
  }
  return "";
}

absl::Status ApplyOldFlags(ServerOptions* options) {
  options->pin_threads = Left(FLAGS_pin_threads, options->pin_threads, options);
  CudaOptions& cuda = options->cuda;
  cuda.graphs = Left(FLAGS_cuda_graphs, cuda.graphs, options);
  cuda.overlap = Left(FLAGS_cuda_overlap, cuda.overlap, options);
  cuda.library = Left(FLAGS_cuda_library, cuda.library, options);
  EngineOptions& engine = options->engine;
  const int64_t prefill = Given(FLAGS_max_prefill_tokens, options).value_or(0);
  const int64_t most = engine.max_batch_tokens > 0 ? engine.max_batch_tokens : int64_t{1} << 16;
  TLM_RETURN_IF_ERROR(CheckRange("max_prefill_tokens", prefill, 0, most));
  if (prefill > 0) engine.max_prefill_tokens = prefill;
  engine.short_prompt_tokens =
      Given(FLAGS_short_prompt_tokens, options).value_or(engine.short_prompt_tokens);
  TLM_RETURN_IF_ERROR(
      CheckRange("short_prompt_tokens", engine.short_prompt_tokens, 0, int64_t{1} << 24));
  ServiceOptions& service = options->service;
  TLM_RETURN_IF_ERROR(TakePortFile("admin_port", Given(FLAGS_admin_port_file, options),
                                   service.admin_port.has_value(), &service.admin_port_file));
  TLM_RETURN_IF_ERROR(TakePortFile("metrics_port", Given(FLAGS_metrics_port_file, options),
                                   service.metrics_port.has_value(), &service.metrics_port_file));
  std::vector<std::string>& facades = service.facades;
  const bool oip = Given(FLAGS_oip, options).value_or(false);
  if (oip && std::count(facades.begin(), facades.end(), "oip") == 0) facades.push_back("oip");
  absl::Duration& grace = service.connections.max_age_grace;
  grace = Given(FLAGS_max_connection_age_grace, options).value_or(grace);
  return CheckNotNegative("max_connection_age_grace", grace);
}

}  // namespace tlm
