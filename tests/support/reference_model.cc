#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

// y = W x
Vector Multiply(const TensorView& w, const Vector& x) {
  Vector y(static_cast<size_t>(w.shape[0]));
  for (int64_t row = 0; row < w.shape[0]; ++row) {
    double sum = 0.0;
    for (int64_t k = 0; k < w.shape[1]; ++k) sum += At(w, row * w.shape[1] + k) * x[k];
    y[row] = sum;
  }
  return y;
}

Vector Norm(const Vector& x, const TensorView& gain, double eps) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / root * At(gain, static_cast<int64_t>(i));
  return y;
}

void Add(const Vector& y, Vector* x) {
  for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
}

Vector Head(const Vector& heads, int64_t head, int64_t head_dim) {
  return Vector(heads.begin() + head * head_dim, heads.begin() + (head + 1) * head_dim);
}

Vector Rotate(const Vector& head, int64_t position, double theta, RopeLayout layout) {
  const size_t half = head.size() / 2;
  Vector rotated(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head.size()));
    const size_t a = layout == RopeLayout::kInterleaved ? 2 * i : i;
    const size_t b = layout == RopeLayout::kInterleaved ? 2 * i + 1 : i + half;
    rotated[a] = head[a] * std::cos(angle) - head[b] * std::sin(angle);
    rotated[b] = head[a] * std::sin(angle) + head[b] * std::cos(angle);
  }
  return rotated;
}

// All heads of one position: split, normalised and rotated as the configuration says.
std::vector<Vector> PrepareHeads(const ModelConfig& config, const Vector& projected,
                                 const TensorView& gain, int64_t position) {
  std::vector<Vector> heads;
  const int64_t count = static_cast<int64_t>(projected.size()) / config.head_dim;
  for (int64_t h = 0; h < count; ++h) {
    Vector head = Head(projected, h, config.head_dim);
    if (config.qk_norm) head = Norm(head, gain, config.norm_eps);
    if (config.rope_theta.has_value()) {
      head = Rotate(head, position, *config.rope_theta, config.rope_layout);
    }
    heads.push_back(std::move(head));
  }
  return heads;
}

// softmax(q K^T / sqrt(d)) V over the given positions.
Vector Attend(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values) {
  Vector scores;
  for (const Vector& key : keys) {
    double dot = 0.0;
    for (size_t d = 0; d < q.size(); ++d) dot += q[d] * key[d];
    scores.push_back(dot / std::sqrt(static_cast<double>(q.size())));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  Vector out(q.size(), 0.0);
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - max);
    sum += weight;
    for (size_t d = 0; d < q.size(); ++d) out[d] += weight * values[j][d];
  }
  for (double& value : out) value /= sum;
  return out;
}

void AttentionBlock(const ModelConfig& config, const LayerWeights& layer, std::vector<Vector>* x) {
  // keys[kv_head][position]
  std::vector<std::vector<Vector>> keys(config.num_kv_heads), values(config.num_kv_heads);
  const int64_t group = config.num_heads / config.num_kv_heads;
  for (size_t t = 0; t < x->size(); ++t) {
    const int64_t position = static_cast<int64_t>(t);
    const Vector normed = Norm((*x)[t], layer.attn_norm, config.norm_eps);
    const auto q = PrepareHeads(config, Multiply(layer.q, normed), layer.q_norm, position);
    const auto k = PrepareHeads(config, Multiply(layer.k, normed), layer.k_norm, position);
    const Vector v = Multiply(layer.v, normed);
    for (int64_t h = 0; h < config.num_kv_heads; ++h) {
      keys[h].push_back(k[h]);
      values[h].push_back(Head(v, h, config.head_dim));
    }
    Vector joined;
    for (int64_t h = 0; h < config.num_heads; ++h) {
      const Vector out = Attend(q[h], keys[h / group], values[h / group]);
      joined.insert(joined.end(), out.begin(), out.end());
    }
    Add(Multiply(layer.o, joined), &(*x)[t]);
  }
}

void FfnBlock(const ModelConfig& config, const LayerWeights& layer, Vector* x) {
  const Vector normed = Norm(*x, layer.ffn_norm, config.norm_eps);
  Vector hidden = Multiply(layer.gate, normed);
  const Vector up = Multiply(layer.up, normed);
  for (size_t j = 0; j < hidden.size(); ++j) hidden[j] *= up[j] / (1.0 + std::exp(-hidden[j]));
  Add(Multiply(layer.down, hidden), x);
}

}  // namespace

std::vector<double> ReferenceLogits(const ModelConfig& config, const ModelWeights& weights,
                                    std::span<const int32_t> ids) {
  std::vector<Vector> x;
  for (const int32_t id : ids) {
    Vector row(static_cast<size_t>(config.d_model));
    for (int64_t j = 0; j < config.d_model; ++j) {
      row[j] = At(weights.token_embedding, id * config.d_model + j);
    }
    x.push_back(std::move(row));
  }
  for (const LayerWeights& layer : weights.layers) {
    AttentionBlock(config, layer, &x);
    for (Vector& row : x) FfnBlock(config, layer, &row);
  }
  std::vector<double> logits;
  for (const Vector& row : x) {
    const Vector out = Multiply(weights.lm_head, Norm(row, weights.final_norm, config.norm_eps));
    logits.insert(logits.end(), out.begin(), out.end());
  }
  return logits;
}

}  // namespace tlm
