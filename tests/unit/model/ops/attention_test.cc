// Paged attention against double precision, over block orders, chunkings and types.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/kv_cache/kv_storage.h"
#include "model/ops/rope_table.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

struct AttentionCase {
  int64_t heads, kv_heads, head_dim, context;
  int64_t window = 0;
  int64_t cols() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t q_cols() const { return heads * head_dim; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }
};

// The transformation of heads before attention; none by default.
struct Transform {
  HeadReference q, k;
};

constexpr double kTheta = 10000.0;

class AttentionTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    if (ops_ != nullptr) kv_type_ = SameTypeAsMatrices();
  }

  // Keys and values are stored as the matrices are where the backend can.
  DType SameTypeAsMatrices() const {
    return ops_->TakesKvType(weights(), weights()) ? weights() : ops_->DefaultKvType(weights());
  }
  DType kv_type() const { return kv_type_; }
  // That type, and 8 bits where the backend has them.
  std::vector<DType> KvTypes() const {
    std::vector<DType> types = {SameTypeAsMatrices()};
    if (ops_->TakesKvType(weights(), DType::kF8E4M3)) types.push_back(DType::kF8E4M3);
    return types;
  }

  // Queries, keys and values of all positions, with the values that both activations and cache
  // have; those of 8 bits only the second time, when the largest of a row is rounded no more.
  std::vector<float> RandomQkv(const AttentionCase& c) const {
    std::vector<float> qkv = Rounded(RandomFloats(c.context * c.cols(), 1), activations());
    for (int time = 0; time < 2; ++time) qkv = Stored(std::move(qkv), c.head_dim, kv_type());
    return qkv;
  }

  // Runs the sequence in chunks over a cache whose memory starts as NaN and whose blocks are taken
  // in the given order; all outputs, end to end.
  std::vector<float> Run(const AttentionCase& c, const std::vector<float>& qkv, int64_t chunk,
                         const std::vector<int32_t>& blocks, const Transform& transform = {}) {
    Reserve({.vocab_size = 64,
             .num_heads = c.heads,
             .num_kv_heads = c.kv_heads,
             .head_dim = c.head_dim,
             .gated_outputs = 0,
             .inputs = 64,
             .fp8_cache = kv_type() == DType::kF8E4M3},
            {.max_tokens = 256, .max_sequences = 4, .max_logits_rows = 4, .max_context = 256});
    auto storage = KvStorage::Create(ops_->device(), {3, c.kv_heads, c.head_dim, kv_type()}, 8);
    EXPECT_THAT(storage, IsOk());
    const KvLayer cache = storage->layer(1);
    const std::vector<uint8_t> poison(storage->bytes(), 0xff);
    EXPECT_THAT(ops_->device().CopyToDevice(storage->block(0), poison.data(), poison.size()),
                IsOk());
    std::vector<Buffer> kept;
    const HeadTransform head_transform = OnDevice(c, transform, &kept);
    std::vector<float> out;
    for (int64_t begin = 0; begin < c.context; begin += chunk) {
      const int64_t tokens = std::min(chunk, c.context - begin);
      const std::vector<float> part(qkv.begin() + begin * c.cols(),
                                    qkv.begin() + (begin + tokens) * c.cols());
      const DeviceRows rows = UploadPadded(part, c.cols(), activations());
      const DeviceRows result = Poisoned(rows.rows.rows, c.q_cols(), activations());
      RunBatch(BatchOf({{.begin = begin, .tokens = tokens, .blocks = blocks}}),
               [&](const DeviceBatch& batch) {
                 const Rows chunk_rows = rows.rows.First(batch.layout.tokens);
                 ASSERT_THAT(
                     ops_->PrepareAttention(chunk_rows, head_transform, batch.layout, cache),
                     IsOk());
                 ASSERT_THAT(ops_->Attention(chunk_rows.Columns(0, c.q_cols()),
                                             static_cast<float>(c.scale()), c.window, batch.layout,
                                             cache, result.rows.First(batch.layout.tokens)),
                             IsOk());
               });
      const std::vector<float> values = Download(result, tokens);
      out.insert(out.end(), values.begin(), values.end());
    }
    return out;
  }

  // Compares with softmax in double precision. Probabilities may be rounded to the activation type
  // before they weigh the values. `score_error`: of the scores, where the transformed heads'
  // roundings may differ.
  void ExpectSoftmax(const AttentionCase& c, const std::vector<float>& qkv,
                     const std::vector<float>& actual, double tolerance,
                     const Transform& transform = {}, double score_error = 0.0) {
    const bool rounds = activations() != DType::kF32;
    const auto dim = static_cast<size_t>(c.head_dim);
    const auto head_of = [&](int64_t t, int64_t head, const HeadReference& reference, DType type) {
      const float* const from = qkv.data() + t * c.cols() + head * c.head_dim;
      std::vector<double> values = Transformed({from, dim}, reference, t);
      for (double& value : values) value = Rounded(static_cast<float>(value), type);
      return values;
    };
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t kv_head = head / (c.heads / c.kv_heads);
      std::vector<std::vector<double>> keys, values;
      for (int64_t t = 0; t < c.context; ++t) {
        keys.push_back(head_of(t, c.heads + kv_head, transform.k, kv_type()));
        values.push_back(head_of(t, c.heads + c.kv_heads + kv_head, {}, kv_type()));
      }
      for (int64_t p = 0; p < c.context; ++p) {
        const std::vector<double> q = head_of(p, head, transform.q, activations());
        const int64_t first = c.window > 0 ? std::max<int64_t>(0, p + 1 - c.window) : 0;
        std::vector<double> scores;
        for (int64_t t = first; t <= p; ++t) {
          double dot = 0.0;
          for (size_t d = 0; d < dim; ++d) dot += q[d] * keys[t][d];
          scores.push_back(dot * c.scale());
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        for (double& score : scores) sum += score = std::exp(score - max);
        for (size_t d = 0; d < dim; ++d) {
          double expected = 0.0, magnitude = 0.0;
          for (size_t j = 0; j < scores.size(); ++j) {
            const double term = scores[j] / sum * values[first + static_cast<int64_t>(j)][d];
            expected += term;
            magnitude += std::abs(term);
          }
          const double error =
              tolerance + RoundingError(expected, activations()) +
              ((rounds ? Roundoff(activations()) : 0.0) + 2 * score_error) * magnitude;
          ASSERT_NEAR(actual[p * c.q_cols() + head * c.head_dim + static_cast<int64_t>(d)],
                      expected, error)
              << "head_dim " << dim << " position " << p << " head " << head << " dim " << d;
        }
      }
    }
  }

  // Where keys and values of 8 bits are read as bfloat16, queries and weights may be rounded to it.
  double ScoreError(const AttentionCase& c) const {
    if (kv_type() != DType::kF8E4M3 || activations() != DType::kF32) return 0.0;
    return Roundoff(DType::kBF16) * (1.0 + std::sqrt(static_cast<double>(c.head_dim)));
  }

  DType kv_type_ = DType::kF32;

 private:
  HeadTransform OnDevice(const AttentionCase& c, const Transform& transform,
                         std::vector<Buffer>* kept) {
    const auto upload = [&](const std::vector<float>& values) {
      kept->push_back(Upload(values));
      return kept->back().as<float>();
    };
    HeadTransform result{.eps = static_cast<float>(transform.q.eps),
                         .placement = transform.q.placement,
                         .pairing = transform.q.pairing};
    if (!transform.q.gain.empty()) {
      result.q_gain = upload(transform.q.gain);
      result.k_gain = upload(transform.k.gain);
    }
    if (transform.q.theta != 0.0) {
      result.rope_table = upload(RopeTable(c.head_dim, transform.q.theta).Entries(0, 256));
    }
    return result;
  }
};

TEST_P(AttentionTest, EqualsSoftmaxInDoublePrecisionAndIgnoresChunksAndBlockOrder) {
  // The sizes of heads that only some kernels take are tested beside the kernels.
  const AttentionCase cases[] = {{8, 1, 64, 65},       {3, 3, 6, 63},        {2, 1, 320, 70},
                                 {4, 2, 12, 100, 37},  {4, 2, 64, 130, 100}, {4, 2, 12, 200, 1},
                                 {2, 1, 16, 130, 1000}};
  for (const DType kv : KvTypes()) {
    kv_type_ = kv;
    for (const AttentionCase& c : cases) {
      const std::vector<float> qkv = RandomQkv(c);
      const std::vector<float> whole = Run(c, qkv, c.context, {0, 1, 2, 3});
      ExpectSoftmax(c, qkv, whole, 6e-6, {}, ScoreError(c));
      if (HasFatalFailure()) return;
      for (const int64_t chunk : {1, 17, 65}) {
        ASSERT_EQ(Run(c, qkv, chunk, {6, 3, 7, 0}), whole)
            << DTypeName(kv) << ", head_dim " << c.head_dim << ", chunks of " << chunk;
      }
    }
  }
}

TEST_P(AttentionTest, HeadsAreNormalisedAndRotatedBefore) {
  const AttentionCase c{4, 2, 64, 80};
  Transform transform;
  for (HeadReference* const head : {&transform.q, &transform.k}) {
    head->gain = RandomFloats(c.head_dim, head == &transform.q ? 5 : 6);
    head->eps = 1e-3;
    head->theta = kTheta;
  }
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    transform.q.pairing = transform.k.pairing = pairing;
    const std::vector<float> qkv = RandomQkv(c);
    const std::vector<float> out = Run(c, qkv, 33, {5, 1, 2, 3}, transform);
    // Some elements of queries and keys, up to 6 each, may be rounded the other way.
    const double score_error = 4 * Roundoff(kv_type()) * 6 * 6 * c.scale();
    ExpectSoftmax(c, qkv, out, 6e-6, transform, score_error);
  }
}

TEST_P(AttentionTest, NonFiniteQueriesStayVisible) {
  for (const int64_t head_dim : {16, 64}) {
    const AttentionCase c{1, 1, head_dim, 70};
    std::vector<float> qkv = RandomQkv(c);
    for (int64_t d = 0; d < head_dim; ++d) {
      qkv[69 * c.cols() + d] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> out = Run(c, qkv, 70, {0, 1});
    EXPECT_TRUE(std::isnan(out[69 * head_dim]));
    EXPECT_FALSE(std::isnan(out[68 * head_dim]));
  }
}

TEST_P(AttentionTest, NonFiniteKeysAndValuesReachTheQueriesThatSeeThem) {
  const AttentionCase c{1, 1, 16, 140};
  for (const DType kv : KvTypes()) {
    kv_type_ = kv;
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      // A token's value, in a block of its own behind the first 64.
      std::vector<float> qkv = RandomQkv(c);
      qkv[70 * c.cols() + 2 * c.q_cols() + 3] = bad;
      const std::vector<float> out = Run(c, qkv, 140, {0, 1, 2});
      EXPECT_TRUE(std::isfinite(out[63 * 16 + 3]));
      for (const int64_t t : {70, 100, 139}) {
        EXPECT_FALSE(std::isfinite(out[t * 16 + 3])) << t;
        EXPECT_TRUE(std::isfinite(out[t * 16 + 4])) << t;
      }
    }
  }
}

TEST_P(AttentionTest, ANanScoreMakesEveryElementOfItsRowNan) {
  for (const int64_t head_dim : {16, 64}) {
    const AttentionCase c{1, 1, head_dim, 140};
    std::vector<float> qkv = RandomQkv(c);
    // Of the key of token 70, which the tokens from there on see.
    qkv[70 * c.cols() + c.q_cols() + 3] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = Run(c, qkv, 140, {0, 1, 2});
    for (int64_t i = 0; i < c.context * head_dim; ++i) {
      ASSERT_EQ(std::isnan(out[i]), i / head_dim >= 70) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);

}  // namespace
}  // namespace tlm
