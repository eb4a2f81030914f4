// Paged attention against double precision, over block orders, chunkings and types.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/kv_cache/kv_storage.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

struct AttentionCase {
  int64_t heads, kv_heads, head_dim, context;
  DType dtype;
  int64_t window = 0;
};

// One sequence's queries, keys and values for all its positions.
struct Data {
  explicit Data(const AttentionCase& c)
      : q(RandomFloats(c.context * c.heads * c.head_dim, 1)),
        k(RandomFloats(c.context * c.kv_heads * c.head_dim, 2)),
        v(RandomFloats(c.context * c.kv_heads * c.head_dim, 3)) {}
  std::vector<float> q, k, v;
};

float Rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(value));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(value));
  return value;
}

// Output of query head `head` at `position`.
std::vector<double> Expected(const AttentionCase& c, const Data& data, int64_t position,
                             int64_t head) {
  const int64_t kv_head = head / (c.heads / c.kv_heads);
  const auto at = [&](const std::vector<float>& values, int64_t t, int64_t d) {
    return static_cast<double>(
        Rounded(values[(t * c.kv_heads + kv_head) * c.head_dim + d], c.dtype));
  };
  const int64_t first = c.window > 0 ? std::max<int64_t>(0, position + 1 - c.window) : 0;
  std::vector<double> scores;
  for (int64_t t = first; t <= position; ++t) {
    double dot = 0.0;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      dot += data.q[(position * c.heads + head) * c.head_dim + d] * at(data.k, t, d);
    }
    scores.push_back(dot / std::sqrt(static_cast<double>(c.head_dim)));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out(c.head_dim, 0.0);
  double sum = 0.0;
  for (int64_t t = first; t <= position; ++t) {
    const double weight = std::exp(scores[t - first] - max);
    sum += weight;
    for (int64_t d = 0; d < c.head_dim; ++d) out[d] += weight * at(data.v, t, d);
  }
  for (double& value : out) value /= sum;
  return out;
}

class AttentionTest : public OpsTest {
 protected:
  // Runs the sequence in chunks over a cache whose memory starts as NaN and whose blocks are taken
  // in the given order.
  std::vector<float> Run(const AttentionCase& c, Data& data, int64_t chunk,
                         const std::vector<int32_t>& blocks) {
    const KvShape shape{1, c.kv_heads, c.head_dim, c.dtype};
    auto storage = KvStorage::Create(ops_->device(), shape, 8);
    EXPECT_THAT(storage, IsOk());
    const KvLayer cache = storage->layer(0);
    std::fill_n(static_cast<uint8_t*>(cache.data), storage->bytes(), uint8_t{0xff});  // NaNs
    std::vector<float> out(data.q.size());
    for (int64_t begin = 0; begin < c.context; begin += chunk) {
      const int64_t tokens = std::min(chunk, c.context - begin);
      std::vector<int32_t> positions, sequence_of(tokens, 0);
      for (int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<int32_t>(begin + t));
      const TokenLayout layout{.tokens = tokens,
                               .sequences = 1,
                               .max_blocks = static_cast<int64_t>(blocks.size()),
                               .positions = positions.data(),
                               .sequence_of = sequence_of.data(),
                               .block_tables = blocks.data()};
      const auto rows = [&](std::vector<float>& values, int64_t cols) {
        return Rows{values.data() + begin * cols, tokens, cols, cols};
      };
      const int64_t kv_cols = c.kv_heads * c.head_dim;
      EXPECT_THAT(ops_->WriteKv(rows(data.k, kv_cols), rows(data.v, kv_cols), layout, cache),
                  IsOk());
      const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
      EXPECT_THAT(ops_->Attention(rows(data.q, c.heads * c.head_dim), scale, c.window, layout,
                                  cache, rows(out, c.heads * c.head_dim)),
                  IsOk());
    }
    return out;
  }
};

TEST_P(AttentionTest, EqualsSoftmaxInDoublePrecisionAndIgnoresChunksAndBlockOrder) {
  const AttentionCase cases[] = {
      {4, 4, 64, 200, DType::kF32},       {6, 2, 20, 130, DType::kF32},
      {8, 1, 8, 65, DType::kBF16},        {2, 2, 128, 64, DType::kF16},
      {3, 3, 6, 63, DType::kF32},         {4, 2, 80, 129, DType::kBF16},
      {1, 1, 2, 1, DType::kF32},          {2, 1, 256, 70, DType::kF32},
      {2, 1, 7, 90, DType::kF32},         {4, 2, 12, 200, DType::kF32, 1},
      {4, 2, 12, 200, DType::kF32, 37},   {2, 2, 20, 200, DType::kF32, 64},
      {2, 1, 16, 256, DType::kBF16, 100}, {2, 1, 16, 130, DType::kF16, 129},
      {2, 1, 16, 130, DType::kF32, 1000}};
  for (const AttentionCase& c : cases) {
    Data data(c);
    const std::vector<float> whole = Run(c, data, c.context, {0, 1, 2, 3});
    for (int64_t position = 0; position < c.context; ++position) {
      for (int64_t head = 0; head < c.heads; ++head) {
        const std::vector<double> expected = Expected(c, data, position, head);
        for (int64_t d = 0; d < c.head_dim; ++d) {
          ASSERT_NEAR(whole[(position * c.heads + head) * c.head_dim + d], expected[d], 4e-6)
              << "position " << position << " head " << head << " dim " << d;
        }
      }
    }
    for (const int64_t chunk : {1, 17, 63, 64, 65, 100}) {
      ASSERT_EQ(Run(c, data, chunk, {6, 3, 7, 0}), whole) << "chunks of " << chunk;
    }
  }
}

TEST_P(AttentionTest, PositionsBeforeTheWindowAreNotRead) {
  const AttentionCase c{2, 1, 16, 200, DType::kF32, 50};
  Data data(c);
  const std::vector<float> clean = Run(c, data, 200, {0, 1, 2, 3});
  for (int64_t i = 0; i < 120 * 16; ++i) {
    data.k[i] = data.v[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<float> poisoned = Run(c, data, 200, {0, 1, 2, 3});
  // Position 119 + 50 is the first whose window begins after the poison.
  for (size_t i = 169 * 32; i < clean.size(); ++i) ASSERT_EQ(poisoned[i], clean[i]) << i;
  EXPECT_TRUE(std::isnan(poisoned[168 * 32]));
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionCase c{1, 1, 16, 150, DType::kF32};
  Data data(c);
  for (float& value : data.q) value *= 1000.0f;
  const std::vector<float> out = Run(c, data, 150, {0, 1, 2});
  for (int64_t position = 0; position < c.context; ++position) {
    const std::vector<double> expected = Expected(c, data, position, 0);
    for (int64_t d = 0; d < c.head_dim; ++d) {
      ASSERT_NEAR(out[position * c.head_dim + d], expected[d], 2e-3);
    }
  }
}

TEST_P(AttentionTest, NonFiniteQueriesStayVisible) {
  const AttentionCase c{1, 1, 16, 70, DType::kF32};
  Data data(c);
  for (int64_t d = 0; d < 16; ++d) data.q[69 * 16 + d] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = Run(c, data, 70, {0, 1});
  EXPECT_TRUE(std::isnan(out[69 * 16]));
  EXPECT_FALSE(std::isnan(out[68 * 16]));
}

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionTest, ::testing::ValuesIn(AvailableIsas()), IsaTestName);

}  // namespace
}  // namespace tlm
