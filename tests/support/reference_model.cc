#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>

#include "model/base/float16.h"

namespace tlm {
namespace {

using Vector = std::vector<double>;

double At(const TensorView& tensor, int64_t index) {
  switch (tensor.dtype) {
    case DType::kBF16:
      return Bf16ToFloat(tensor.as<uint16_t>()[index]);
    case DType::kF16:
      return F16ToFloat(tensor.as<uint16_t>()[index]);
    case DType::kF64:
      return tensor.as<double>()[index];
    default:
      return tensor.as<float>()[index];
  }
}

Vector Row(const TensorView& table, int64_t row) {
  Vector values;
  for (int64_t j = 0; j < table.shape[1]; ++j)
    values.push_back(At(table, row * table.shape[1] + j));
  return values;
}

void Add(const Vector& y, Vector* x) {
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
}

Vector Slice(const Vector& x, int64_t begin, int64_t size) {
  return Vector(x.begin() + begin, x.begin() + begin + size);
}

// The layers' formulas, one position at a time.
class Reference {
 public:
  Reference(const ModelConfig& config, const ModelWeights& weights)
      : config_(config), weights_(weights) {}

  std::vector<double> Logits(std::span<const int32_t> ids) const;

 private:
  // Rows of q, k and v of one position, split into heads.
  struct Heads {
    std::vector<Vector> q, k, v;
  };

  Vector Linear(const TensorView& w, const TensorView& bias, const Vector& x) const;
  Vector Scaled(Vector x, double mean_square, const TensorView& gain) const;
  Vector RmsNorm(const Vector& x, const TensorView& gain) const;
  Vector Norm(const Vector& x, const TensorView& gain, const TensorView& bias) const;
  double Frequency(int64_t pair) const;
  double Yarn(int64_t pair, double frequency) const;
  Vector Rotated(const Vector& head, int64_t position) const;
  std::vector<Vector> Split(const Vector& rows, const TensorView& gain, int64_t position) const;
  Heads Project(const LayerWeights& layer, const Vector& x, int64_t position) const;
  void AddAttention(const LayerWeights& layer, int64_t window, std::vector<Vector>* x) const;
  double Activation(double a) const;
  void AddFfn(const LayerWeights& layer, Vector* x) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
};

// Returns W x + b; GPT-2's layers store the transpose of W.
Vector Reference::Linear(const TensorView& w, const TensorView& bias, const Vector& x) const {
  const bool transposed = config_.naming == TensorNaming::kGpt2 && w.data != weights_.lm_head.data;
  const int64_t inputs = static_cast<int64_t>(x.size());
  const int64_t outputs = w.elements() / inputs;
  Vector y;
  for (int64_t n = 0; n < outputs; ++n) {
    double sum = bias.data != nullptr ? At(bias, n) : 0.0;
    for (int64_t k = 0; k < inputs; ++k) {
      sum += At(w, transposed ? k * outputs + n : n * inputs + k) * x[k];
    }
    y.push_back(sum);
  }
  return y;
}

Vector Reference::Scaled(Vector x, double mean_square, const TensorView& gain) const {
  const double eps = config_.norm_eps;
  const double divisor = config_.norm_eps_placement == NormEps::kInsideRoot
                             ? std::sqrt(mean_square + eps)
                             : std::sqrt(mean_square) + eps;
  for (size_t i = 0; i < x.size(); ++i) x[i] *= At(gain, static_cast<int64_t>(i)) / divisor;
  return x;
}

Vector Reference::RmsNorm(const Vector& x, const TensorView& gain) const {
  double mean_square = 0.0;
  for (const double value : x) mean_square += value * value / static_cast<double>(x.size());
  return Scaled(x, mean_square, gain);
}

Vector Reference::Norm(const Vector& x, const TensorView& gain, const TensorView& bias) const {
  if (config_.norm_kind == NormKind::kRms) return RmsNorm(x, gain);
  double mean = 0.0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  Vector y = x;
  for (double& value : y) value -= mean;
  y = RmsNorm(y, gain);
  for (size_t i = 0; i < y.size(); ++i) y[i] += At(bias, static_cast<int64_t>(i));
  return y;
}

// Returns the scaled frequency of the pair: a blend of the stretched and the original one.
double Reference::Yarn(int64_t pair, double frequency) const {
  const RopeScaling& scaling = *config_.rope_scaling;
  const double dim = static_cast<double>(config_.head_dim);
  const auto correction = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(scaling.original_context_length) /
                    (rotations * 2.0 * M_PI)) /
           (2.0 * std::log(*config_.rope_theta));
  };
  double low = correction(scaling.beta_fast), high = correction(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  const double ramp =
      std::min(1.0, std::max(0.0, (static_cast<double>(pair) - low) / (high - low)));
  return frequency / scaling.factor * ramp + frequency * (1.0 - ramp);
}

double Reference::Frequency(int64_t pair) const {
  const double frequency =
      1.0 / std::pow(*config_.rope_theta,
                     2.0 * static_cast<double>(pair) / static_cast<double>(config_.head_dim));
  if (!config_.rope_scaling.has_value()) return frequency;
  const RopeScaling& scaling = *config_.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kYarn) return Yarn(pair, frequency);
  if (scaling.kind == RopeScaling::Kind::kLinear) return frequency / scaling.factor;
  // The turns of the pair within the original context: below low_freq_factor it is stretched, above
  // high_freq_factor unchanged, between the two a blend.
  const double turns =
      static_cast<double>(scaling.original_context_length) * frequency / (2.0 * M_PI);
  const double keep =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  const double share = std::min(1.0, std::max(0.0, keep));
  return share * frequency + (1.0 - share) * frequency / scaling.factor;
}

Vector Reference::Rotated(const Vector& head, int64_t position) const {
  const size_t half = head.size() / 2;
  const double stretch =
      config_.rope_scaling.has_value() ? config_.rope_scaling->attention_factor : 1.0;
  Vector rotated(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * Frequency(static_cast<int64_t>(i));
    const double cosine = stretch * std::cos(angle), sine = stretch * std::sin(angle);
    const bool interleaved = config_.rope_layout == RopeLayout::kInterleaved;
    const size_t a = interleaved ? 2 * i : i;
    const size_t b = interleaved ? 2 * i + 1 : i + half;
    rotated[a] = head[a] * cosine - head[b] * sine;
    rotated[b] = head[a] * sine + head[b] * cosine;
  }
  return rotated;
}

// Returns the heads of queries or keys, normalised and rotated by the configuration.
std::vector<Vector> Reference::Split(const Vector& rows, const TensorView& gain,
                                     int64_t position) const {
  std::vector<Vector> heads;
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(config_.head_dim)) {
    Vector head = Slice(rows, static_cast<int64_t>(begin), config_.head_dim);
    if (config_.qk_norm) head = RmsNorm(head, gain);
    if (config_.rope_theta.has_value()) head = Rotated(head, position);
    heads.push_back(std::move(head));
  }
  return heads;
}

Reference::Heads Reference::Project(const LayerWeights& layer, const Vector& x,
                                    int64_t position) const {
  Vector q, k, v;
  if (layer.qkv.data != nullptr) {
    const Vector all = Linear(layer.qkv, layer.qkv_bias, x);
    q = Slice(all, 0, config_.q_size());
    k = Slice(all, config_.q_size(), config_.kv_size());
    v = Slice(all, config_.q_size() + config_.kv_size(), config_.kv_size());
  } else {
    q = Linear(layer.q, layer.q_bias, x);
    k = Linear(layer.k, layer.k_bias, x);
    v = Linear(layer.v, layer.v_bias, x);
  }
  Heads heads{Split(q, layer.q_norm, position), Split(k, layer.k_norm, position), {}};
  for (int64_t h = 0; h < config_.num_kv_heads; ++h) {
    heads.v.push_back(Slice(v, h * config_.head_dim, config_.head_dim));
  }
  return heads;
}

// Adds attention: x[t] += Wo concat over heads of softmax(q K^T / sqrt(head_dim)) V + bo.
void Reference::AddAttention(const LayerWeights& layer, int64_t window,
                             std::vector<Vector>* x) const {
  std::vector<Heads> all;
  for (size_t t = 0; t < x->size(); ++t) {
    const Vector normed = Norm((*x)[t], layer.attn_norm, layer.attn_norm_bias);
    all.push_back(Project(layer, normed, static_cast<int64_t>(t)));
  }
  for (size_t t = 0; t < x->size(); ++t) {
    Vector joined;
    for (int64_t h = 0; h < config_.num_heads; ++h) {
      const int64_t kv_head = h * config_.num_kv_heads / config_.num_heads;
      double total = 0.0;
      Vector sum(static_cast<size_t>(config_.head_dim), 0.0);
      for (size_t s = 0; s <= t; ++s) {
        if (window > 0 && static_cast<int64_t>(t - s) >= window) continue;
        double dot = 0.0;
        for (int64_t d = 0; d < config_.head_dim; ++d) dot += all[t].q[h][d] * all[s].k[kv_head][d];
        // In double precision, the weights of such small models need no subtraction of the maximum.
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(config_.head_dim)));
        total += weight;
        for (int64_t d = 0; d < config_.head_dim; ++d) sum[d] += weight * all[s].v[kv_head][d];
      }
      for (const double value : sum) joined.push_back(value / total);
    }
    Add(Linear(layer.o, layer.o_bias, joined), &(*x)[t]);
  }
}

double Reference::Activation(double a) const {
  switch (config_.ffn_kind) {
    case FfnKind::kSwiGlu:
    case FfnKind::kSilu:
      return a / (1.0 + std::exp(-a));
    case FfnKind::kRelu:
      return std::max(a, 0.0);
    case FfnKind::kGeluTanh:
      return 0.5 * a * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (a + 0.044715 * std::pow(a, 3.0))));
    case FfnKind::kGelu:
      return 0.5 * a * (1.0 + std::erf(a / std::sqrt(2.0)));
  }
  return 0.0;
}

void Reference::AddFfn(const LayerWeights& layer, Vector* x) const {
  const Vector normed = Norm(*x, layer.ffn_norm, layer.ffn_norm_bias);
  Vector hidden = Linear(layer.up, layer.up_bias, normed);
  if (config_.ffn_kind == FfnKind::kSwiGlu) {
    const Vector gate = Linear(layer.gate, layer.gate_bias, normed);
    for (size_t j = 0; j < hidden.size(); ++j) hidden[j] *= Activation(gate[j]);
  } else {
    for (double& value : hidden) value = Activation(value);
  }
  Add(Linear(layer.down, layer.down_bias, hidden), x);
}

std::vector<double> Reference::Logits(std::span<const int32_t> ids) const {
  std::vector<Vector> x;
  for (const int32_t id : ids) {
    x.push_back(Row(weights_.token_embedding, id));
    if (!config_.learned_positions) continue;
    Add(Row(weights_.position_embedding, static_cast<int64_t>(x.size()) - 1), &x.back());
  }
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    AddAttention(weights_.layers[layer], config_.WindowOf(static_cast<int64_t>(layer)), &x);
    for (Vector& row : x) AddFfn(weights_.layers[layer], &row);
  }
  std::vector<double> logits;
  for (const Vector& row : x) {
    const Vector normed = Norm(row, weights_.final_norm, weights_.final_norm_bias);
    const Vector out = Linear(weights_.lm_head, {}, normed);
    logits.insert(logits.end(), out.begin(), out.end());
  }
  return logits;
}

}  // namespace

std::vector<double> ReferenceLogits(const ModelConfig& config, const ModelWeights& weights,
                                    std::span<const int32_t> ids) {
  return Reference(config, weights).Logits(ids);
}

}  // namespace tlm
