// Checks the operations against the CS336 course's recorded inputs and outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "model/kv_cache/kv_storage.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/rope_table.h"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr double kTolerance = 1e-6;
constexpr int64_t kDim = 64;

class SnapshotTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::optional<std::string> directory = OraclePath("cs336-snapshots");
    if (!directory.has_value()) GTEST_SKIP() << "no oracle directory beside the checkout";
    directory_ = *directory;
    auto ops = CpuOps::Create(2, GetParam());
    ASSERT_THAT(ops, IsOk());
    ops_ = *std::move(ops);
    ASSERT_THAT(ops_->Reserve({.max_tokens = 256}, {.head_dim = kDim, .inputs = 1024}, DType::kF32),
                IsOk());
  }
  NpyArray Read(const std::string& name) const { return ReadNpy(directory_ + "/" + name + ".npy"); }
  std::vector<float> ReadFloats(const std::string& name) const {
    const NpyArray array = Read(name);
    return std::vector<float>(array.values.begin(), array.values.end());
  }
  static void ExpectNear(const std::vector<float>& actual, const NpyArray& expected) {
    ASSERT_EQ(actual.size(), expected.values.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected.values[i], kTolerance) << "element " << i;
    }
  }
  static Rows AsRows(std::vector<float>& values) {
    return {values.data(), static_cast<int64_t>(values.size()) / kDim, kDim, kDim};
  }
  // Returns the queries from PrepareAttention; keys and values are then in cache_.
  std::vector<float> Prepare(const std::vector<float>& q, const std::vector<float>& k,
                             const std::vector<float>& v, const std::vector<int32_t>& positions,
                             const HeadTransform& transform);

  // Computes softmax(q K^T / 8) V of query `query` over the keys whose mask is true: these keys, in
  // order, are the cached positions of a sequence of their own.
  void AttendMasked(const std::vector<float>& q, std::vector<float> k, std::vector<float> v,
                    const std::vector<double>& mask, int64_t query, float* out);

  std::string directory_;
  std::unique_ptr<CpuOps> ops_;
  std::optional<KvStorage> cache_;  // one block of one head
};

std::vector<float> SnapshotTest::Prepare(const std::vector<float>& q, const std::vector<float>& k,
                                         const std::vector<float>& v,
                                         const std::vector<int32_t>& positions,
                                         const HeadTransform& transform) {
  const int64_t tokens = static_cast<int64_t>(positions.size());
  auto storage = KvStorage::Create(ops_->device(), {1, 1, kDim, DType::kF32}, 1);
  EXPECT_THAT(storage, IsOk());
  cache_.emplace(*std::move(storage));
  const std::vector<int32_t> sequence_of(positions.size(), 0), block_table = {0};
  const TokenLayout layout{.tokens = tokens,
                           .max_blocks = 1,
                           .positions = positions.data(),
                           .sequence_of = sequence_of.data(),
                           .block_tables = block_table.data()};
  std::vector<float> qkv(static_cast<size_t>(3 * tokens * kDim));
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(&q[t * kDim], kDim, &qkv[3 * t * kDim]);
    std::copy_n(&k[t * kDim], kDim, &qkv[(3 * t + 1) * kDim]);
    std::copy_n(&v[t * kDim], kDim, &qkv[(3 * t + 2) * kDim]);
  }
  EXPECT_THAT(ops_->PrepareAttention({qkv.data(), tokens, 3 * kDim, 3 * kDim}, transform, layout,
                                     cache_->layer(0)),
              IsOk());
  std::vector<float> prepared(static_cast<size_t>(tokens * kDim));
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(&qkv[3 * t * kDim], kDim, &prepared[t * kDim]);
  }
  return prepared;
}

TEST_P(SnapshotTest, RmsNorm) {
  std::vector<float> x = ReadFloats("in_embeddings");
  const std::vector<float> gain = ReadFloats("recovered_layers.1.ln1.weight");
  ASSERT_THAT(ops_->AddNorm(AsRows(x), Rows(), {.gain = gain.data(), .eps = 1e-5f}, AsRows(x)),
              IsOk());
  ExpectNear(x, Read("test_rmsnorm"));
}

// One token per position: its query is rotated in place, its key and value go to a cache.
TEST_P(SnapshotTest, RopeOnInterleavedPairs) {
  const std::vector<float> x = ReadFloats("in_embeddings");
  const std::vector<float> table = RopeTable(kDim, 10000.0).Entries(0, 12);
  std::vector<int32_t> positions(12);
  std::iota(positions.begin(), positions.end(), 0);
  const std::ptrdiff_t sequence = 12 * kDim;
  std::vector<float> rotated;
  for (auto first = x.begin(); first != x.end(); first += sequence) {
    const std::vector<float> one(first, first + sequence);
    const std::vector<float> prepared =
        Prepare(one, one, one, positions,
                {.rope_table = table.data(), .pairing = RopePairing::kInterleaved});
    rotated.insert(rotated.end(), prepared.begin(), prepared.end());
  }
  ExpectNear(rotated, Read("test_rope"));
}

void SnapshotTest::AttendMasked(const std::vector<float>& q, std::vector<float> k,
                                std::vector<float> v, const std::vector<double>& mask,
                                int64_t query, float* out) {
  constexpr int64_t kKeys = 16;
  const int64_t batch = query / 12;
  std::vector<float> kept_k, kept_v;
  for (int64_t key = 0; key < kKeys; ++key) {
    if (mask[query * kKeys + key] == 0.0) continue;
    const int64_t at = (batch * kKeys + key) * kDim;
    kept_k.insert(kept_k.end(), k.begin() + at, k.begin() + at + kDim);
    kept_v.insert(kept_v.end(), v.begin() + at, v.begin() + at + kDim);
  }
  const int64_t kept = static_cast<int64_t>(kept_k.size()) / kDim;
  std::vector<int32_t> positions(kept);
  std::iota(positions.begin(), positions.end(), 0);
  Prepare(kept_k, kept_k, kept_v, positions, {});
  const int32_t last = positions.back(), sequence = 0, block = 0;
  const TokenLayout layout{.tokens = 1,
                           .max_blocks = 1,
                           .positions = &last,
                           .sequence_of = &sequence,
                           .block_tables = &block};
  std::vector<float> row(q.begin() + query * kDim, q.begin() + (query + 1) * kDim);
  ASSERT_THAT(ops_->Attention(AsRows(row), 1.0f / std::sqrt(static_cast<float>(kDim)), 0, layout,
                              cache_->layer(0), {out, 1, kDim, kDim}),
              IsOk());
}

TEST_P(SnapshotTest, ScaledDotProductAttention) {
  const std::vector<float> q = ReadFloats("q"), k = ReadFloats("k"), v = ReadFloats("v");
  const std::vector<double> mask = Read("mask").values;
  std::vector<float> out(q.size());
  for (int64_t query = 0; query < 4 * 12; ++query) {
    AttendMasked(q, k, v, mask, query, out.data() + query * kDim);
  }
  ExpectNear(out, Read("test_scaled_dot_product_attention"));
  ExpectNear(out, Read("test_4d_scaled_dot_product_attention"));
}

INSTANTIATE_TEST_SUITE_P(Cpu, SnapshotTest, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace tlm
