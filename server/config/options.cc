#include "server/config/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/chat/chat_format.h"
#include "model/config/presets.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/weights/model_weights.h"
#include "server/config/flag_types.h"
#include "server/config/model_argument.h"

ABSL_FLAG(std::string, model, "",
          "model directory: config.json, model.safetensors (or shards with their index), and "
          "optionally tokenizer.json; or a GGUF file, the first of several. The argument MODEL is "
          "the same. Set it to serve trained weights; this or --preset is required");
ABSL_FLAG(std::string, preset, "",
          "a published configuration in place of a directory, with --random_weights: gpt2-xl, "
          "qwen3-8b, ...; an unknown name lists them. Set it to measure speed and memory of a "
          "model before you download it");
ABSL_FLAG(
    std::string, random_weights, "",
    "SEED or SEED:TYPE: random weights in place of those in files; the model directory then needs "
    "only a config.json. Equal seeds give equal weights. TYPE is float32, bfloat16 or float16; "
    "default: the type in config.json. Set it to measure a model whose weights you do not have");
ABSL_FLAG(std::string, weights, "auto",
          "type of the matrices in memory. auto: as in the checkpoint. int8: 8-bit integers with a "
          "scale per 256 inputs of an output, about half the memory of 16-bit weights. int4: 4 "
          "bits with a scale per 32 inputs in feed-forward networks, int8 elsewhere. int4:32, "
          "int4:64, int4:128 or int4:256: 4 bits everywhere with a scale per 32, 64, 128 or 256 "
          "inputs, about a third. Integers are made at start from a checkpoint that is not "
          "quantised yet; they are faster and lose some precision. float32: exact products without "
          "rounding of activations, from any checkpoint. Set int8 or int4 when memory or its "
          "bandwidth is the limit, float32 to compare with a reference");
ABSL_FLAG(
    std::string, calibration, "",
    "a text, at most 1 MiB of UTF-8, that resembles the expected prompts: with --weights=int4 the "
    "unquantised model reads it first, and scales are chosen for the inputs that are large there. "
    "At start this takes the memory of the unquantised model and the time of a prompt of that "
    "length. Set it when --weights=int4 loses too much precision");
ABSL_FLAG(
    std::string, draft_model, "",
    "a smaller model with the same tokenizer, as --model takes it (CPU only): it guesses the next "
    "tokens of outputs, which the model then computes in one step where that is faster; tokens "
    "stay the same. Its matrices have the type of --weights, or their own if they are quantised "
    "already. Set it when few streams run at once and a small model of the same family exists");
ABSL_FLAG(
    std::string, speculation, "auto",
    "guess the next tokens of outputs and compute several in one step: auto where that is expected "
    "to be faster, or off; tokens are the same. Set off when streams must flow evenly, as for "
    "speech");
ABSL_FLAG(std::string, sampling_defaults, "model",
          "sampling parameters of requests that leave them unset: model for those of "
          "generation_config.json or the GGUF file, or neutral for temperature 1 and no "
          "truncation. Set neutral for evaluations, and when clients expect OpenAI's defaults");
ABSL_FLAG(std::string, tool_format, "auto",
          "how the model writes calls of tools: auto detects it from the chat template, none, or "
          "the name of a format: hermes, llama3_json, ...; an unknown name lists them. Set it when "
          "tlm info shows the wrong format or none");
ABSL_FLAG(std::string, reasoning_format, "auto",
          "how the model marks its reasoning: auto detects it from the chat template, none, or the "
          "name of a format: think, harmony, ...; an unknown name lists them. Set it when tlm info "
          "shows the wrong format or none");
ABSL_FLAG(std::string, backend, "auto",
          "cpu, cuda, or auto for cuda where it works and cpu elsewhere. Set cuda when a server "
          "without its GPU must not start, cpu when the GPU is for other programs");
ABSL_FLAG(int, threads, 0,
          "threads of the CPU backend, 0 to 1024; 0 = all processors. Set it when other programs "
          "use the same processors");
ABSL_FLAG(std::string, isa, "auto",
          "instruction set of the CPU backend: portable, avx2, avx512, avx512_bf16, amx_bf16, or "
          "auto for the last of these that the machine supports. Set it when replicas on different "
          "processors must have the same fingerprint");
ABSL_FLAG(std::string, gpu_device, "",
          "the GPU, of those that CUDA_VISIBLE_DEVICES leaves: its number from 0, or its UUID as "
          "nvidia-smi -L prints it, GPU-... or MIG-..., or the beginning of one; empty = the "
          "first, and --backend=auto may choose the CPU instead. Set it when a machine has several "
          "GPUs, each for a server of its own");
ABSL_FLAG(double, gpu_memory_fraction, 0.9,
          "the fraction of the GPU's memory that the server may use, above 0 to 1: weights, KV "
          "cache and everything else together. It never uses more than is free when it starts. Set "
          "it when other programs share the GPU");
ABSL_FLAG(std::string, cuda_module, "",
          "path of libtlm_cuda.so; empty = beside the program, or in ../lib/tlm from there. Set it "
          "when the file is installed elsewhere");
ABSL_FLAG(std::vector<std::string>, debug_disable, {},
          "optimisations to turn off, separated by commas: pinning (of threads to processors), "
          "cuda_graphs, cuda_overlap (a kernel begins "
          "before the previous one ends), cuda_library (cuBLASLt). Set pinning when other programs "
          "compute on the same processors, the others to find out which of them causes a fault");
ABSL_FLAG(std::optional<int64_t>, max_batch_tokens, std::nullopt,
          "tokens of a step, prefill and decode together, 1 to 65536; default: 512 on the CPU, "
          "8192 on a GPU. Set it higher when first tokens come late, lower when streams stutter");
ABSL_FLAG(double, max_decode_stretch, 2.0,
          "while streams run, a step has so few prompt tokens that it takes at most about this "
          "many times as long as without any, 1 to 1000; 0 = no bound. Prompts of at most 256 "
          "tokens that are not in the prefix cache are exempt. Set it higher when first tokens "
          "come late, lower when streams stutter");
ABSL_FLAG(
    bool, prefix_cache, true,
    "keep keys and values of earlier requests for later prompts with the same prefix. Set false "
    "where callers of one tenant must not learn from times what others have sent");
ABSL_FLAG(std::optional<int64_t>, max_running_requests, std::nullopt,
          "running sequences, 1 to 4096; default: 64 on the CPU, 256 on a GPU. Set it lower when "
          "streams are too slow or sequences are preempted, higher when memory is left");
ABSL_FLAG(int64_t, max_queued_requests, 1024,
          "waiting requests, 1 to 1048576; their prompts have at most 1024 tokens each on average, "
          "or 2^20 together if that is more. Set it higher for batch jobs that submit all requests "
          "at once");
ABSL_FLAG(absl::Duration, max_queue_time, absl::Seconds(30),
          "requests that would wait longer than this for their first step, by the measured rates, "
          "are refused at once; such as 30s or 2m; inf = no bound. Set it to what interactive "
          "clients tolerate, inf for batch jobs");
ABSL_FLAG(
    absl::Duration, max_constraint_time, tlm::ConstraintLimits().max_compile_time,
    "processor time to compile the constraint of a request (a JSON Schema, a grammar), 1ms to 10s; "
    "one that takes longer is refused. Set it higher when trusted clients have larger schemas");
ABSL_FLAG(
    tlm::ByteSize, kv_cache_bytes, {},
    "memory of the KV cache, in bytes or as 512MiB, 8GiB; 0 = on a GPU what --gpu_memory_fraction "
    "leaves, on the CPU enough for --max_running_requests full contexts, at most a quarter of the "
    "memory. The KV cache of a draft model is part of it. Set it higher when sequences are "
    "preempted, lower when the process exceeds its memory limit");
ABSL_FLAG(std::string, kv_cache_dtype, "auto",
          "type of keys and values: float32, bfloat16, float16, fp8, or auto: on a GPU the type of "
          "the activations, on the CPU the type of 16-bit weights, bfloat16 with quantised weights "
          "and float32 otherwise; float32 takes twice the memory of 16 bits and loses no "
          "precision; fp8 (E4M3 with a scale per token and head) takes half and loses some. Set "
          "fp8 when the KV cache holds too few sequences");
ABSL_FLAG(int64_t, max_context, 0,
          "tokens of prompt and output together; 0 = the model's maximum. Set it when requests are "
          "shorter than that, to bound their memory and endless outputs");

namespace tlm {
namespace {

constexpr double kMaxDecodeStretch = 1000;
constexpr int64_t kMaxBatchTokens = 65536;
constexpr int64_t kMaxRunningRequests = 4096;
constexpr int64_t kMaxQueuedRequests = 1 << 20;
constexpr int64_t kQueuedTokensPerRequest = 1024;
// The flags whose values GetConfig masks; there are none yet.
constexpr std::span<const std::string_view> kSecretFlags;

absl::StatusOr<BackendKind> BackendFromName(const std::string& name) {
  if (name == "auto") return BackendKind::kAuto;
  if (name == "cpu") return BackendKind::kCpu;
  if (name == "cuda") return BackendKind::kCuda;
  return InvalidArgument("--backend is {}, it may be auto, cpu or cuda", name);
}

absl::StatusOr<bool> SamplingDefaultsFromName(const std::string& name) {
  if (name == "model" || name == "neutral") return name == "model";
  return InvalidArgument("--sampling_defaults is {}, it may be model or neutral", name);
}

absl::Status CheckFormatName(std::string_view flag, const std::string& name,
                             const std::vector<std::string_view>& names) {
  if (name == "auto" || name == "none" || std::ranges::find(names, name) != names.end()) {
    return absl::OkStatus();
  }
  return InvalidArgument("--{} is {}, it may be auto, none, {}", flag, Quoted(name),
                         fmt::join(names, ", "));
}

absl::Status ReadChatFormats(ServerOptions* options) {
  options->tool_format = absl::GetFlag(FLAGS_tool_format);
  options->reasoning_format = absl::GetFlag(FLAGS_reasoning_format);
  TLM_RETURN_IF_ERROR(CheckFormatName("tool_format", options->tool_format, ToolFormatNames()));
  return CheckFormatName("reasoning_format", options->reasoning_format, ReasoningFormatNames());
}

absl::StatusOr<std::optional<DType>> KvCacheDTypeFromName(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (const std::optional<DType> dtype = KvDTypeFromName(name)) return dtype;
  std::string names = "auto";
  for (const KvDType& type : kKvDTypes) absl::StrAppend(&names, ", ", type.name);
  return InvalidArgument("--kv_cache_dtype is {}, it may be {}", Quoted(name), names);
}

// Parses "SEED" or "SEED:TYPE".
absl::StatusOr<RandomInit> ParseRandomWeights(const std::string& text) {
  RandomInit weights;
  const size_t colon = text.find(':');
  if (!absl::SimpleAtoi(text.substr(0, colon), &weights.seed)) {
    return InvalidArgument("--random_weights is {}, it must be a seed of 64 bits, or SEED:TYPE",
                           Quoted(text));
  }
  if (colon == text.npos) return weights;
  const absl::StatusOr<DType> dtype = WeightsDTypeFromName(text.substr(colon + 1));
  if (!dtype.ok()) {
    return InvalidArgument("--random_weights: the type {}", std::string(dtype.status().message()));
  }
  weights.dtype = *dtype;
  return weights;
}

// Without any argument the model is the bundled one. `name` is the program's, as it was called.
void TakeBundledModel(std::string_view name, ServerOptions* options) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  const std::optional<std::string> model = FindBundledModel(program);
  if (!model.has_value()) return;
  absl::SetFlag(&FLAGS_model, *model);
  const std::string_view folder = name.substr(0, name.rfind('/') + 1);
  options->bundled_hint = fmt::format(
      "no model was named: this is the bundled one, {}. Call it by `{}tlm generate 'In the "
      "evening' --max_new_tokens=60`; `{} MODEL` serves another",
      *model, folder, name);
}

// Reads the flags of the model and its weights.
absl::Status ReadModelOptions(ServerOptions* options) {
  options->model_dir = absl::GetFlag(FLAGS_model);
  options->preset = absl::GetFlag(FLAGS_preset);
  if (options->model_dir.empty() && options->preset.empty()) {
    return InvalidArgument(
        "--model=DIR or --preset=NAME is required; only without any argument does the server take "
        "the bundled model");
  }
  if (!options->model_dir.empty() && !options->preset.empty()) {
    return InvalidArgument("--model and --preset exclude each other");
  }
  if (!options->preset.empty()) TLM_RETURN_IF_ERROR(PresetConfig(options->preset).status());
  const std::string random = absl::GetFlag(FLAGS_random_weights);
  if (!random.empty()) {
    TLM_ASSIGN_OR_RETURN(options->random_weights, ParseRandomWeights(random));
  } else if (!options->preset.empty()) {
    return InvalidArgument(
        "--preset={} has no weights: add --random_weights=SEED, or give "
        "--model=DIR",
        options->preset);
  }
  const absl::StatusOr<WeightFormat> weights = WeightFormatFromName(absl::GetFlag(FLAGS_weights));
  if (!weights.ok()) {
    return InvalidArgument("--weights {}", std::string(weights.status().message()));
  }
  options->weights = *weights;
  options->calibration = absl::GetFlag(FLAGS_calibration);
  if (!options->calibration.empty() && !IsInt4(options->weights)) {
    return InvalidArgument("--calibration is for --weights=int4; --weights is {}",
                           WeightFormatName(options->weights));
  }
  return absl::OkStatus();
}

absl::Status ReadSpeculation(ServerOptions* options) {
  const std::string speculation = absl::GetFlag(FLAGS_speculation);
  if (speculation != "auto" && speculation != "off") {
    return InvalidArgument("--speculation is {}, it may be auto or off", speculation);
  }
  const bool is_on = speculation == "auto";
  options->engine.speculation = is_on ? Speculation::kAuto : Speculation::kOff;
  options->draft_model = absl::GetFlag(FLAGS_draft_model);
  if (options->draft_model.empty() || is_on) return absl::OkStatus();
  return InvalidArgument("--draft_model is for --speculation=auto; --speculation is {}",
                         speculation);
}

absl::Status ReadDebugDisable(ServerOptions* options) {
  for (const std::string& name : absl::GetFlag(FLAGS_debug_disable)) {
    if (name == "pinning") {
      options->pin_threads = false;
    } else if (name == "cuda_graphs") {
      options->cuda.graphs = false;
    } else if (name == "cuda_overlap") {
      options->cuda.overlap = false;
    } else if (name == "cuda_library") {
      options->cuda.library = false;
    } else {
      return InvalidArgument(
          "--debug_disable names {}, it may name pinning, cuda_graphs, cuda_overlap and "
          "cuda_library",
          Quoted(name));
    }
  }
  return absl::OkStatus();
}

// Accepts a number, a UUID or the beginning of one; the backend checks whether the device exists.
absl::Status CheckGpuDevice(const std::string& device) {
  int64_t ordinal = 0;
  if (absl::SimpleAtoi(device, &ordinal)) return CheckRange("gpu_device", ordinal, 0, 1023);
  const std::string_view uuid = std::string_view(device).substr(std::min<size_t>(device.size(), 4));
  const bool known = device.starts_with("GPU-") || device.starts_with("MIG-");
  if (known && !uuid.empty() && uuid.size() <= 36 &&
      uuid.find_first_not_of("0123456789abcdefABCDEF-") == uuid.npos) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "--gpu_device is {}, it may be a number, or a UUID or its beginning: GPU-... or MIG-... with "
      "hexadecimal digits",
      Quoted(device));
}

// A device that is named must exist: the server does not fall back to the CPU.
absl::Status ReadGpuDevice(ServerOptions* options) {
  const std::string device = absl::GetFlag(FLAGS_gpu_device);
  if (device.empty()) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(CheckGpuDevice(device));
  if (options->backend == BackendKind::kCpu) {
    return InvalidArgument("--gpu_device={} needs a GPU; --backend is cpu", device);
  }
  options->backend = BackendKind::kCuda;
  options->cuda.device = device;
  return absl::OkStatus();
}

absl::Status ReadBackendOptions(ServerOptions* options) {
  TLM_ASSIGN_OR_RETURN(options->backend, BackendFromName(absl::GetFlag(FLAGS_backend)));
  options->threads = absl::GetFlag(FLAGS_threads);
  options->isa = absl::GetFlag(FLAGS_isa);
  options->cuda_module = absl::GetFlag(FLAGS_cuda_module);
  TLM_RETURN_IF_ERROR(ReadGpuDevice(options));
  const double fraction = absl::GetFlag(FLAGS_gpu_memory_fraction);
  options->gpu_memory_fraction = fraction;
  TLM_RETURN_IF_ERROR(CheckRange("threads", options->threads, 0, 1024));
  if (options->isa != kBestIsa && !IsaFromName(options->isa).has_value()) {
    return InvalidArgument(
        "--isa is '{}', it may be auto, portable, avx2, avx512, avx512_bf16 or amx_bf16",
        options->isa);
  }
  // This form rejects NaN.
  if (!(fraction > 0 && fraction <= 1)) {
    return InvalidArgument("--gpu_memory_fraction is {}, the range is (0, 1]", fraction);
  }
  return absl::OkStatus();
}

// Reads the sizes that the backend chooses when they are not given.
absl::Status ReadStepSizes(EngineOptions* options) {
  const std::optional<int64_t> tokens = absl::GetFlag(FLAGS_max_batch_tokens);
  const std::optional<int64_t> requests = absl::GetFlag(FLAGS_max_running_requests);
  TLM_RETURN_IF_ERROR(CheckRange("max_batch_tokens", tokens.value_or(1), 1, kMaxBatchTokens));
  TLM_RETURN_IF_ERROR(
      CheckRange("max_running_requests", requests.value_or(1), 1, kMaxRunningRequests));
  options->max_batch_tokens = tokens.value_or(0);
  options->max_running_requests = requests.value_or(0);
  return absl::OkStatus();
}

absl::Status ReadQueueSizes(EngineOptions* options) {
  const int64_t requests = absl::GetFlag(FLAGS_max_queued_requests);
  TLM_RETURN_IF_ERROR(CheckRange("max_queued_requests", requests, 1, kMaxQueuedRequests));
  options->max_queued_requests = requests;
  options->max_queued_tokens =
      std::max(options->max_queued_tokens, requests * kQueuedTokensPerRequest);
  return absl::OkStatus();
}

// Reads the flags of step scheduling and of the queue time's limit.
absl::Status ReadSchedulingOptions(EngineOptions* options) {
  options->prefix_cache = absl::GetFlag(FLAGS_prefix_cache);
  options->max_decode_stretch = absl::GetFlag(FLAGS_max_decode_stretch);
  options->max_queue_time = absl::GetFlag(FLAGS_max_queue_time);
  const double stretch = options->max_decode_stretch;
  // This form rejects NaN.
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
  const absl::Duration constraint_time = options.max_constraint_time;
  if (constraint_time < absl::Milliseconds(1) || constraint_time > absl::Seconds(10)) {
    return InvalidArgument("--max_constraint_time is {}, the range is [1ms, 10s]",
                           absl::FormatDuration(constraint_time));
  }
  return CheckRange("max_context", options.max_context, 0, int64_t{1} << 24);
}

}  // namespace

absl::StatusOr<ServerOptions> ParseOptions(int argc, char** argv) {
  TLM_ASSIGN_OR_RETURN(const std::vector<std::string> positional, ParseFlags(argc, argv));
  TLM_ASSIGN_OR_RETURN(const std::string model, ModelOf(positional, absl::GetFlag(FLAGS_model)));
  absl::SetFlag(&FLAGS_model, model);
  ServerOptions options;
  if (argc == 1) TakeBundledModel(argv[0], &options);
  TLM_RETURN_IF_ERROR(ReadModelOptions(&options));
  TLM_ASSIGN_OR_RETURN(options.model_sampling_defaults,
                       SamplingDefaultsFromName(absl::GetFlag(FLAGS_sampling_defaults)));
  TLM_RETURN_IF_ERROR(ReadChatFormats(&options));
  TLM_RETURN_IF_ERROR(ReadBackendOptions(&options));
  TLM_RETURN_IF_ERROR(ReadStepSizes(&options.engine));
  TLM_RETURN_IF_ERROR(ReadQueueSizes(&options.engine));
  options.kv_cache_bytes = absl::GetFlag(FLAGS_kv_cache_bytes).bytes;
  TLM_ASSIGN_OR_RETURN(options.kv_cache_dtype,
                       KvCacheDTypeFromName(absl::GetFlag(FLAGS_kv_cache_dtype)));
  options.max_context = absl::GetFlag(FLAGS_max_context);
  options.max_constraint_time = absl::GetFlag(FLAGS_max_constraint_time);
  TLM_RETURN_IF_ERROR(CheckOptions(options));
  TLM_RETURN_IF_ERROR(ReadSchedulingOptions(&options.engine));
  TLM_RETURN_IF_ERROR(ReadSpeculation(&options));
  TLM_ASSIGN_OR_RETURN(options.service, ReadServiceOptions());
  if (!options.service.kv_events.endpoint.empty()) {
    if (!options.engine.prefix_cache) {
      return InvalidArgument("--kv_events_endpoint needs --prefix_cache");
    }
    options.engine.kv_events.enabled = true;
  }
  TLM_RETURN_IF_ERROR(ReadDebugDisable(&options));
  options.flags = FlagValues(kSecretFlags);
  return options;
}

ServerOptions WithStepSizes(ServerOptions options, const DeviceInfo& device) {
  const bool gpu = !device.host_addressable;
  EngineOptions& engine = options.engine;
  if (engine.max_batch_tokens == 0) engine.max_batch_tokens = gpu ? 8192 : 512;
  if (engine.max_running_requests == 0) engine.max_running_requests = gpu ? 256 : 64;
  engine.max_prefill_tokens = engine.max_batch_tokens;
  return options;
}

}  // namespace tlm
