#include "server/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "model/base/errors.h"
#include "model/config/presets.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/weights/weights_dtype.h"
#include "server/config/byte_size.h"
#include "server/config/command_line.h"
#include "server/config/flag_checks.h"

ABSL_FLAG(std::string, model, "",
          "model directory: config.json, model.safetensors (or shards with their index), and "
          "tokenizer.json where text is wanted. This or --preset is required");
ABSL_FLAG(std::string, preset, "",
          "a known model instead of a directory, with --init=random: gpt2-xl, qwen3-8b, ...; a "
          "wrong name lists them");
ABSL_FLAG(std::string, init, "files",
          "where the weights come from: files, or random for those of a model before training, "
          "which takes a config.json alone");
ABSL_FLAG(std::optional<uint64_t>, seed, std::nullopt,
          "of --init=random: equal seeds draw equal weights; 0 if not given");
ABSL_FLAG(std::optional<std::string>, weights_dtype, std::nullopt,
          "of --init=random: float32, bfloat16 or float16; what config.json names if not given");
ABSL_FLAG(std::string, weights, "auto",
          "how the matrices are kept: auto for the type they come in, or int8 (CPU only) for 8-bit "
          "integers with a scale for each 256 inputs of an output, quantised at start: about half "
          "the memory of 16-bit ones and faster, at a small loss of precision");
ABSL_FLAG(std::string, sampling_defaults, "model",
          "what requests get that do not say: model for generation_config.json's values, or "
          "neutral for temperature 1 and no truncation");
ABSL_FLAG(std::string, backend, "auto",
          "what computes: cpu, cuda, or auto for cuda where it works and else cpu");
ABSL_FLAG(int, threads, 0, "threads of the CPU backend, 0 to 1024; 0 = all processors");
ABSL_FLAG(std::string, isa, "auto",
          "instructions of the CPU backend: portable, avx2, avx512, avx512_bf16, amx_bf16, or auto "
          "for the last of these the machine has");
ABSL_FLAG(
    bool, pin_threads, true,
    "keep each thread of the CPU backend on one processor, where there are as many threads as "
    "processors");
ABSL_FLAG(int, gpu_device, 0,
          "number of the GPU, 0 to 1023, among those CUDA_VISIBLE_DEVICES leaves");
ABSL_FLAG(double, gpu_memory_fraction, 0.9,
          "part of the GPU's memory that weights, keys and values and all else may take together, "
          "above 0 to 1; what others have taken already is left alone");
ABSL_FLAG(std::string, cuda_module, "",
          "libtlm_cuda.so; empty = beside the program, or ../lib/tlm from there");
ABSL_FLAG(bool, cuda_graphs, true, "record the kernels of steps that recur and replay them");
ABSL_FLAG(bool, cuda_overlap, true, "let a kernel begin before the one before it ends");
ABSL_FLAG(bool, cuda_library, true,
          "cuBLASLt for large products, where it gives the same bits as the program's own kernels");
ABSL_FLAG(
    std::optional<int64_t>, max_batch_tokens, std::nullopt,
    "tokens computed in one step, prefill and decode together, 1 to 65536; 512 on the CPU and "
    "8192 on a GPU if not given");
ABSL_FLAG(int64_t, max_prefill_tokens, 0,
          "of those, tokens of prompts, over all requests, at most max_batch_tokens; 0 = "
          "max_batch_tokens");
ABSL_FLAG(double, max_decode_stretch, 2.0,
          "while streams run, a step gets so few prompt tokens that it takes about this many times "
          "as long as without any, 1 to 1000; 0 = no such bound");
ABSL_FLAG(int64_t, short_prompt_tokens, 256,
          "prompts of at most so many tokens that are not in the prefix cache are not held back by "
          "max_decode_stretch, 0 to 2^24; 0 = all are");
ABSL_FLAG(bool, prefix_cache, true,
          "keep the keys and values of what was computed, for later prompts that begin alike");
ABSL_FLAG(std::optional<int64_t>, max_running_requests, std::nullopt,
          "sequences computed at once, 1 to 4096; 64 on the CPU and 256 on a GPU if not given");
ABSL_FLAG(int64_t, max_queued_requests, 1024, "requests that may wait, 1 to 1048576");
ABSL_FLAG(int64_t, max_queued_tokens, 1 << 20, "prompt tokens that may wait, 1 to 2^40");
ABSL_FLAG(absl::Duration, max_queue_time, absl::Seconds(30),
          "requests that would wait longer than this for their first step, by the measured rates, "
          "are refused at once, as 30s or 2m; inf = no such bound");
ABSL_FLAG(
    tlm::ByteSize, kv_cache_bytes, {},
    "memory for keys and values, in bytes or as 512MiB, 8GiB; 0 = on a GPU what "
    "gpu_memory_fraction leaves, on the CPU enough for max_running_requests full contexts, at "
    "most a quarter of the memory");
ABSL_FLAG(
    std::string, kv_cache_dtype, "auto",
    "elements of keys and values: float32, bfloat16, float16, or auto for the type of the "
    "activations on a GPU, and on the CPU the type of 16-bit weights, bfloat16 with int8 weights "
    "and float32 otherwise; float32 takes twice the memory of 16 bits and loses no precision");
ABSL_FLAG(int64_t, max_context, 0,
          "tokens of prompt and output together; 0 = as many as the model takes");

namespace tlm {
namespace {

constexpr double kMaxDecodeStretch = 1000;
constexpr int64_t kMaxBatchTokens = 65536;
constexpr int64_t kMaxRunningRequests = 4096;
// Flags whose values nobody may read back: there is none yet.
constexpr std::span<const std::string_view> kSecretFlags;

absl::StatusOr<BackendKind> BackendFromName(const std::string& name) {
  if (name == "auto") return BackendKind::kAuto;
  if (name == "cpu") return BackendKind::kCpu;
  if (name == "cuda") return BackendKind::kCuda;
  return InvalidArgument("--backend is {}, it may be auto, cpu or cuda", name);
}

absl::StatusOr<WeightsInit> InitFromName(const std::string& name) {
  if (name == "files") return WeightsInit::kFiles;
  if (name == "random") return WeightsInit::kRandom;
  return InvalidArgument("--init is {}, it may be files or random", name);
}

absl::StatusOr<bool> SamplingDefaultsFromName(const std::string& name) {
  if (name == "model" || name == "neutral") return name == "model";
  return InvalidArgument("--sampling_defaults is {}, it may be model or neutral", name);
}

absl::StatusOr<std::optional<DType>> KvCacheDTypeFromName(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return InvalidArgument("--kv_cache_dtype is {}, it may be auto, float32, bfloat16 or float16",
                         name);
}

// Which model, and what its weights are.
absl::Status ReadModelOptions(ServerOptions* options) {
  options->model_dir = absl::GetFlag(FLAGS_model);
  options->preset = absl::GetFlag(FLAGS_preset);
  TLM_ASSIGN_OR_RETURN(options->init, InitFromName(absl::GetFlag(FLAGS_init)));
  const std::optional<uint64_t> seed = absl::GetFlag(FLAGS_seed);
  const std::optional<std::string> dtype = absl::GetFlag(FLAGS_weights_dtype);
  if (options->model_dir.empty() && options->preset.empty()) {
    return InvalidArgument("--model=DIR or --preset=NAME is required");
  }
  if (!options->model_dir.empty() && !options->preset.empty()) {
    return InvalidArgument("--model and --preset exclude each other");
  }
  if (!options->preset.empty()) TLM_RETURN_IF_ERROR(PresetConfig(options->preset).status());
  if (options->init == WeightsInit::kFiles) {
    if (!options->preset.empty()) {
      return InvalidArgument("--preset={} has no weights: add --init=random, or give --model=DIR",
                             options->preset);
    }
    if (seed.has_value()) return InvalidArgument("--seed={} needs --init=random", *seed);
    if (dtype.has_value()) {
      return InvalidArgument("--weights_dtype={} needs --init=random: files say their own type",
                             *dtype);
    }
  }
  options->seed = seed.value_or(0);
  const absl::StatusOr<WeightFormat> weights = WeightFormatFromName(absl::GetFlag(FLAGS_weights));
  if (!weights.ok()) {
    return InvalidArgument("--weights {}", std::string(weights.status().message()));
  }
  options->weights = *weights;
  if (!dtype.has_value()) return absl::OkStatus();
  const absl::StatusOr<DType> named = WeightsDTypeFromName(*dtype);
  if (!named.ok()) {
    return InvalidArgument("--weights_dtype {}", std::string(named.status().message()));
  }
  options->weights_dtype = *named;
  return absl::OkStatus();
}

absl::Status ReadBackendOptions(ServerOptions* options) {
  TLM_ASSIGN_OR_RETURN(options->backend, BackendFromName(absl::GetFlag(FLAGS_backend)));
  options->threads = absl::GetFlag(FLAGS_threads);
  options->isa = absl::GetFlag(FLAGS_isa);
  options->pin_threads = absl::GetFlag(FLAGS_pin_threads);
  options->cuda = {.device = absl::GetFlag(FLAGS_gpu_device),
                   .graphs = absl::GetFlag(FLAGS_cuda_graphs),
                   .overlap = absl::GetFlag(FLAGS_cuda_overlap),
                   .library = absl::GetFlag(FLAGS_cuda_library)};
  options->cuda_module = absl::GetFlag(FLAGS_cuda_module);
  const double fraction = absl::GetFlag(FLAGS_gpu_memory_fraction);
  options->gpu_memory_fraction = fraction;
  TLM_RETURN_IF_ERROR(CheckRange("threads", options->threads, 0, 1024));
  if (options->isa != kBestIsa && !IsaFromName(options->isa).has_value()) {
    return InvalidArgument(
        "--isa is '{}', it may be auto, portable, avx2, avx512, avx512_bf16 or amx_bf16",
        options->isa);
  }
  TLM_RETURN_IF_ERROR(CheckRange("gpu_device", options->cuda.device, 0, 1023));
  // Written so that NaN is out of range.
  if (!(fraction > 0 && fraction <= 1)) {
    return InvalidArgument("--gpu_memory_fraction is {}, the range is (0, 1]", fraction);
  }
  return absl::OkStatus();
}

// Sizes that a backend chooses where they are not given.
absl::Status ReadStepSizes(ServerOptions* options) {
  const std::optional<int64_t> tokens = absl::GetFlag(FLAGS_max_batch_tokens);
  const std::optional<int64_t> requests = absl::GetFlag(FLAGS_max_running_requests);
  TLM_RETURN_IF_ERROR(CheckRange("max_batch_tokens", tokens.value_or(1), 1, kMaxBatchTokens));
  TLM_RETURN_IF_ERROR(
      CheckRange("max_running_requests", requests.value_or(1), 1, kMaxRunningRequests));
  options->max_batch_tokens = tokens.value_or(0);
  options->max_running_requests = requests.value_or(0);
  options->max_prefill_tokens = absl::GetFlag(FLAGS_max_prefill_tokens);
  TLM_RETURN_IF_ERROR(CheckRange("max_prefill_tokens", options->max_prefill_tokens, 0,
                                 tokens.value_or(kMaxBatchTokens)));
  if (options->max_prefill_tokens == 0) options->max_prefill_tokens = options->max_batch_tokens;
  return absl::OkStatus();
}

// How the engine divides its steps, and how long it lets requests wait.
absl::Status ReadSchedulingOptions(ServerOptions* options) {
  options->prefix_cache = absl::GetFlag(FLAGS_prefix_cache);
  options->max_decode_stretch = absl::GetFlag(FLAGS_max_decode_stretch);
  options->short_prompt_tokens = absl::GetFlag(FLAGS_short_prompt_tokens);
  options->max_queue_time = absl::GetFlag(FLAGS_max_queue_time);
  TLM_RETURN_IF_ERROR(
      CheckRange("short_prompt_tokens", options->short_prompt_tokens, 0, int64_t{1} << 24));
  const double stretch = options->max_decode_stretch;
  // Written so that NaN is out of range.
  if (!(stretch == 0 || (stretch >= 1 && stretch <= kMaxDecodeStretch))) {
    return InvalidArgument("--max_decode_stretch is {}, it may be 0 or in [1, {}]", stretch,
                           kMaxDecodeStretch);
  }
  if (options->max_queue_time <= absl::ZeroDuration()) {
    return InvalidArgument("--max_queue_time is {}, it must be positive; inf is no bound",
                           absl::FormatDuration(options->max_queue_time));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const ServerOptions& options) {
  TLM_RETURN_IF_ERROR(CheckRange("max_queued_requests", options.max_queued_requests, 1, 1 << 20));
  TLM_RETURN_IF_ERROR(
      CheckRange("max_queued_tokens", options.max_queued_tokens, 1, int64_t{1} << 40));
  return CheckRange("max_context", options.max_context, 0, int64_t{1} << 24);
}

}  // namespace

absl::StatusOr<ServerOptions> ParseOptions(int argc, char** argv) {
  const std::vector<char*> positional = ParseFlags(argc, argv);
  if (positional.size() > 1) {
    return InvalidArgument("unexpected argument '{}': flags are written --name=value",
                           positional[1]);
  }
  ServerOptions options;
  TLM_RETURN_IF_ERROR(ReadModelOptions(&options));
  TLM_ASSIGN_OR_RETURN(options.model_sampling_defaults,
                       SamplingDefaultsFromName(absl::GetFlag(FLAGS_sampling_defaults)));
  TLM_RETURN_IF_ERROR(ReadBackendOptions(&options));
  TLM_RETURN_IF_ERROR(ReadStepSizes(&options));
  options.max_queued_requests = absl::GetFlag(FLAGS_max_queued_requests);
  options.max_queued_tokens = absl::GetFlag(FLAGS_max_queued_tokens);
  options.kv_cache_bytes = absl::GetFlag(FLAGS_kv_cache_bytes).bytes;
  TLM_ASSIGN_OR_RETURN(options.kv_cache_dtype,
                       KvCacheDTypeFromName(absl::GetFlag(FLAGS_kv_cache_dtype)));
  options.max_context = absl::GetFlag(FLAGS_max_context);
  TLM_RETURN_IF_ERROR(CheckOptions(options));
  TLM_RETURN_IF_ERROR(ReadSchedulingOptions(&options));
  TLM_ASSIGN_OR_RETURN(options.service, ReadServiceOptions());
  options.flags = FlagValues(kSecretFlags);
  return options;
}

ServerOptions WithStepSizes(ServerOptions options, const DeviceInfo& device) {
  const bool gpu = !device.host_addressable;
  if (options.max_batch_tokens == 0) options.max_batch_tokens = gpu ? 8192 : 512;
  if (options.max_running_requests == 0) options.max_running_requests = gpu ? 256 : 64;
  if (options.max_prefill_tokens == 0) options.max_prefill_tokens = options.max_batch_tokens;
  options.max_prefill_tokens = std::min(options.max_prefill_tokens, options.max_batch_tokens);
  return options;
}

}  // namespace tlm
