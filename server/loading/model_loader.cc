#include "server/loading/model_loader.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "model/backend/backend.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/weights/host_memory.h"
#include "server/loading/calibration.h"
#include "server/loading/draft_check.h"
#include "server/loading/memory_plan.h"
#include "server/loading/tokenizer_assets.h"
#include "server/net/heap.h"
#include "server/serving/build_info.h"

namespace tlm {
namespace {

void TakeTokenizerAssets(TokenizerAssets assets, const OpenedModel& model, LoadedModel& loaded) {
  loaded.tokenizer = std::move(assets.tokenizer);
  loaded.chat = std::move(assets.chat);
  ServedModel& served = loaded.served;
  served.tokenizer = loaded.tokenizer.get();
  served.tokenizer_sha256 = std::move(assets.tokenizer_sha256);
  served.chat = loaded.chat.get();
  served.chat_sha256 = std::move(assets.chat_sha256);
  served.chat_format = std::move(assets.chat_format);
  served.default_sampling = assets.sampling;
  if (served.tokenizer == nullptr) return;
  const auto read = model.files->is_gguf() ? ReadGgufTokenizerFiles : ReadTokenizerFiles;
  served.tokenizer_files = [read, path = model.files->path(), tokenizer = served.tokenizer_sha256,
                            chat = served.chat_sha256] { return read(path, tokenizer, chat); };
}

void FillLimits(const ServerOptions& options, const BatchLimits& batch, RequestLimits& limits) {
  limits.max_context_tokens = batch.max_context;
  limits.engine = options.engine;
  limits.constraint.max_compile_time = options.max_constraint_time;
  limits.max_num_sequences = std::min(limits.max_num_sequences, limits.engine.max_running_requests);
}

void FillMemory(const TransformerLM& model, const Device& device, ServedMemory& memory) {
  const auto bytes = device.AllocatedBytes();
  const auto of = [&](MemoryPurpose purpose) { return bytes[static_cast<size_t>(purpose)]; };
  for (const auto& [dtype, weight_bytes] : model.WeightBytes()) {
    memory.weights.emplace_back(dtype, weight_bytes);
  }
  memory.kv_bytes_per_token = model.kv_shape().bytes_per_token();
  memory.kv_dtype = model.kv_shape().dtype;
  memory.kv_blocks = static_cast<uint64_t>(model.num_kv_blocks());
  memory.activations = of(MemoryPurpose::kActivations);
  memory.logits = of(MemoryPurpose::kLogits);
  memory.runtime = of(MemoryPurpose::kRuntime);
  memory.device_total = device.info().total_bytes;
  memory.graphs = [&device] {
    return uint64_t{device.AllocatedBytes()[static_cast<size_t>(MemoryPurpose::kGraphs)]};
  };
}

absl::StatusOr<DType> KvType(const ServerOptions& options, DType weights, const Ops& ops,
                             const DeviceInfo& device) {
  const DType own = ops.DefaultKvType(weights);
  const DType asked = options.kv_cache_dtype.value_or(own);
  if (ops.TakesKvType(weights, asked)) return asked;
  return InvalidArgument("--kv_cache_dtype asks for {}; backend {} takes {} with weights of {}",
                         KvDTypeName(asked), device.backend, KvDTypeName(own), DTypeName(weights));
}

// `source` and `ops` outlive the result.
absl::StatusOr<MemoryNeeds> NeedsOf(const ServerOptions& options, const ModelSource& source,
                                    WeightFormat format, Ops& ops) {
  const DeviceInfo& device = ops.device().info();
  TLM_RETURN_IF_ERROR(source.CheckFormat(format));
  if (BlockTypeOf(format).has_value() && !ops.TakesWeights(format)) {
    return Unimplemented("--weights={} is not there yet on backend {}; --backend=cpu has it",
                         WeightFormatName(format), device.backend);
  }
  const PackingPlan weights = source.PackingFor(format, ops);
  TLM_ASSIGN_OR_RETURN(const DType kv, KvType(options, weights.matrix_type, ops, device));
  return MemoryNeeds{.weights = weights,
                     .workspace =
                         [&source, &ops, type = weights.matrix_type](const BatchLimits& limits) {
                           return TransformerLM::WorkspaceBytes(source.config(), limits, type, ops);
                         },
                     .kv = TransformerLM::KvShapeFor(source.config(), kv)};
}

// A draft model before its weights are read.
struct Draft {
  ModelSource source;
  MemoryPlan plan;
};

absl::StatusOr<std::optional<Draft>> OpenDraft(const ServerOptions& options,
                                               const std::optional<OpenedModel>& draft, Ops& ops) {
  if (!draft.has_value()) return std::nullopt;
  if (!ops.TakesSeveralModels()) {
    return Unimplemented("--draft_model is not there yet on backend {}; --backend=cpu has it",
                         ops.device().info().backend);
  }
  TLM_ASSIGN_OR_RETURN(ModelSource source, ModelSource::Open(options, *draft));
  return Draft{.source = std::move(source), .plan = {}};
}

// Plans the model's memory, and in `draft`, if there is one, the draft model's.
absl::StatusOr<MemoryPlan> PlanFor(const ServerOptions& options, const ModelSource& source,
                                   std::optional<Draft>& draft, Ops& ops) {
  TLM_ASSIGN_OR_RETURN(const MemoryNeeds needs, NeedsOf(options, source, options.weights, ops));
  const DeviceInfo& device = ops.device().info();
  const uint64_t available = AvailableHostMemory();
  if (!draft.has_value()) {
    return PlanMemory(options, source.config(), needs, device, available);
  }
  // A draft model that the format would quantise again is served as it is.
  const bool fits = draft->source.CheckFormat(options.weights).ok();
  absl::StatusOr<MemoryNeeds> draft_needs =
      NeedsOf(options, draft->source, fits ? options.weights : WeightFormat::kAsGiven, ops);
  if (!draft_needs.ok()) {
    return WithContext(draft_needs.status(), "--draft_model=" + options.draft_model);
  }
  const DraftNeeds both{.memory = *std::move(draft_needs),
                        .context_length = draft->source.config().context_length};
  TLM_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       PlanMemory(options, source.config(), needs, device, available, &both));
  draft->plan = PlanDraft(plan, both);
  return plan;
}

// The parts of loading the weights that go into the fingerprint.
struct WeightsRecord {
  std::string identity;
  DType kv_dtype = DType::kF32;
  std::string calibration;  // see StoredTypes
};

// Copies the weights to the device and computes their identity.
absl::StatusOr<WeightsRecord> ReadWeights(const ServerOptions& options, const MemoryPlan& plan,
                                          const Calibration& calibration, ModelSource& source,
                                          LoadedModel& loaded) {
  const bool on_host = loaded.ops->device().info().host_addressable;
  FillLimits(options, plan.batch, loaded.served.limits);
  const ModelWeights weights =
      source.Weights({.by_packer_alone = on_host, .checks_finite = loaded.ops->ChecksFinite()});
  // On the host, packing needs all threads and has hashed the packed bytes when it ends; on the way
  // to a GPU there is time for hashing meanwhile.
  std::future<absl::StatusOr<std::string>> identity =
      std::async(on_host ? std::launch::deferred : std::launch::async | std::launch::deferred,
                 [&source] { return source.WeightsIdentity(); });
  TLM_ASSIGN_OR_RETURN(
      loaded.model,
      TransformerLM::Load(source.config(), weights, *loaded.ops, plan.batch,
                          {.num_blocks = plan.kv_blocks, .dtype = plan.kv_dtype}, plan.weights,
                          calibration.importance.has_value() ? &*calibration.importance : nullptr));
  WeightsRecord record;
  record.kv_dtype = plan.kv_dtype;
  record.calibration = calibration.text_sha256;
  TLM_ASSIGN_OR_RETURN(record.identity, identity.get());
  return record;
}

absl::StatusOr<WeightsRecord> LoadWeights(const ServerOptions& options, const MemoryPlan& plan,
                                          const Calibration& calibration, ModelSource& source,
                                          LoadedModel& loaded) {
  absl::StatusOr<WeightsRecord> record = ReadWeights(options, plan, calibration, source, loaded);
  TLM_RETURN_IF_ERROR(source.WithFile(record.status()));
  return record;
}

uint64_t AllocatedBytes(const Device& device) {
  const auto bytes = device.AllocatedBytes();
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

// Loads the draft model after the model, on the same threads.
absl::Status LoadDraft(Draft draft, LoadedModel& loaded) {
  Ops& ops = *loaded.ops;
  const uint64_t before = AllocatedBytes(ops.device());
  const ModelConfig& config = draft.source.config();
  const ModelWeights weights = draft.source.Weights({.checks_finite = ops.ChecksFinite()});
  auto model = TransformerLM::Load(
      config, weights, ops, draft.plan.batch,
      {.num_blocks = draft.plan.kv_blocks, .dtype = draft.plan.kv_dtype}, draft.plan.weights);
  TLM_RETURN_IF_ERROR(draft.source.WithFile(model.status()));
  loaded.draft_model = *std::move(model);
  loaded.served.draft_model = draft.source.name();
  loaded.served.memory.draft_model = AllocatedBytes(ops.device()) - before;
  spdlog::info("draft model {}: {} layers, {} KV blocks, {}", Quoted(draft.source.name()),
               config.num_layers, draft.plan.kv_blocks,
               HumanBytes(static_cast<uint64_t>(loaded.served.memory.draft_model)));
  return absl::OkStatus();
}

absl::StatusOr<WeightsRecord> LoadModels(const ServerOptions& options,
                                         const Calibration& calibration, ModelSource& source,
                                         std::optional<Draft> draft, LoadedModel& loaded) {
  TLM_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanFor(options, source, draft, *loaded.ops));
  TLM_ASSIGN_OR_RETURN(WeightsRecord weights,
                       LoadWeights(options, plan, calibration, source, loaded));
  FillMemory(*loaded.model, loaded.ops->device(), loaded.served.memory);
  if (draft.has_value()) TLM_RETURN_IF_ERROR(LoadDraft(*std::move(draft), loaded));
  return weights;
}

// Sets the fingerprint of everything loaded; the hash of the files follows later.
absl::Status Identify(const ServerOptions& options, const WeightsRecord& weights,
                      ModelSource& source, LoadedModel& loaded) {
  ServedModel& served = loaded.served;
  const DeviceInfo& device = loaded.ops->device().info();
  TLM_ASSIGN_OR_RETURN(const BuildInfo build, ReadBuildInfo(device.backend));
  served.build_id = build.build_id;
  TLM_ASSIGN_OR_RETURN(served.fingerprint, FingerprintOf(served, weights.identity, build, device,
                                                         {.weights = options.weights,
                                                          .kv = weights.kv_dtype,
                                                          .calibration = weights.calibration}));
  if (std::optional<Checkpoint> files = source.TakeCheckpoint()) {
    loaded.hash = std::make_unique<WeightsSha256>(*std::move(files));
    served.weights_sha256 = [hash = loaded.hash.get()] { return hash->Get(); };
  }
  return absl::OkStatus();
}

// Returns the directory, for others that read the tokenizer themselves.
std::string DirectoryOf(const ServerOptions& options) {
  if (!options.preset.empty()) return "";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(options.model_dir, error);
  return error ? options.model_dir : path.lexically_normal().string();
}

}  // namespace

absl::StatusOr<OpenedModels> OpenModels(const ServerOptions& options) {
  OpenedModels opened;
  TLM_ASSIGN_OR_RETURN(opened.model, OpenModel(options));
  TLM_RETURN_IF_ERROR(CheckContext(options, opened.model.config));
  if (options.draft_model.empty()) return opened;
  TLM_ASSIGN_OR_RETURN(opened.draft, OpenModel(DraftOptions(options), kDraftModelFlag));
  TLM_RETURN_IF_ERROR(CheckDraftConfig(options, opened.model.config, opened.draft->config));
  return opened;
}

absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options, OpenedModels opened) {
  LoadedModel loaded;
  ServedModel& served = loaded.served;
  TLM_ASSIGN_OR_RETURN(ModelSource source, ModelSource::Open(options, opened.model));
  served.model_id = source.name();
  served.directory = DirectoryOf(options);
  served.server_version = TLM_VERSION;
  served.config = source.config();
  // Loaded in parallel, because a large vocabulary takes as long as the weights. Every way out
  // waits for it.
  std::future<absl::StatusOr<TokenizerAssets>> assets =
      std::async(std::launch::async | std::launch::deferred, [&options, &opened] {
        auto loaded_assets = LoadTokenizerAssets(options, opened.model);
        TrimHeap();  // now, so that its freed memory is not retained while the last weights load
        return loaded_assets;
      });
  TLM_ASSIGN_OR_RETURN(Backend backend, CreateBackend({.kind = options.backend,
                                                       .threads = options.threads,
                                                       .isa = options.isa,
                                                       .pin_threads = options.pin_threads,
                                                       .cuda = options.cuda,
                                                       .cuda_module = options.cuda_module}));
  loaded.backend_reason = backend.reason;
  if (!backend.detail.empty()) spdlog::debug("not cuda: {}", backend.detail);
  loaded.ops = std::move(backend.ops);
  const Device& device = loaded.ops->device();
  const auto take_assets = [&]() -> absl::Status {
    TLM_ASSIGN_OR_RETURN(TokenizerAssets taken, assets.get());
    TakeTokenizerAssets(std::move(taken), opened.model, loaded);
    if (!opened.draft.has_value()) return absl::OkStatus();
    return CheckDraftTokenizer(options, loaded.tokenizer.get(), *opened.draft->files);
  };
  TLM_ASSIGN_OR_RETURN(std::optional<Draft> draft, OpenDraft(options, opened.draft, *loaded.ops));
  const bool reads_text = draft.has_value() || !options.calibration.empty();
  if (reads_text) TLM_RETURN_IF_ERROR(take_assets());
  TLM_ASSIGN_OR_RETURN(const Calibration calibration,
                       Calibrate(options, opened.model, loaded.tokenizer.get(), *loaded.ops));
  TLM_ASSIGN_OR_RETURN(const WeightsRecord weights,
                       LoadModels(WithStepSizes(options, device.info()), calibration, source,
                                  std::move(draft), loaded));
  if (!reads_text) TLM_RETURN_IF_ERROR(take_assets());
  served.tensors = source.Tensors(options.weights, *loaded.ops);
  // Returns memory that only loading needed to the system.
  TrimHeap();
  TLM_RETURN_IF_ERROR(Identify(options, weights, source, loaded));
  served.backend = device.info().backend;
  served.device_name = device.info().name;
  served.device_uuid = device.info().uuid;
  served.invariance_fault = device.info().invariance_fault;
  if (const std::string report = loaded.ops->Report(); !report.empty()) {
    loaded.backend_reason += "; " + report;
  }
  return loaded;
}

}  // namespace tlm
