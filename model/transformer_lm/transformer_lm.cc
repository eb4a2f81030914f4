#include "model/transformer_lm/transformer_lm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/rope_table.h"
#include "model/weights/check_finite.h"

namespace tlm {
namespace {

RopePairing PairingOf(RopeLayout layout) {
  return layout == RopeLayout::kInterleaved ? RopePairing::kInterleaved : RopePairing::kHalf;
}

EpsPlacement PlacementOf(NormEps placement) {
  return placement == NormEps::kInsideRoot ? EpsPlacement::kInsideRoot : EpsPlacement::kOutsideRoot;
}

// The activation of a network without a gate.
Activation ActivationOf(FfnKind kind) {
  switch (kind) {
    case FfnKind::kSilu:
      return Activation::kSilu;
    case FfnKind::kRelu:
      return Activation::kRelu;
    case FfnKind::kGeluTanh:
      return Activation::kGeluTanh;
    case FfnKind::kGelu:
      return Activation::kGelu;
    case FfnKind::kSwiGlu:
      break;
  }
  TLM_CHECK(false);
}

absl::Status CheckAllFinite(const ModelWeights& weights) {
  for (const TensorSpec& spec : weights.specs) {
    TLM_RETURN_IF_ERROR(CheckFinite(TensorOf(spec, weights), spec.name));
  }
  return absl::OkStatus();
}

// Places rows one after the other in one buffer. Without a buffer it computes the size.
class ScratchArena {
 public:
  // `ops` outlives this object.
  ScratchArena(const Ops& ops, std::byte* base) : ops_(ops), base_(base) {}
  Rows Take(int64_t rows, int64_t cols, DType dtype) {
    const int64_t stride = ops_.RowStride(cols, dtype);
    const Rows result{base_ == nullptr ? nullptr : base_ + used_, rows, cols, stride, dtype};
    constexpr size_t kAlignment = 128;
    const size_t bytes = static_cast<size_t>(rows * stride) * DTypeBytes(dtype);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return result;
  }
  size_t bytes() const { return used_; }

 private:
  const Ops& ops_;
  std::byte* const base_;
  size_t used_ = 0;
};

}  // namespace

KvShape TransformerLM::KvShapeFor(const ModelConfig& config, DType dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .dtype = dtype};
}

absl::StatusOr<std::unique_ptr<TransformerLM>> TransformerLM::Load(
    const ModelConfig& config, const ModelWeights& weights, Ops& ops, const BatchLimits& limits,
    const KvPlan& kv_plan, const PackingPlan& packing, const InputImportance* importance) {
  TLM_RETURN_IF_ERROR(Validate(config));
  TLM_CHECK(limits.max_tokens > 0 && limits.max_sequences > 0 && limits.max_logits_rows > 0);
  if (limits.max_context < 1 || limits.max_context > config.context_length) {
    return InvalidArgument("max_context is {}, the model's context_length is {}",
                           limits.max_context, config.context_length);
  }
  if (!ops.ChecksFinite() && weights.pager == nullptr) {
    TLM_RETURN_IF_ERROR(CheckAllFinite(weights));
  }
  std::unique_ptr<TransformerLM> model(new TransformerLM(config, ops, limits));
  TLM_ASSIGN_OR_RETURN(model->weights_, PackWeights(config, weights, packing, ops, importance));
  TLM_RETURN_IF_ERROR(model->LoadRopeTable());
  TLM_RETURN_IF_ERROR(model->AllocateWorkspace(packing.matrix_type, kv_plan.dtype));
  const KvShape kv_shape = KvShapeFor(config, kv_plan.dtype);
  TLM_ASSIGN_OR_RETURN(model->kv_, KvStorage::Create(ops.device(), kv_shape, kv_plan.num_blocks));
  if (ops.max_batches() > 1) TLM_RETURN_IF_ERROR(model->WarmUp());
  return model;
}

// Runs a dummy prompt and a dummy decoding step, so that the device has done its work for the first
// use of each kernel. Their blocks belong to no sequence yet. Recurring steps are recorded between
// the two: after all code is on the device, and before one of these steps runs.
absl::Status TransformerLM::WarmUp() {
  const int64_t prompt = std::min({limits_.max_tokens, limits_.max_context,
                                   int64_t{2 * kBlockTokens}, kv_->num_blocks() * kBlockTokens});
  TLM_RETURN_IF_ERROR(RunDummy(prompt));
  TLM_RETURN_IF_ERROR(RecordCommonSteps());
  return RunDummy(1);
}

absl::Status TransformerLM::RunDummy(int64_t tokens) {
  const SamplingParams params;
  const TokenHistory history;
  Batch batch;
  batch.sequences = 1;
  batch.max_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  for (int32_t i = 0; i < tokens; ++i) {
    batch.token_ids.push_back(0);
    batch.positions.push_back(i);
    batch.sequence_of.push_back(0);
  }
  for (int32_t block = 0; block < batch.max_blocks; ++block) batch.block_tables.push_back(block);
  batch.logits_rows = {static_cast<int32_t>(tokens - 1)};
  batch.jobs = {{.params = &params, .history = &history}};
  // The logits may have any value here: a failed sampling job is no fault.
  return Forward(batch).status();
}

absl::Status TransformerLM::RecordCommonSteps() {
  bool goes_on = true;
  for (int64_t i = 0; goes_on && i < ops_.common_steps(); ++i) {
    const DeviceBatch step = ops_.CommonStep(i);
    TLM_ASSIGN_OR_RETURN(goes_on, ops_.device().RecordAhead(
                                      step.capture_key, [this, &step] { return RunLayers(step); }));
  }
  return absl::OkStatus();
}

TransformerLM::TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits)
    : config_(config), ops_(ops), limits_(limits) {}

TransformerLM::~TransformerLM() { ops_.Release(); }

ModelShape TransformerLM::ShapeOf(const ModelConfig& config, DType weights) {
  const int64_t widest = std::max({config.d_model, config.q_size(), config.d_ff});
  const auto padded = [](int64_t inputs) { return (inputs + 7) / 8 * 8; };
  const int64_t up_outputs = (config.gated_ffn() ? 2 : 1) * config.d_ff;
  const int64_t outputs =
      std::max({config.vocab_size, config.q_size() + 2 * config.kv_size(), up_outputs});
  const int64_t elements =
      std::max({outputs * padded(config.d_model),
                config.d_model * padded(std::max(config.q_size(), config.d_ff))});
  return {.vocab_size = config.vocab_size,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .gated_outputs = config.gated_ffn() ? 2 * config.d_ff : 0,
          .inputs = widest,
          .matrix_elements = elements,
          .has_blocks = weights == DType::kI8};
}

size_t TransformerLM::LayOutScratch(const ModelConfig& config, const BatchRows& rows,
                                    DType activations, const Ops& ops, std::byte* base,
                                    Scratch* scratch) {
  ScratchArena arena(ops, base);
  const int64_t tokens = ops.PaddedRows(rows.tokens);
  scratch->x = arena.Take(tokens, config.d_model, DType::kF32);
  scratch->delta = arena.Take(tokens, config.d_model, activations);
  scratch->normed = arena.Take(tokens, config.d_model, activations);
  scratch->qkv = arena.Take(tokens, config.q_size() + 2 * config.kv_size(), activations);
  scratch->attention = arena.Take(tokens, config.q_size(), activations);
  scratch->hidden = arena.Take(tokens, config.d_ff, activations);
  scratch->gathered = arena.Take(ops.PaddedRows(rows.logits), config.d_model, activations);
  return arena.bytes();
}

size_t TransformerLM::LogitsBytes(const ModelConfig& config, const BatchLimits& limits,
                                  const Ops& ops) {
  return static_cast<size_t>(ops.PaddedRows(limits.max_logits_rows) * config.vocab_size) *
         sizeof(float);
}

size_t TransformerLM::RopeTableBytes(const ModelConfig& config, const BatchLimits& limits) {
  if (!config.rope_theta.has_value()) return 0;
  return static_cast<size_t>(limits.max_context * config.head_dim) * sizeof(float);
}

size_t TransformerLM::WorkspaceBytes(const ModelConfig& config, const BatchLimits& limits,
                                     DType weights, const Ops& ops) {
  const DType activations = ops.ActivationType(weights);
  Scratch scratch;
  return LayOutScratch(config, LargestBatch(limits), activations, ops, nullptr, &scratch) +
         LogitsBytes(config, limits, ops) + RopeTableBytes(config, limits) +
         ops.ReserveBytes(limits, ShapeOf(config, weights), activations);
}

absl::Status TransformerLM::LoadRopeTable() {
  Device& device = ops_.device();
  TLM_ASSIGN_OR_RETURN(rope_table_,
                       device.Allocate(RopeTableBytes(config_, limits_), MemoryPurpose::kRuntime));
  // Host memory is allocated when it is touched: each step fills what it needs.
  return device.info().host_addressable ? absl::OkStatus() : FillRopeTable(limits_.max_context);
}

absl::Status TransformerLM::FillRopeTable(int64_t positions) {
  if (!config_.rope_theta.has_value() || positions <= rope_positions_) return absl::OkStatus();
  const RopeTable table(config_.head_dim, *config_.rope_theta, config_.rope_scaling);
  const size_t row_bytes = static_cast<size_t>(config_.head_dim) * sizeof(float);
  // Fills in pieces: the table of a long context is too large to hold twice.
  constexpr int64_t kPiece = 512;
  while (rope_positions_ < positions) {
    const int64_t count = std::min(kPiece, limits_.max_context - rope_positions_);
    const std::vector<float> entries = table.Entries(rope_positions_, count);
    TLM_RETURN_IF_ERROR(ops_.device().CopyToDevice(
        rope_table_.as<std::byte>() + static_cast<size_t>(rope_positions_) * row_bytes,
        entries.data(), entries.size() * sizeof(float)));
    rope_positions_ += count;
  }
  return absl::OkStatus();
}

absl::Status TransformerLM::AllocateWorkspace(DType matrix_type, DType kv) {
  Device& device = ops_.device();
  const DType activations = ops_.ActivationType(matrix_type);
  Scratch unplaced;
  const BatchRows rows = LargestBatch(limits_);
  TLM_ASSIGN_OR_RETURN(activations_, device.Allocate(LayOutScratch(config_, rows, activations, ops_,
                                                                   nullptr, &unplaced),
                                                     MemoryPurpose::kActivations));
  LayOutScratch(config_, rows, activations, ops_, activations_.as<std::byte>(), &scratch_);
  TLM_ASSIGN_OR_RETURN(
      logits_, device.Allocate(LogitsBytes(config_, limits_, ops_), MemoryPurpose::kLogits));
  const int64_t vocab = config_.vocab_size;
  scratch_.logits = {logits_.data(), ops_.PaddedRows(limits_.max_logits_rows), vocab, vocab};
  ModelShape shape = ShapeOf(config_, matrix_type);
  shape.fp8_cache = kv == DType::kF8E4M3;
  return ops_.Reserve(limits_, shape, activations);
}

void TransformerLM::CheckBatch(const Batch& batch) const {
  const int64_t tokens = batch.tokens();
  TLM_CHECK(tokens > 0 && tokens <= limits_.max_tokens);
  TLM_CHECK(static_cast<int64_t>(batch.positions.size()) == tokens);
  TLM_CHECK(static_cast<int64_t>(batch.sequence_of.size()) == tokens);
  TLM_CHECK(batch.sequences > 0 && batch.sequences <= limits_.max_sequences);
  TLM_CHECK(batch.max_blocks * kBlockTokens < limits_.max_context + kBlockTokens);
  TLM_CHECK(static_cast<int64_t>(batch.block_tables.size()) == batch.sequences * batch.max_blocks);
  TLM_CHECK(static_cast<int64_t>(batch.logits_rows.size()) <= limits_.max_logits_rows);
  for (int64_t token = 0; token < tokens; ++token) {
    TLM_CHECK(batch.token_ids[token] < config_.vocab_size);
    TLM_CHECK(batch.token_ids[token] >= 0 || ops_.max_batches() > 1);
    TLM_CHECK(batch.positions[token] >= 0 && batch.positions[token] < limits_.max_context);
    TLM_CHECK(batch.positions[token] < batch.max_blocks * kBlockTokens);
    TLM_CHECK(batch.sequence_of[token] >= 0 && batch.sequence_of[token] < batch.sequences);
  }
  for (const int32_t block : batch.block_tables) {
    TLM_CHECK(block >= 0 && block < kv_->num_blocks());
  }
  for (const int32_t row : batch.logits_rows) TLM_CHECK(row >= 0 && row < tokens);
  TLM_CHECK(static_cast<int64_t>(batch.jobs.size()) <= limits_.max_jobs());
  for (const SamplingJob& job : batch.jobs) TLM_CHECK(job.row >= 0 && job.row < batch.rows());
  for (const int32_t row : batch.host_rows) TLM_CHECK(row >= 0 && row < batch.rows());
}

void TransformerLM::Launch(const Batch& batch) {
  CheckBatch(batch);
  TLM_CHECK(static_cast<int>(launched_.size()) < max_launched());
  kv_->Reach(*std::max_element(batch.block_tables.begin(), batch.block_tables.end()));
  launched_.push_back({.batch = &batch, .status = absl::OkStatus()});
  // A backend that computes synchronously runs in Wait, so that the caller can work before it.
  if (max_launched() > 1) launched_.back().status = Run(batch);
}

absl::StatusOr<BatchResult> TransformerLM::Wait() {
  TLM_CHECK(!launched_.empty());
  const Launched launched = std::move(launched_.front());
  launched_.pop_front();
  TLM_RETURN_IF_ERROR(launched.status);
  if (max_launched() == 1) TLM_RETURN_IF_ERROR(Run(*launched.batch));
  return ops_.AwaitBatch();
}

absl::Status TransformerLM::Run(const Batch& batch) {
  TLM_ASSIGN_OR_RETURN(const DeviceBatch on_device, ops_.BeginBatch(batch));
  // Host memory is allocated when it is touched, so the rows of a small batch are placed in few
  // pages. On other devices recorded steps need fixed addresses.
  if (ops_.device().info().host_addressable) {
    TLM_RETURN_IF_ERROR(
        FillRopeTable(*std::max_element(batch.positions.begin(), batch.positions.end()) + 1));
    LayOutScratch(config_, {on_device.layout.tokens, on_device.rows}, scratch_.delta.dtype, ops_,
                  activations_.as<std::byte>(), &scratch_);
  }
  const auto layers = [this, &on_device] { return RunLayers(on_device); };
  if (on_device.capture_key == 0) {
    TLM_RETURN_IF_ERROR(layers());
  } else {
    TLM_RETURN_IF_ERROR(ops_.device().RunCaptured(on_device.capture_key, layers));
  }
  return ops_.EndBatch(batch.rows() > 0 ? scratch_.logits.First(on_device.rows) : Rows());
}

absl::Status TransformerLM::RunLayers(const DeviceBatch& batch) {
  TLM_RETURN_IF_ERROR(RunEmbedding(batch));
  const int64_t tokens = batch.layout.tokens;
  Rows delta;  // the last block's contribution to x, which the next norm adds
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    const PackedLayer& layer = weights_.layers[static_cast<size_t>(index)];
    TLM_RETURN_IF_ERROR(RunAttention(layer, index, delta, batch));
    TLM_RETURN_IF_ERROR(RunFfn(layer, tokens));
    delta = scratch_.delta.First(tokens);
  }
  return batch.rows > 0 ? RunHead(batch) : absl::OkStatus();
}

absl::Status TransformerLM::CopyKvBlock(int32_t from, int32_t to) {
  TLM_CHECK(from >= 0 && from < kv_->num_blocks() && to >= 0 && to < kv_->num_blocks());
  if (from == to) return absl::OkStatus();
  return ops_.device().CopyOnDevice(kv_->block(to), kv_->block(from),
                                    kv_->shape().bytes_per_block());
}

Norm TransformerLM::NormOf(const PackedNorm& norm) const {
  return {.kind = config_.norm_kind == NormKind::kRms ? Norm::Kind::kRms : Norm::Kind::kLayer,
          .gain = norm.gain.as<float>(),
          .bias = norm.bias.as<float>(),
          .eps = static_cast<float>(config_.norm_eps),
          .placement = PlacementOf(config_.norm_eps_placement)};
}

// Heads are normalised by an RMSNorm, whatever the other norms are.
HeadTransform TransformerLM::HeadTransformOf(const PackedLayer& layer) const {
  return {.q_gain = layer.q_norm.as<float>(),
          .k_gain = layer.k_norm.as<float>(),
          .eps = static_cast<float>(config_.norm_eps),
          .placement = PlacementOf(config_.norm_eps_placement),
          .rope_table = rope_table_.as<float>(),
          .pairing = PairingOf(config_.rope_layout)};
}

absl::Status TransformerLM::Linear(const Rows& in, const PackedLinear& linear,
                                   std::optional<Activation> activation, const Rows& out) {
  return ops_.MatMul(in, *linear.matrix,
                     {.bias = linear.bias.as<float>(), .activation = activation}, out);
}

// x = token embedding (+ position embedding)
absl::Status TransformerLM::RunEmbedding(const DeviceBatch& batch) {
  return ops_.Embed(*weights_.token_embedding, weights_.position_embedding.get(), batch,
                    scratch_.x.First(batch.layout.tokens));
}

// x += delta; delta = output(attention(rope(norm(qkv(norm(x))))))
absl::Status TransformerLM::RunAttention(const PackedLayer& layer, int64_t index, const Rows& delta,
                                         const DeviceBatch& batch) {
  const int64_t tokens = batch.layout.tokens;
  const Rows normed = scratch_.normed.First(tokens);
  const Rows qkv = scratch_.qkv.First(tokens);
  const Rows attention = scratch_.attention.First(tokens);
  TLM_RETURN_IF_ERROR(
      ops_.AddNorm(scratch_.x.First(tokens), delta, NormOf(layer.attention_norm), normed));
  TLM_RETURN_IF_ERROR(Linear(normed, layer.qkv, std::nullopt, qkv));
  TLM_RETURN_IF_ERROR(
      ops_.PrepareAttention(qkv, HeadTransformOf(layer), batch.layout, kv_->layer(index)));
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  TLM_RETURN_IF_ERROR(ops_.Attention(qkv.Columns(0, config_.q_size()), scale,
                                     config_.WindowOf(index), batch.layout, kv_->layer(index),
                                     attention));
  return Linear(attention, layer.attention, std::nullopt, scratch_.delta.First(tokens));
}

// x += delta; delta = down(swiglu(gate_up(norm(x)))), or down(activation(up(norm(x)))) without a
// gate
absl::Status TransformerLM::RunFfn(const PackedLayer& layer, int64_t tokens) {
  const Rows normed = scratch_.normed.First(tokens);
  const Rows hidden = scratch_.hidden.First(tokens);
  const Rows delta = scratch_.delta.First(tokens);
  TLM_RETURN_IF_ERROR(
      ops_.AddNorm(scratch_.x.First(tokens), delta, NormOf(layer.ffn_norm), normed));
  if (config_.gated_ffn()) {
    TLM_RETURN_IF_ERROR(
        ops_.MatMulGated(normed, *layer.up.matrix, layer.up.bias.as<float>(), hidden));
  } else {
    TLM_RETURN_IF_ERROR(Linear(normed, layer.up, ActivationOf(config_.ffn_kind), hidden));
  }
  return Linear(hidden, layer.down, std::nullopt, delta);
}

// Computes logits of the requested rows only: the head is the largest matrix of a small model.
absl::Status TransformerLM::RunHead(const DeviceBatch& batch) {
  const int64_t tokens = batch.layout.tokens;
  const Rows gathered = scratch_.gathered.First(batch.rows);
  const Rows logits = scratch_.logits.First(batch.rows);
  const Matrix& head = weights_.lm_head != nullptr ? *weights_.lm_head : *weights_.token_embedding;
  TLM_RETURN_IF_ERROR(ops_.GatherAddNorm(scratch_.x.First(tokens), scratch_.delta.First(tokens),
                                         batch.logits_rows, NormOf(weights_.final_norm), gathered));
  TLM_RETURN_IF_ERROR(ops_.MatMul(gathered, head, {}, logits));
  return ops_.Sample(logits);
}

}  // namespace tlm
