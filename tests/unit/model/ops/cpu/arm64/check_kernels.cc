// The portable kernels against plain loops in double precision, as a program that needs nothing but
// a compiler: CMake builds it for ARM64, CTest runs it there or on an emulator. Exits with 1 and
// tells what differs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/sampling/sampling_math.h"
#include "model/sampling/scan_kernels.h"
#include "model/tensor/fp8.h"

namespace tlm {
namespace {

int failures = 0;

void Check(bool good, const std::string& what) {
  if (good) return;
  std::printf("differs: %s\n", what.c_str());
  ++failures;
}

std::mt19937 random_bits(11);

std::vector<float> RandomFloats(int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random_bits);
  return values;
}

// What a row of activations holds, and the row itself in the type that kernels take.
struct Activations {
  explicit Activations(std::vector<float> wide, Storage storage) : type(storage), values(wide) {
    if (type == Storage::kF32) return;
    for (float& value : values) {
      halves.push_back(FloatToBf16(value));
      value = Bf16ToFloat(halves.back());
    }
  }
  void* data() { return type == Storage::kF32 ? static_cast<void*>(values.data()) : halves.data(); }
  float at(int64_t i) const {
    const auto place = static_cast<size_t>(i);
    return type == Storage::kF32 ? values[place] : Bf16ToFloat(halves[place]);
  }
  double tolerance(double value) const {
    return 1e-5 + std::abs(value) * (type == Storage::kF32 ? 1e-5 : 1.0 / 128);
  }

  Storage type;
  std::vector<float> values;
  std::vector<uint16_t> halves;
};

void CheckNorms(const Kernels& kernels, Storage type, bool layer) {
  for (const int64_t n : {1, 7, 16, 65, 1027}) {
    const std::vector<float> x = RandomFloats(n), gain = RandomFloats(n), bias = RandomFloats(n);
    Activations delta(RandomFloats(n), type), out(RandomFloats(n), type);
    std::vector<float> sum(x);
    kernels.add_norm({.x = sum.data(),
                      .delta = delta.data(),
                      .type = type,
                      .sum = sum.data(),
                      .n = n,
                      .gain = gain.data(),
                      .bias = bias.data(),
                      .layer = layer,
                      .eps = 1e-5f,
                      .out = out.data()});
    double mean = 0.0, square = 0.0;
    for (const float value : sum) mean += layer ? value / static_cast<double>(n) : 0.0;
    for (const float value : sum)
      square += (value - mean) * (value - mean) / static_cast<double>(n);
    for (int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<size_t>(j);
      Check(sum[i] == x[i] + delta.at(j), "sum of a norm");
      const double expected =
          (sum[i] - mean) / std::sqrt(square + 1e-5) * gain[i] + (layer ? bias[i] : 0.0);
      Check(std::abs(out.at(j) - expected) <= out.tolerance(expected),
            "norm of " + std::to_string(n));
    }
  }
}

void CheckHeads(const Kernels& kernels, Storage type, bool interleaved) {
  for (const int64_t dim : {2, 6, 12, 128, 200, 1024}) {
    const std::vector<float> gain = RandomFloats(dim);
    std::vector<float> angles;
    for (int64_t i = 0; i < dim / 2; ++i) {
      angles.push_back(std::cos(0.1f * static_cast<float>(i)));
      angles.push_back(std::sin(0.1f * static_cast<float>(i)));
    }
    Activations heads(RandomFloats(3 * dim), type);
    std::vector<double> normed;
    for (int64_t head = 0; head < 3; ++head) {
      double square = 0.0;
      for (int64_t d = 0; d < dim; ++d) square += std::pow(heads.at(head * dim + d), 2.0);
      const double root = std::sqrt(square / static_cast<double>(dim) + 1e-5);
      for (int64_t d = 0; d < dim; ++d) {
        normed.push_back(heads.at(head * dim + d) / root * gain[static_cast<size_t>(d)]);
      }
    }
    kernels.prepare_heads({.heads = heads.data(),
                           .type = type,
                           .count = 3,
                           .head_dim = dim,
                           .gain = gain.data(),
                           .eps = 1e-5f,
                           .angles = angles.data(),
                           .interleaved = interleaved});
    for (int64_t pair = 0; pair < 3 * dim / 2; ++pair) {
      const int64_t start = pair / (dim / 2) * dim, i = pair % (dim / 2);
      const int64_t first = start + (interleaved ? 2 * i : i);
      const int64_t second = start + (interleaved ? 2 * i + 1 : i + dim / 2);
      const double a = normed[static_cast<size_t>(first)], b = normed[static_cast<size_t>(second)];
      const double cosine = angles[static_cast<size_t>(2 * i)];
      const double sine = angles[static_cast<size_t>(2 * i + 1)];
      const double size = std::abs(a) + std::abs(b);
      Check(std::abs(heads.at(first) - (a * cosine - b * sine)) <= heads.tolerance(size) &&
                std::abs(heads.at(second) - (a * sine + b * cosine)) <= heads.tolerance(size),
            "head of " + std::to_string(dim));
    }
  }
}

float Rounded(float value, Storage storage) {
  if (storage == Storage::kBF16) return Bf16ToFloat(FloatToBf16(value));
  return storage == Storage::kF16 ? F16ToFloat(FloatToF16(value)) : value;
}

// Rows of `n` keys or values as they are stored.
std::vector<float> Rounded(std::vector<float> rows, int64_t n, Storage storage) {
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(n)) {
    const std::span<float> row(rows.data() + begin, static_cast<size_t>(n));
    uint32_t largest = 0;
    for (const float value : row) largest = std::max(largest, Fp8BitsOf(value) & 0x7fffffffu);
    const uint8_t scale = Fp8ScaleOf(largest);
    for (float& value : row) {
      value = storage == Storage::kF8
                  ? Fp8Value(Fp8Of(value * Fp8InverseScale(scale))) * Fp8Scale(scale)
                  : Rounded(value, storage);
    }
  }
  return rows;
}

// One query over `tokens` keys and values of one head, which it stores first.
void CheckAttention(const Kernels& kernels, Storage storage, int64_t dim, int64_t tokens) {
  const int64_t row_bytes = storage == Storage::kF32  ? 4 * dim
                            : storage == Storage::kF8 ? dim + 1
                                                      : 2 * dim;
  const int64_t head_bytes = 64 * row_bytes, blocks = (tokens + 63) / 64;
  std::vector<char> cache(static_cast<size_t>(blocks * 2 * head_bytes));
  std::vector<int32_t> table;
  for (int64_t b = 0; b < blocks; ++b) table.push_back(static_cast<int32_t>(blocks - 1 - b));
  const std::vector<float> query = RandomFloats(dim), keys = RandomFloats(tokens * dim),
                           values = RandomFloats(tokens * dim);
  for (int64_t t = 0; t < tokens; ++t) {
    char* const block = cache.data() + table[static_cast<size_t>(t / 64)] * 2 * head_bytes;
    kernels.store_kv({.key = keys.data() + t * dim,
                      .value = values.data() + t * dim,
                      .stride = dim,
                      .head_dim = dim,
                      .slot = t % 64,
                      .keys = block,
                      .values = block + head_bytes,
                      .storage = storage});
  }
  const std::vector<float> stored_keys = Rounded(keys, dim, storage),
                           stored_values = Rounded(values, dim, storage);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  std::vector<double> weights, expected(static_cast<size_t>(dim));
  double sum = 0.0;
  for (int64_t t = 0; t < tokens; ++t) {
    double score = 0.0;
    for (int64_t d = 0; d < dim; ++d) {
      score +=
          double{query[static_cast<size_t>(d)]} * stored_keys[static_cast<size_t>(t * dim + d)];
    }
    weights.push_back(std::exp(score * scale));
    sum += weights.back();
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t d = 0; d < dim; ++d) {
      expected[static_cast<size_t>(d)] +=
          weights[static_cast<size_t>(t)] / sum * stored_values[static_cast<size_t>(t * dim + d)];
    }
  }
  std::vector<float> out(static_cast<size_t>(dim));
  struct alignas(64) Line {
    float floats[16];
  };
  std::vector<Line> scratch(static_cast<size_t>(AttentionScratch(kMaxAttentionRows, dim) / 16 + 1));
  kernels.attention({.q = query.data(),
                     .q_stride = dim,
                     .tokens = 1,
                     .heads = 1,
                     .head_dim = dim,
                     .scale = scale,
                     .position = tokens - 1,
                     .block_table = table.data(),
                     .cache = cache.data(),
                     .storage = storage,
                     .block_bytes = 2 * head_bytes,
                     .value_offset = head_bytes,
                     .out = out.data(),
                     .out_stride = dim,
                     .scratch = scratch.data()->floats});
  for (int64_t d = 0; d < dim; ++d) {
    const auto i = static_cast<size_t>(d);
    Check(std::abs(out[i] - expected[i]) <= 1e-5,
          "attention, head of " + std::to_string(dim) + ", " + std::to_string(tokens) + " tokens");
  }
}

// Element (n, i) of a packed matrix, in elements from its start; see MatMulArgs.
int64_t PackedIndex(Storage storage, int64_t k, int64_t n, int64_t i) {
  if (storage != Storage::kBF16) return (n / 16 * k + i) * 16 + n % 16;
  const int64_t padded = (k + kBf16InputStep - 1) / kBf16InputStep * kBf16InputStep;
  return (n / 16 * padded / 2 + i / 2) * 32 + n % 16 * 2 + i % 2;
}

void CheckMatMul(const Kernels& kernels, Storage storage, int64_t rows, int64_t n, int64_t k) {
  const std::vector<float> x = RandomFloats(rows * k), w = RandomFloats(n * k),
                           bias = RandomFloats(n);
  const int64_t panels = (n + 15) / 16;
  std::vector<float> floats(static_cast<size_t>(panels * 16 * (k + kBf16InputStep)));
  std::vector<uint16_t> halves(floats.size());
  for (int64_t output = 0; output < n; ++output) {
    for (int64_t i = 0; i < k; ++i) {
      const auto to = static_cast<size_t>(PackedIndex(storage, k, output, i));
      const float value = w[static_cast<size_t>(output * k + i)];
      floats[to] = value;
      halves[to] = storage == Storage::kBF16 ? FloatToBf16(value) : FloatToF16(value);
    }
  }
  const MatMulNeeds needs = kernels.needs_of_matmul(Storage::kF32, storage);
  std::vector<uint32_t> packed_x(static_cast<size_t>(rows * k));
  if (needs.tile_rows > 0) {
    kernels.pack_rows({.x = x.data(),
                       .x_stride = k,
                       .rows = rows,
                       .tile_rows = needs.tile_rows,
                       .k = k,
                       .out = packed_x.data()});
  }
  std::vector<float> widened(static_cast<size_t>(kWidenedPanels * 16 * (k + kBf16InputStep)));
  std::vector<float> out(static_cast<size_t>(rows * n));
  kernels.matmul(
      {.x = x.data(),
       .x_stride = k,
       .rows = rows,
       .packed_x = packed_x.data(),
       .tile_rows = needs.tile_rows,
       .widened = widened.data(),
       .w = storage == Storage::kF32 ? static_cast<const void*>(floats.data()) : halves.data(),
       .w_type = storage,
       .k = k,
       .panel_end = panels,
       .epilogue = {.bias = bias.data(),
                    .function = ElementFunction::kSilu,
                    .outputs = n,
                    .out = out.data(),
                    .out_stride = n}});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t output = 0; output < n; ++output) {
      double sum = bias[static_cast<size_t>(output)];
      for (int64_t i = 0; i < k; ++i) {
        sum += double{x[static_cast<size_t>(row * k + i)]} *
               Rounded(w[static_cast<size_t>(output * k + i)], storage);
      }
      Check(std::abs(out[static_cast<size_t>(row * n + output)] - sum / (1 + std::exp(-sum))) <=
                1e-5 * static_cast<double>(k),
            "product of " + std::to_string(rows) + " rows");
    }
  }
}

void CheckScan(const ScanKernels& kernels) {
  std::vector<float> logits = RandomFloats(1001);
  logits[500] = 30.0f;
  bool valid = false;
  Check(kernels.max(logits.data(), 1001, &valid) == 30.0f && valid, "largest logit");
  std::vector<double> gaps(logits.size());
  std::vector<uint64_t> weights(logits.size());
  kernels.weigh(logits.data(), 1001, 30.0f, 0.25, kWeightScale, gaps.data(), weights.data());
  for (size_t i = 0; i < logits.size(); ++i) {
    Check(weights[i] == ProbabilityWeight(ScaledLogit(logits[i], 30.0f, 0.25)),
          "weight of a logit");
  }
  const NoiseKey key{.seed = 0x123456789abcdef0, .position = 77, .output_index = 3};
  std::vector<NoiseHit> hits(400 + kMoreHits);
  const int64_t found = kernels.find_noise(
      {.seed = key.seed, .position = 77, .output_index = 3, .groups = 100}, 0, hits.data());
  Check(found >= 400, "number of noise words");
  for (int64_t i = 0; i < found; ++i) {
    const NoiseHit hit = hits[static_cast<size_t>(i)];
    Check(hit.word == NoiseWord(key, hit.id), "noise word");
  }
}

}  // namespace
}  // namespace tlm

int main() {
  using namespace tlm;
  const Kernels& kernels = PortableKernels();
  for (const Storage type : {Storage::kF32, Storage::kBF16}) {
    for (const bool either : {false, true}) {
      CheckNorms(kernels, type, either);
      CheckHeads(kernels, type, either);
    }
  }
  for (const Storage storage : {Storage::kF32, Storage::kBF16, Storage::kF16}) {
    for (const int64_t rows : {1, 2, 7, 16, 33}) CheckMatMul(kernels, storage, rows, 40, 70);
  }
  for (const Storage storage : {Storage::kF32, Storage::kBF16, Storage::kF16, Storage::kF8}) {
    for (const int64_t dim : {8, 13, 64, 128}) {
      for (const int64_t tokens : {1, 63, 64, 65, 200}) {
        CheckAttention(kernels, storage, dim, tokens);
      }
    }
  }
  CheckScan(PortableScanKernels());
  std::printf("%d differences\n", failures);
  return failures == 0 ? 0 : 1;
}
