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
  TLM_RETURN_IF_ERROR(model->LoadWeights(weights));
  TLM_RETURN_IF_ERROR(model->AllocateWorkspace());
  return model;
}

TransformerLM::TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits,
                             KvStorage kv)
    : config_(config), ops_(ops), limits_(limits), kv_(std::move(kv)) {}

absl::Status TransformerLM::LoadWeights(const ModelWeights& weights) {
  TLM_ASSIGN_OR_RETURN(token_embedding_, ops_.PackMatrix({&weights.token_embedding, 1}));
  if (!config_.tie_word_embeddings) {
    TLM_ASSIGN_OR_RETURN(lm_head_, ops_.PackMatrix({&weights.lm_head, 1}));
  }
  TLM_ASSIGN_OR_RETURN(final_norm_, ops_.PackVector(weights.final_norm));
  layers_.resize(static_cast<size_t>(config_.num_layers));
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    TLM_RETURN_IF_ERROR(LoadLayer(weights.layers[index], &layers_[index]));
  }
  if (!config_.rope_theta.has_value()) return absl::OkStatus();
  const std::vector<float> table =
      MakeRopeTable(limits_.max_context, config_.head_dim, *config_.rope_theta);
  const size_t bytes = table.size() * sizeof(float);
  TLM_ASSIGN_OR_RETURN(rope_table_, ops_.device().Allocate(bytes, MemoryPurpose::kRuntime));
  return ops_.device().CopyToDevice(rope_table_.data(), table.data(), bytes);
}

absl::Status TransformerLM::LoadLayer(const LayerWeights& weights, Layer* layer) {
  TLM_ASSIGN_OR_RETURN(layer->attention_norm, ops_.PackVector(weights.attn_norm));
  const TensorView qkv[] = {weights.q, weights.k, weights.v};
  TLM_ASSIGN_OR_RETURN(layer->qkv, ops_.PackMatrix(qkv));
  if (config_.qk_norm) {
    TLM_ASSIGN_OR_RETURN(layer->q_norm, ops_.PackVector(weights.q_norm));
    TLM_ASSIGN_OR_RETURN(layer->k_norm, ops_.PackVector(weights.k_norm));
  }
  TLM_ASSIGN_OR_RETURN(layer->output, ops_.PackMatrix({&weights.o, 1}));
  TLM_ASSIGN_OR_RETURN(layer->ffn_norm, ops_.PackVector(weights.ffn_norm));
  const TensorView gate_up[] = {weights.gate, weights.up};
  TLM_ASSIGN_OR_RETURN(layer->gate_up, ops_.PackMatrix(gate_up));
  TLM_ASSIGN_OR_RETURN(layer->down, ops_.PackMatrix({&weights.down, 1}));
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
    scratch_.gate_up = carver.Take(limits_.max_tokens, 2 * config_.d_ff);
    scratch_.gated = carver.Take(limits_.max_tokens, config_.d_ff);
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
  TLM_RETURN_IF_ERROR(ops_.Embed(*token_embedding_, scratch_.token_ids, scratch_.x.First(tokens)));
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    TLM_RETURN_IF_ERROR(RunAttention(layers_[index], index, tokens));
    TLM_RETURN_IF_ERROR(RunFfn(layers_[index], tokens));
  }
  return RunHead(static_cast<int64_t>(batch.logits_rows.size()), tokens);
}

// x += output(attention(rope(norm(qkv(norm(x))))))
absl::Status TransformerLM::RunAttention(const Layer& layer, int64_t index, int64_t tokens) {
  const float eps = static_cast<float>(config_.norm_eps);
  const Rows x = scratch_.x.First(tokens);
  const Rows normed = scratch_.normed.First(tokens);
  const Rows qkv = scratch_.qkv.First(tokens);
  const Rows q = qkv.Columns(0, config_.q_size());
  const Rows k = qkv.Columns(config_.q_size(), config_.kv_size());
  const Rows v = qkv.Columns(config_.q_size() + config_.kv_size(), config_.kv_size());
  const int64_t head_dim = config_.head_dim;

  TLM_RETURN_IF_ERROR(
      ops_.RmsNorm(x, config_.d_model, layer.attention_norm.as<float>(), eps, normed));
  TLM_RETURN_IF_ERROR(ops_.MatMul(normed, *layer.qkv, qkv));
  if (config_.qk_norm) {
    TLM_RETURN_IF_ERROR(ops_.RmsNorm(q, head_dim, layer.q_norm.as<float>(), eps, q));
    TLM_RETURN_IF_ERROR(ops_.RmsNorm(k, head_dim, layer.k_norm.as<float>(), eps, k));
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
  TLM_RETURN_IF_ERROR(ops_.Attention(q, scale, layout_, kv_.layer(index), attention));
  const Rows projected = scratch_.projected.First(tokens);
  TLM_RETURN_IF_ERROR(ops_.MatMul(attention, *layer.output, projected));
  return ops_.Add(x, projected);
}

// x += down(swiglu(gate_up(norm(x))))
absl::Status TransformerLM::RunFfn(const Layer& layer, int64_t tokens) {
  const float eps = static_cast<float>(config_.norm_eps);
  const Rows x = scratch_.x.First(tokens);
  const Rows normed = scratch_.normed.First(tokens);
  const Rows gate_up = scratch_.gate_up.First(tokens);
  const Rows gated = scratch_.gated.First(tokens);
  const Rows projected = scratch_.projected.First(tokens);
  TLM_RETURN_IF_ERROR(ops_.RmsNorm(x, config_.d_model, layer.ffn_norm.as<float>(), eps, normed));
  TLM_RETURN_IF_ERROR(ops_.MatMul(normed, *layer.gate_up, gate_up));
  TLM_RETURN_IF_ERROR(ops_.SwiGlu(gate_up, gated));
  TLM_RETURN_IF_ERROR(ops_.MatMul(gated, *layer.down, projected));
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
  const Matrix& head = lm_head_ != nullptr ? *lm_head_ : *token_embedding_;
  TLM_RETURN_IF_ERROR(ops_.GatherRows(scratch_.x.First(tokens), scratch_.row_indices, gathered));
  TLM_RETURN_IF_ERROR(ops_.RmsNorm(gathered, config_.d_model, final_norm_.as<float>(),
                                   static_cast<float>(config_.norm_eps), gathered));
  TLM_RETURN_IF_ERROR(ops_.MatMul(gathered, head, logits));
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
