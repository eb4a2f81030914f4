#include "model/transformer_lm/transformer_lm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/rope_table.h"
#include "model/weights/check_finite.h"
#include "model/weights/name_map.h"

namespace tlm {
namespace {

RopePairing PairingOf(RopeLayout layout) {
  return layout == RopeLayout::kInterleaved ? RopePairing::kInterleaved : RopePairing::kHalf;
}

EpsPlacement PlacementOf(NormEps placement) {
  return placement == NormEps::kInsideRoot ? EpsPlacement::kInsideRoot : EpsPlacement::kOutsideRoot;
}

// Of a network without a gate.
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

absl::Status CheckAllFinite(const ModelConfig& config, ModelWeights weights) {
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    TLM_RETURN_IF_ERROR(CheckFinite(*PlaceOf(spec, &weights), spec.name));
  }
  return absl::OkStatus();
}

// Hands out consecutive pieces of one buffer; first run without a buffer to learn the size.
class Carver {
 public:
  explicit Carver(float* base) : base_(base) {}
  Rows Take(int64_t rows, int64_t cols) {
    Rows result{base_ == nullptr ? nullptr : base_ + used_, rows, cols, cols};
    constexpr int64_t kAlignment = 16;  // elements of a cache line
    used_ += (rows * cols + kAlignment - 1) / kAlignment * kAlignment;
    return result;
  }
  size_t bytes() const { return static_cast<size_t>(used_) * sizeof(float); }

 private:
  float* const base_;
  int64_t used_ = 0;
};

}  // namespace

KvShape TransformerLM::KvShapeFor(const ModelConfig& config, DType dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .dtype = dtype};
}

absl::StatusOr<std::unique_ptr<TransformerLM>> TransformerLM::Load(const ModelConfig& config,
                                                                   const ModelWeights& weights,
                                                                   Ops& ops,
                                                                   const BatchLimits& limits,
                                                                   const KvPlan& kv_plan) {
  TLM_RETURN_IF_ERROR(Validate(config));
  TLM_CHECK(limits.max_tokens > 0 && limits.max_sequences > 0 && limits.max_logits_rows > 0);
  if (limits.max_context < 1 || limits.max_context > config.context_length) {
    return InvalidArgument("max_context is {}, the model's context_length is {}",
                           limits.max_context, config.context_length);
  }
  TLM_RETURN_IF_ERROR(CheckAllFinite(config, weights));
  const KvShape kv_shape = KvShapeFor(config, kv_plan.dtype);
  TLM_ASSIGN_OR_RETURN(KvStorage kv, KvStorage::Create(ops.device(), kv_shape, kv_plan.num_blocks));
  std::unique_ptr<TransformerLM> model(new TransformerLM(config, ops, limits, std::move(kv)));
  TLM_ASSIGN_OR_RETURN(model->weights_, PackWeights(config, weights, ops));
  TLM_RETURN_IF_ERROR(model->LoadRopeTable());
  TLM_RETURN_IF_ERROR(model->AllocateWorkspace());
  return model;
}

TransformerLM::TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits,
                             KvStorage kv)
    : config_(config), ops_(ops), limits_(limits), kv_(std::move(kv)) {}

absl::Status TransformerLM::LoadRopeTable() {
  if (!config_.rope_theta.has_value()) return absl::OkStatus();
  const RopeTable table(config_.head_dim, *config_.rope_theta, config_.rope_scaling);
  Device& device = ops_.device();
  const size_t row_bytes = static_cast<size_t>(config_.head_dim) * sizeof(float);
  TLM_ASSIGN_OR_RETURN(rope_table_,
                       device.Allocate(static_cast<size_t>(limits_.max_context) * row_bytes,
                                       MemoryPurpose::kRuntime));
  // In pieces: the table of a long context is too large to have twice.
  constexpr int64_t kPiece = 4096;
  for (int64_t first = 0; first < limits_.max_context; first += kPiece) {
    const int64_t positions = std::min(kPiece, limits_.max_context - first);
    const std::vector<float> entries = table.Entries(first, positions);
    TLM_RETURN_IF_ERROR(
        device.CopyToDevice(rope_table_.as<std::byte>() + static_cast<size_t>(first) * row_bytes,
                            entries.data(), entries.size() * sizeof(float)));
  }
  return absl::OkStatus();
}

absl::Status TransformerLM::AllocateWorkspace() {
  Device& device = ops_.device();
  const auto carve = [this](float* base) {
    Carver carver(base);
    scratch_.x = carver.Take(limits_.max_tokens, config_.d_model);
    scratch_.normed = carver.Take(limits_.max_tokens, config_.d_model);
    scratch_.projected = carver.Take(limits_.max_tokens, config_.d_model);
    scratch_.qkv = carver.Take(limits_.max_tokens, config_.q_size() + 2 * config_.kv_size());
    scratch_.attention = carver.Take(limits_.max_tokens, config_.q_size());
    if (config_.gated_ffn()) {
      scratch_.gate_up = carver.Take(limits_.max_tokens, 2 * config_.d_ff);
    }
    scratch_.hidden = carver.Take(limits_.max_tokens, config_.d_ff);
    scratch_.gathered = carver.Take(limits_.max_logits_rows, config_.d_model);
    return carver.bytes();
  };
  TLM_ASSIGN_OR_RETURN(scratch_.activations,
                       device.Allocate(carve(nullptr), MemoryPurpose::kActivations));
  carve(scratch_.activations.as<float>());

  const int64_t vocab = config_.vocab_size;
  TLM_ASSIGN_OR_RETURN(
      scratch_.logits,
      device.Allocate(static_cast<size_t>(limits_.max_logits_rows * vocab) * sizeof(float),
                      MemoryPurpose::kLogits));
  scratch_.logits_rows = {scratch_.logits.as<float>(), limits_.max_logits_rows, vocab, vocab};
  if (!device.info().host_addressable) {
    host_logits_.resize(static_cast<size_t>(limits_.max_logits_rows * vocab));
  }

  const int64_t max_blocks = (limits_.max_context + kBlockTokens - 1) / kBlockTokens;
  const int64_t integers =
      3 * limits_.max_tokens + limits_.max_logits_rows + limits_.max_sequences * max_blocks;
  TLM_ASSIGN_OR_RETURN(scratch_.integers,
                       device.Allocate(static_cast<size_t>(integers) * sizeof(int32_t),
                                       MemoryPurpose::kActivations));
  scratch_.token_ids = scratch_.integers.as<int32_t>();
  scratch_.positions = scratch_.token_ids + limits_.max_tokens;
  scratch_.sequence_of = scratch_.positions + limits_.max_tokens;
  scratch_.row_indices = scratch_.sequence_of + limits_.max_tokens;
  scratch_.block_tables = scratch_.row_indices + limits_.max_logits_rows;
  return absl::OkStatus();
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
    TLM_CHECK(batch.token_ids[token] >= 0 && batch.token_ids[token] < config_.vocab_size);
    TLM_CHECK(batch.positions[token] >= 0 && batch.positions[token] < limits_.max_context);
    TLM_CHECK(batch.positions[token] < batch.max_blocks * kBlockTokens);
    TLM_CHECK(batch.sequence_of[token] >= 0 && batch.sequence_of[token] < batch.sequences);
  }
  for (const int32_t block : batch.block_tables) {
    TLM_CHECK(block >= 0 && block < kv_.num_blocks());
  }
  for (const int32_t row : batch.logits_rows) TLM_CHECK(row >= 0 && row < tokens);
}

absl::Status TransformerLM::UploadBatch(const Batch& batch) {
  const auto upload = [this](int32_t* to, const std::vector<int32_t>& from) {
    return ops_.device().CopyToDevice(to, from.data(), from.size() * sizeof(int32_t));
  };
  TLM_RETURN_IF_ERROR(upload(scratch_.token_ids, batch.token_ids));
  TLM_RETURN_IF_ERROR(upload(scratch_.positions, batch.positions));
  TLM_RETURN_IF_ERROR(upload(scratch_.sequence_of, batch.sequence_of));
  TLM_RETURN_IF_ERROR(upload(scratch_.block_tables, batch.block_tables));
  TLM_RETURN_IF_ERROR(upload(scratch_.row_indices, batch.logits_rows));
  layout_ = {.tokens = batch.tokens(),
             .sequences = batch.sequences,
             .max_blocks = batch.max_blocks,
             .positions = scratch_.positions,
             .sequence_of = scratch_.sequence_of,
             .block_tables = scratch_.block_tables};
  return absl::OkStatus();
}

absl::StatusOr<std::span<const float>> TransformerLM::Forward(const Batch& batch) {
  CheckBatch(batch);
  TLM_RETURN_IF_ERROR(UploadBatch(batch));
  const int64_t tokens = batch.tokens();
  TLM_RETURN_IF_ERROR(RunEmbedding(tokens));
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    const PackedLayer& layer = weights_.layers[static_cast<size_t>(index)];
    TLM_RETURN_IF_ERROR(RunAttention(layer, index, tokens));
    TLM_RETURN_IF_ERROR(RunFfn(layer, tokens));
  }
  return RunHead(static_cast<int64_t>(batch.logits_rows.size()), tokens);
}

absl::Status TransformerLM::CopyKvBlock(int32_t from, int32_t to) {
  TLM_CHECK(from >= 0 && from < kv_.num_blocks() && to >= 0 && to < kv_.num_blocks());
  if (from == to) return absl::OkStatus();
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    const KvLayer layer = kv_.layer(index);
    const size_t bytes = layer.block_bytes();
    std::byte* const blocks = static_cast<std::byte*>(layer.data);
    TLM_RETURN_IF_ERROR(ops_.device().CopyOnDevice(blocks + static_cast<size_t>(to) * bytes,
                                                   blocks + static_cast<size_t>(from) * bytes,
                                                   bytes));
  }
  return absl::OkStatus();
}

absl::Status TransformerLM::Norm(const Rows& in, const PackedNorm& norm, const Rows& out) {
  const float eps = static_cast<float>(config_.norm_eps);
  const EpsPlacement placement = PlacementOf(config_.norm_eps_placement);
  if (config_.norm_kind == NormKind::kRms) {
    return ops_.RmsNorm(in, in.cols, norm.gain.as<float>(), eps, placement, out);
  }
  return ops_.LayerNorm(in, norm.gain.as<float>(), norm.bias.as<float>(), eps, placement, out);
}

// Of every head for itself, in place; an RMSNorm whatever the other norms are.
absl::Status TransformerLM::HeadNorm(const Rows& heads, const Buffer& gain) {
  return ops_.RmsNorm(heads, config_.head_dim, gain.as<float>(),
                      static_cast<float>(config_.norm_eps), PlacementOf(config_.norm_eps_placement),
                      heads);
}

absl::Status TransformerLM::Linear(const Rows& in, const PackedLinear& linear, const Rows& out) {
  return ops_.MatMul(in, *linear.matrix, linear.bias.as<float>(), out);
}

// x = token embedding (+ position embedding)
absl::Status TransformerLM::RunEmbedding(int64_t tokens) {
  const Rows x = scratch_.x.First(tokens);
  TLM_RETURN_IF_ERROR(ops_.Embed(*weights_.token_embedding, scratch_.token_ids, x));
  if (!config_.learned_positions) return absl::OkStatus();
  const Rows positions = scratch_.projected.First(tokens);
  TLM_RETURN_IF_ERROR(ops_.Embed(*weights_.position_embedding, scratch_.positions, positions));
  return ops_.Add(x, positions);
}

// x += output(attention(rope(norm(qkv(norm(x))))))
absl::Status TransformerLM::RunAttention(const PackedLayer& layer, int64_t index, int64_t tokens) {
  const Rows x = scratch_.x.First(tokens);
  const Rows normed = scratch_.normed.First(tokens);
  const Rows qkv = scratch_.qkv.First(tokens);
  const Rows q = qkv.Columns(0, config_.q_size());
  const Rows k = qkv.Columns(config_.q_size(), config_.kv_size());
  const Rows v = qkv.Columns(config_.q_size() + config_.kv_size(), config_.kv_size());
  const int64_t head_dim = config_.head_dim;

  TLM_RETURN_IF_ERROR(Norm(x, layer.attention_norm, normed));
  TLM_RETURN_IF_ERROR(Linear(normed, layer.qkv, qkv));
  if (config_.qk_norm) {
    TLM_RETURN_IF_ERROR(HeadNorm(q, layer.q_norm));
    TLM_RETURN_IF_ERROR(HeadNorm(k, layer.k_norm));
  }
  if (config_.rope_theta.has_value()) {
    const RopePairing pairing = PairingOf(config_.rope_layout);
    const float* const table = rope_table_.as<float>();
    TLM_RETURN_IF_ERROR(ops_.Rope(q, head_dim, pairing, table, scratch_.positions));
    TLM_RETURN_IF_ERROR(ops_.Rope(k, head_dim, pairing, table, scratch_.positions));
  }
  TLM_RETURN_IF_ERROR(ops_.WriteKv(k, v, layout_, kv_.layer(index)));
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  const Rows attention = scratch_.attention.First(tokens);
  TLM_RETURN_IF_ERROR(
      ops_.Attention(q, scale, config_.WindowOf(index), layout_, kv_.layer(index), attention));
  const Rows projected = scratch_.projected.First(tokens);
  TLM_RETURN_IF_ERROR(Linear(attention, layer.attention, projected));
  return ops_.Add(x, projected);
}

// x += down(swiglu(gate_up(norm(x)))), or down(activation(up(norm(x)))) without a gate
absl::Status TransformerLM::RunFfn(const PackedLayer& layer, int64_t tokens) {
  const Rows x = scratch_.x.First(tokens);
  const Rows normed = scratch_.normed.First(tokens);
  const Rows hidden = scratch_.hidden.First(tokens);
  const Rows projected = scratch_.projected.First(tokens);
  TLM_RETURN_IF_ERROR(Norm(x, layer.ffn_norm, normed));
  if (config_.gated_ffn()) {
    const Rows gate_up = scratch_.gate_up.First(tokens);
    TLM_RETURN_IF_ERROR(Linear(normed, layer.up, gate_up));
    TLM_RETURN_IF_ERROR(ops_.SwiGlu(gate_up, hidden));
  } else {
    TLM_RETURN_IF_ERROR(Linear(normed, layer.up, hidden));
    TLM_RETURN_IF_ERROR(ops_.Activate(ActivationOf(config_.ffn_kind), hidden));
  }
  TLM_RETURN_IF_ERROR(Linear(hidden, layer.down, projected));
  return ops_.Add(x, projected);
}

// Logits of the asked-for rows only: the head is the largest matrix of a small model.
absl::StatusOr<std::span<const float>> TransformerLM::RunHead(int64_t rows, int64_t tokens) {
  if (rows == 0) {
    TLM_RETURN_IF_ERROR(ops_.device().Synchronize());
    return std::span<const float>();
  }
  const Rows gathered = scratch_.gathered.First(rows);
  const Rows logits = scratch_.logits_rows.First(rows);
  const Matrix& head = weights_.lm_head != nullptr ? *weights_.lm_head : *weights_.token_embedding;
  TLM_RETURN_IF_ERROR(ops_.GatherRows(scratch_.x.First(tokens), scratch_.row_indices, gathered));
  TLM_RETURN_IF_ERROR(Norm(gathered, weights_.final_norm, gathered));
  TLM_RETURN_IF_ERROR(ops_.MatMul(gathered, head, nullptr, logits));
  const size_t values = static_cast<size_t>(rows * config_.vocab_size);
  if (host_logits_.empty()) {
    TLM_RETURN_IF_ERROR(ops_.device().Synchronize());
    return std::span<const float>(logits.data, values);
  }
  TLM_RETURN_IF_ERROR(
      ops_.device().CopyToHost(host_logits_.data(), logits.data, values * sizeof(float)));
  return std::span<const float>(host_logits_.data(), values);
}

}  // namespace tlm
