#include "model/transformer_lm/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/forwarding_ops.h"
#include "model/tensor/float_elements.h"
#include "model/transformer_lm/transformer_lm.h"

namespace tlm {
namespace {

constexpr int64_t kWindowTokens = 512;
// Logits are computed for one token in this many.
constexpr int64_t kTokensPerRow = 32;

void AddSquares(const Rows& x, double* squares) {
  WithFloatElement(x.dtype, [&]<typename Element>() {
    using Bits = typename Element::Bits;
    for (int64_t row = 0; row < x.rows; ++row) {
      const Bits* const from = x.as<Bits>() + row * x.stride;
      for (int64_t i = 0; i < x.cols; ++i) {
        const double value = Element::Value(from[i]);
        squares[i] += value * value;
      }
    }
  });
}

// Adds up the squares of the rows that each matrix is multiplied by.
class ObservingOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                      const Rows& out) override {
    Observe(x, w);
    return ForwardingOps::MatMul(x, w, epilogue, out);
  }
  absl::Status MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                           const Rows& out) override {
    Observe(x, w);
    return ForwardingOps::MatMulGated(x, w, bias, out);
  }

  // Returns INVALID_ARGUMENT if a mean is not finite.
  absl::StatusOr<std::vector<float>> MeanSquares(const Matrix& w) const {
    const Sums& sums = sums_.at(&w);
    std::vector<float> means;
    for (const double square : sums.squares) {
      means.push_back(static_cast<float>(square / static_cast<double>(sums.rows)));
      if (!std::isfinite(means.back())) {
        return InvalidArgument("the model's activations on the calibration text are not finite");
      }
    }
    return means;
  }

 private:
  struct Sums {
    std::vector<double> squares;  // by input
    int64_t rows = 0;
  };

  void Observe(const Rows& x, const Matrix& w) {
    Sums& sums = sums_[&w];
    sums.squares.resize(static_cast<size_t>(x.cols));
    sums.rows += x.rows;
    AddSquares(x, sums.squares.data());
  }

  std::map<const Matrix*, Sums> sums_;
};

Batch WindowBatch(std::span<const int32_t> tokens) {
  Batch batch;
  batch.sequences = 1;
  const auto count = static_cast<int32_t>(tokens.size());
  batch.max_blocks = (count + kBlockTokens - 1) / kBlockTokens;
  for (int32_t block = 0; block < batch.max_blocks; ++block) batch.block_tables.push_back(block);
  batch.token_ids.assign(tokens.begin(), tokens.end());
  for (int32_t i = 0; i < count; ++i) {
    batch.positions.push_back(i);
    batch.sequence_of.push_back(0);
    if (i % kTokensPerRow == 0) batch.logits_rows.push_back(i);
  }
  return batch;
}

absl::StatusOr<InputImportance> Collect(const PackedWeights& weights, const ObservingOps& ops) {
  InputImportance importance;
  const Matrix& head = weights.lm_head != nullptr ? *weights.lm_head : *weights.token_embedding;
  TLM_ASSIGN_OR_RETURN(importance.head, ops.MeanSquares(head));
  for (const PackedLayer& packed : weights.layers) {
    InputImportance::Layer& layer = importance.layers.emplace_back();
    TLM_ASSIGN_OR_RETURN(layer.qkv, ops.MeanSquares(*packed.qkv.matrix));
    TLM_ASSIGN_OR_RETURN(layer.attention, ops.MeanSquares(*packed.attention.matrix));
    TLM_ASSIGN_OR_RETURN(layer.up, ops.MeanSquares(*packed.up.matrix));
    TLM_ASSIGN_OR_RETURN(layer.down, ops.MeanSquares(*packed.down.matrix));
  }
  return importance;
}

}  // namespace

absl::StatusOr<InputImportance> MeasureImportance(const ModelConfig& config,
                                                  const ModelWeights& weights, Ops& ops,
                                                  std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < kMinCalibrationTokens) {
    return InvalidArgument("the calibration text has {} tokens, it needs at least {}", count,
                           kMinCalibrationTokens);
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= config.vocab_size) {
      return InvalidArgument("the calibration text has token {}, the model's vocabulary {}", token,
                             config.vocab_size);
    }
  }
  const int64_t window = std::min(kWindowTokens, config.context_length);
  const BatchLimits limits{.max_tokens = window,
                           .max_sequences = 1,
                           .max_logits_rows = (window + kTokensPerRow - 1) / kTokensPerRow,
                           .max_context = window};
  const PackingPlan packing = PlanPacking(config, weights, WeightFormat::kAsGiven, ops);
  const KvPlan kv{.num_blocks = (window + kBlockTokens - 1) / kBlockTokens,
                  .dtype = ops.DefaultKvType(packing.matrix_type)};
  ObservingOps observing(ops);
  TLM_ASSIGN_OR_RETURN(const auto model,
                       TransformerLM::Load(config, weights, observing, limits, kv, packing));
  for (int64_t begin = 0; begin < count; begin += window) {
    const Batch batch = WindowBatch(tokens.subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(window, count - begin))));
    TLM_RETURN_IF_ERROR(model->Forward(batch).status());
  }
  return Collect(model->weights(), observing);
}

}  // namespace tlm
