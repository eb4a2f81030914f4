// Operations on one row at a time, against double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/kv_cache/kv_storage.h"
#include "model/ops/rope_table.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

// The distance of a float to the next: relative errors are counted in these.
constexpr double kUlp = std::numeric_limits<float>::epsilon();

double RootOf(double mean_square, double eps, EpsPlacement placement) {
  return placement == EpsPlacement::kInsideRoot ? std::sqrt(mean_square + eps)
                                                : std::sqrt(mean_square) + eps;
}

struct EpsCase {
  float eps;
  EpsPlacement placement;
};
// Also an eps that outweighs the row: only then does its place show.
constexpr EpsCase kEpsCases[] = {{1e-5f, EpsPlacement::kInsideRoot},
                                 {1e-5f, EpsPlacement::kOutsideRoot},
                                 {0.3f, EpsPlacement::kInsideRoot},
                                 {0.3f, EpsPlacement::kOutsideRoot}};

class NormTest : public OpsTest {
 protected:
  // Row lengths: within one pass of a block of threads, several passes, and what is left of them.
  std::vector<int64_t> Lengths() const {
    if (GetParam().emulated) return {1, 7, 20, 768, 2051, 4104, 9000};
    return {1, 4, 7, 20, 33, 768, 1024, 2051, 4104, 9000, 16384, 20001};
  }

  // norm(v) of one row, and what the computed one may be off by.
  struct Expected {
    std::vector<double> values;
    std::vector<double> tolerance;
  };
  Expected ExpectedOf(const Norm& norm, const std::vector<float>& v, const std::vector<float>& gain,
                      const std::vector<float>& bias) const {
    const auto n = static_cast<double>(v.size());
    double mean = 0.0, square = 0.0;
    const bool layer = norm.kind == Norm::Kind::kLayer;
    for (const float value : v) mean += layer ? value / n : 0.0;
    for (const float value : v) square += std::pow(value - mean, 2.0) / n;
    const double root = RootOf(square, norm.eps, norm.placement);
    Expected expected;
    for (size_t j = 0; j < v.size(); ++j) {
      const double value = (v[j] - mean) / root * gain[j] + (layer ? bias[j] : 0.0);
      expected.values.push_back(value);
      // The mean is off by some rounding errors of its size over the root.
      const double computed =
          16 * kUlp *
          (std::abs(mean) / root * std::abs(gain[j]) + std::abs(value) + (layer ? 1.0 : 0.0));
      expected.tolerance.push_back(computed + RoundingError(value, activations()));
    }
    return expected;
  }
};

TEST_P(NormTest, AddNormAddsThenNormalises) {
  constexpr int64_t kRows = 3;
  for (const int64_t cols : Lengths()) {
    const std::vector<float> gain = RandomFloats(cols, 8), bias = RandomFloats(cols, 9);
    const Buffer device_gain = Upload(gain), device_bias = Upload(bias);
    for (const Norm::Kind kind : {Norm::Kind::kRms, Norm::Kind::kLayer}) {
      for (const auto& [eps, placement] : kEpsCases) {
        std::vector<float> x = RandomFloats(kRows * cols, 7);
        // A mean that a variance taken as E(x^2) - E(x)^2 would drown in.
        if (kind == Norm::Kind::kLayer) {
          for (float& value : x) value += 100.0f;
        }
        const std::vector<float> delta = Rounded(RandomFloats(kRows * cols, 10), activations());
        const Norm norm{.kind = kind,
                        .gain = device_gain.as<float>(),
                        .bias = kind == Norm::Kind::kLayer ? device_bias.as<float>() : nullptr,
                        .eps = eps,
                        .placement = placement};
        const DeviceRows device_x = Upload(x, cols, DType::kF32);
        const DeviceRows device_delta = Upload(delta, cols, activations());
        const DeviceRows out = Poisoned(kRows, cols, activations());
        ASSERT_THAT(ops_->AddNorm(device_x.rows, device_delta.rows, norm, out.rows), IsOk());
        for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
        ASSERT_EQ(Download(device_x), x) << "the sum";
        const std::vector<float> actual = Download(out);
        for (int64_t row = 0; row < kRows; ++row) {
          const std::vector<float> v(x.begin() + row * cols, x.begin() + (row + 1) * cols);
          const Expected expected = ExpectedOf(norm, v, gain, bias);
          for (int64_t j = 0; j < cols; ++j) {
            ASSERT_NEAR(actual[row * cols + j], expected.values[j], expected.tolerance[j])
                << cols << " columns, row " << row << ", eps " << eps;
          }
        }
        // What is there already needs no addition, and neither x nor the result changes.
        const DeviceRows again = Poisoned(kRows, cols, activations());
        ASSERT_THAT(ops_->AddNorm(device_x.rows, Rows(), norm, again.rows), IsOk());
        ASSERT_EQ(Download(device_x), x);
        ASSERT_EQ(Download(again), actual);
        if (GetParam().emulated && cols > 4104) break;
      }
    }
  }
}

TEST_P(NormTest, GatherAddNormTakesRowsInAnyOrderAndLeavesX) {
  for (const int64_t cols : {21, 64, 2056}) {
    const std::vector<float> x = RandomFloats(5 * cols, 11);
    const std::vector<float> delta = Rounded(RandomFloats(5 * cols, 12), activations());
    const Buffer gain = Upload(RandomFloats(cols, 13));
    const Norm norm{.gain = gain.as<float>(), .eps = 1e-5f};
    const DeviceRows device_x = Upload(x, cols, DType::kF32);
    const DeviceRows device_delta = Upload(delta, cols, activations());
    const std::vector<int32_t> rows = {4, 0, 3, 0};
    const Buffer device_rows = Upload(rows);
    const DeviceRows out = Poisoned(4, cols, activations());
    ASSERT_THAT(ops_->GatherAddNorm(device_x.rows, device_delta.rows, device_rows.as<int32_t>(),
                                    norm, out.rows),
                IsOk());
    EXPECT_EQ(Download(device_x), x);
    // The same bits as the norm that adds in place.
    const DeviceRows all = Poisoned(5, cols, activations());
    ASSERT_THAT(ops_->AddNorm(device_x.rows, device_delta.rows, norm, all.rows), IsOk());
    const std::vector<float> expected = Download(all), actual = Download(out);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t j = 0; j < cols; ++j) {
        ASSERT_EQ(actual[static_cast<int64_t>(r) * cols + j], expected[rows[r] * cols + j]);
      }
    }
  }
}

TEST_P(NormTest, RowsOfAnyAlignmentGiveTheSameBits) {
  constexpr int64_t kCols = 72;
  const std::vector<float> x = RandomFloats(2 * kCols, 11);
  const Buffer gain = Upload(RandomFloats(kCols, 13));
  const Norm norm{.gain = gain.as<float>(), .eps = 1e-5f};
  std::vector<float> aligned;
  for (const int64_t extra : {8, 1, 0}) {
    const DeviceRows device_x = Upload(x, kCols, DType::kF32, extra);
    const DeviceRows delta = Upload(x, kCols, activations(), extra);
    const DeviceRows out = Upload(std::vector<float>(x.size(), 0.0f), kCols, activations(), extra);
    ASSERT_THAT(ops_->AddNorm(device_x.rows, delta.rows, norm, out.rows), IsOk());
    if (aligned.empty()) aligned = Download(out);
    EXPECT_EQ(Download(out), aligned) << extra;
  }
}

class EmbedTest : public OpsTest {};

TEST_P(EmbedTest, GathersTokensAndPositions) {
  for (const int64_t cols : {5, 24, 2056}) {
    const HostMatrix tokens(40, cols, weights(), 1), places(150, cols, weights(), 2);
    const auto table = Pack(tokens), positions_table = Pack(places);
    Batch batch = BatchOf({{.begin = 3, .tokens = 2, .blocks = {0, 1, 2}},
                           {.begin = 130, .tokens = 9, .blocks = {3, 4, 5}}});
    for (size_t t = 0; t < batch.token_ids.size(); ++t) {
      batch.token_ids[t] = static_cast<int32_t>((39 + t * 7) % 40);
    }
    for (const bool with_places : {false, true}) {
      const DeviceRows out = Poisoned(ops_->PaddedRows(batch.tokens()), cols, DType::kF32);
      RunBatch(batch, [&](const DeviceBatch& on_device) {
        ASSERT_THAT(ops_->Embed(*table, with_places ? positions_table.get() : nullptr, on_device,
                                out.rows.First(on_device.layout.tokens)),
                    IsOk());
      });
      const std::vector<float> actual = Download(out, batch.tokens());
      for (int64_t t = 0; t < batch.tokens(); ++t) {
        for (int64_t j = 0; j < cols; ++j) {
          const float place = with_places ? places.at(batch.positions[t], j) : 0.0f;
          ASSERT_EQ(actual[t * cols + j], tokens.at(batch.token_ids[t], j) + place);
        }
      }
    }
  }
}

struct HeadCase {
  int64_t heads, kv_heads, head_dim;
};

class PrepareAttentionTest : public OpsTest {};

TEST_P(PrepareAttentionTest, NormalisesAndRotatesQueriesInPlace) {
  const HeadCase cases[] = {{2, 1, 12}, {3, 3, 6}, {4, 2, 128}, {2, 1, 200}, {1, 1, 320}};
  for (const HeadCase& c : cases) {
    const int64_t dim = c.head_dim, cols = (c.heads + 2 * c.kv_heads) * dim;
    Reserve({.vocab_size = 64,
             .num_heads = c.heads,
             .num_kv_heads = c.kv_heads,
             .head_dim = dim,
             .gated_outputs = 0,
             .inputs = 64},
            {.max_tokens = 160, .max_sequences = 8, .max_logits_rows = 8, .max_context = 256});
    auto storage = KvStorage::Create(ops_->device(), {1, c.kv_heads, dim, activations()}, 4);
    ASSERT_THAT(storage, IsOk());
    const std::vector<float> entries = RopeTable(dim, 10000.0).Entries(0, 256);
    const Buffer table = Upload(entries);
    const std::vector<float> q_gain = RandomFloats(dim, 5);
    const Buffer device_q_gain = Upload(q_gain), device_k_gain = Upload(RandomFloats(dim, 6));
    const Batch batch = BatchOf({{.begin = 0, .tokens = 2, .blocks = {2, 1, 0, 0}},
                                 {.begin = 190, .tokens = 3, .blocks = {0, 1, 3, 0}}});
    const std::vector<float> qkv = Rounded(RandomFloats(5 * cols, 3), activations());
    for (int variant = 0; variant < 8; ++variant) {
      const bool normed = variant & 1, rotated = variant & 2, interleaved = variant & 4;
      if (interleaved && !rotated) continue;
      HeadTransform transform{
          .eps = 1e-3f, .pairing = interleaved ? RopePairing::kInterleaved : RopePairing::kHalf};
      HeadReference reference{.eps = transform.eps, .pairing = transform.pairing};
      if (normed) {
        transform.q_gain = device_q_gain.as<float>();
        transform.k_gain = device_k_gain.as<float>();
        reference.gain = q_gain;
      }
      if (rotated) {
        transform.rope_table = table.as<float>();
        reference.theta = 10000.0;
      }
      const DeviceRows rows = UploadPadded(qkv, cols, activations());
      RunBatch(batch, [&](const DeviceBatch& on_device) {
        ASSERT_THAT(ops_->PrepareAttention(rows.rows.First(on_device.layout.tokens), transform,
                                           on_device.layout, storage->layer(0)),
                    IsOk());
      });
      const std::vector<float> actual = Download(rows, 5);
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t head = 0; head < c.heads; ++head) {
          const std::vector<double> expected =
              Transformed({qkv.data() + t * cols + head * dim, static_cast<size_t>(dim)}, reference,
                          batch.positions[t]);
          double largest = 0.0;
          for (const double value : expected) largest = std::max(largest, std::abs(value));
          for (int64_t d = 0; d < dim; ++d) {
            ASSERT_NEAR(actual[t * cols + head * dim + d], expected[d],
                        16 * kUlp * largest + RoundingError(expected[d], activations()))
                << "head_dim " << dim << ", variant " << variant << ", token " << t;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);
INSTANTIATE_TEST_SUITE_P(Backends, EmbedTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);
INSTANTIATE_TEST_SUITE_P(Backends, PrepareAttentionTest, ::testing::ValuesIn(OpsCases()),
                         OpsCaseName);

}  // namespace
}  // namespace tlm
