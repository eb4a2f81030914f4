#include "model/ops/cpu/row_ops.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/packed_matrix.h"

namespace tlm {
namespace {

static_assert(kMaxHeadElements == kMaxHeadDim);

// Less work than this, some microseconds, is not worth handing to another thread.
constexpr int64_t kMinRowTaskElements = 16384;

char* At(const Rows& rows, int64_t row, int64_t column = 0) {
  return static_cast<char*>(rows.data) +
         static_cast<size_t>(row * rows.stride + column) * DTypeBytes(rows.dtype);
}

const CpuMatrix& CpuMatrixOf(const Matrix& matrix) { return static_cast<const CpuMatrix&>(matrix); }

AddNormArgs ArgsOf(const Norm& norm, const Rows& out) {
  return {.type = StorageOf(out.dtype),
          .n = out.cols,
          .gain = norm.gain,
          .bias = norm.bias,
          .layer = norm.kind == Norm::Kind::kLayer,
          .eps = norm.eps,
          .eps_outside_root = norm.placement == EpsPlacement::kOutsideRoot};
}

// Returns how many tokens from `token` on, before `end`, are in one sequence, at consecutive
// positions and in one block.
int64_t RunWithinBlock(const TokenLayout& layout, int64_t token, int64_t end) {
  int64_t run = 1;
  while (token + run < end && layout.sequence_of[token + run] == layout.sequence_of[token] &&
         layout.positions[token + run] == layout.positions[token] + run &&
         layout.positions[token + run] % kBlockTokens != 0) {
    ++run;
  }
  return run;
}

}  // namespace

void RowOps::ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body) {
  const int64_t rows_per_task = std::max<int64_t>(1, kMinRowTaskElements / work_per_row);
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  pool_.ParallelFor(tasks, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) body(row);
  });
}

void RowOps::Embed(const Matrix& table, const Matrix* positions_table, const DeviceBatch& batch,
                   const Rows& out) {
  const CpuMatrix& packed = CpuMatrixOf(table);
  TLM_CHECK(out.cols == packed.k() && out.rows == batch.layout.tokens);
  TLM_CHECK(positions_table == nullptr || out.cols == positions_table->k());
  // Each pair of elements is on its own cache line.
  constexpr int64_t kWorkPerElement = 16;
  ForEachRow(out.rows, kWorkPerElement * out.cols, [&](int64_t row) {
    float* const to = out.as<float>() + row * out.stride;
    packed.CopyRow(batch.token_ids[row], to);
    if (positions_table != nullptr) {
      CpuMatrixOf(*positions_table).AddRow(batch.layout.positions[row], to);
    }
  });
}

void RowOps::AddNorm(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out) {
  TLM_CHECK(out.cols == x.cols && out.rows == x.rows);
  const bool adds = delta.data != nullptr;
  TLM_CHECK(!adds || (delta.cols == x.cols && delta.rows == x.rows && delta.dtype == out.dtype));
  ForEachRow(x.rows, 2 * x.cols, [&](int64_t row) {
    AddNormArgs args = ArgsOf(norm, out);
    float* const values = x.as<float>() + row * x.stride;
    args.x = values;
    args.sum = values;
    args.delta = adds ? At(delta, row) : nullptr;
    args.out = At(out, row);
    kernels_.add_norm(args);
  });
}

void RowOps::GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows, const Norm& norm,
                           const Rows& out) {
  TLM_CHECK(out.cols == x.cols && delta.cols == x.cols && delta.dtype == out.dtype);
  ForEachRow(out.rows, 2 * x.cols, [&](int64_t row) {
    AddNormArgs args = ArgsOf(norm, out);
    args.x = x.as<float>() + rows[row] * x.stride;
    args.delta = At(delta, rows[row]);
    args.out = At(out, row);
    kernels_.add_norm(args);
  });
}

void RowOps::PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                              const TokenLayout& layout, const KvLayer& cache) {
  const int64_t kv_size = cache.num_kv_heads * cache.head_dim;
  const int64_t q_size = qkv.cols - 2 * kv_size;
  TLM_CHECK(q_size > 0 && q_size % kv_size == 0 && cache.head_dim <= kMaxHeadElements);
  // Keys are stored across a block: storing several tokens at a time writes full cache lines.
  constexpr int64_t kStoredTogether = 16;
  const int64_t fair = std::min(layout.tokens / (4 * pool_.threads()), kStoredTogether);
  // Heads are short and keys are scattered: an element is several times a norm's work.
  constexpr int64_t kWorkPerElement = 8;
  const int64_t tokens_per_task =
      std::max({int64_t{1}, kMinRowTaskElements / (kWorkPerElement * qkv.cols), fair});
  const int64_t tasks = (layout.tokens + tokens_per_task - 1) / tokens_per_task;
  pool_.ParallelFor(tasks, [&](int64_t task) {
    const int64_t begin = task * tokens_per_task;
    const int64_t end = std::min(layout.tokens, begin + tokens_per_task);
    for (int64_t token = begin; token < end; ++token) {
      PrepareHeads(qkv, transform, layout.positions[token], cache, token);
    }
    for (int64_t token = begin; token < end;) {
      const int64_t run = RunWithinBlock(layout, token, end);
      StoreKv(qkv, layout, cache, token, run);
      token += run;
    }
  });
}

void RowOps::PrepareHeads(const Rows& qkv, const HeadTransform& transform, int64_t position,
                          const KvLayer& cache, int64_t token) const {
  const int64_t head_dim = cache.head_dim;
  const int64_t q_heads = qkv.cols / head_dim - 2 * cache.num_kv_heads;
  HeadsArgs heads{.heads = At(qkv, token),
                  .type = StorageOf(qkv.dtype),
                  .count = q_heads,
                  .head_dim = head_dim,
                  .gain = transform.q_gain,
                  .eps = transform.eps,
                  .eps_outside_root = transform.placement == EpsPlacement::kOutsideRoot,
                  .interleaved = transform.pairing == RopePairing::kInterleaved};
  if (transform.rope_table != nullptr) heads.angles = transform.rope_table + position * head_dim;
  kernels_.prepare_heads(heads);
  heads.heads = At(qkv, token, q_heads * head_dim);
  heads.count = cache.num_kv_heads;
  heads.gain = transform.k_gain;
  kernels_.prepare_heads(heads);
}

void RowOps::StoreKv(const Rows& qkv, const TokenLayout& layout, const KvLayer& cache,
                     int64_t token, int64_t tokens) const {
  const int64_t head_dim = cache.head_dim;
  const int64_t kv_size = cache.num_kv_heads * head_dim;
  const int64_t position = layout.positions[token];
  const int64_t block =
      layout.block_tables[layout.sequence_of[token] * layout.max_blocks + position / kBlockTokens];
  const size_t head_bytes = cache.head_bytes();
  const auto heads = static_cast<size_t>(cache.num_kv_heads);
  char* const layer =
      static_cast<char*>(cache.data) + static_cast<size_t>(block) * cache.stride_bytes();
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    const int64_t column = qkv.cols - 2 * kv_size + head * head_dim;
    char* const keys = layer + static_cast<size_t>(head) * head_bytes;
    kernels_.store_kv({.key = At(qkv, token, column),
                       .value = At(qkv, token, column + kv_size),
                       .type = StorageOf(qkv.dtype),
                       .stride = qkv.stride,
                       .tokens = tokens,
                       .head_dim = head_dim,
                       .slot = position % kBlockTokens,
                       .keys = keys,
                       .values = keys + heads * head_bytes,
                       .storage = StorageOf(cache.dtype)});
  }
}

}  // namespace tlm
