// Runs row-wise operations on the threads of a pool.
#ifndef TLM_MODEL_OPS_CPU_ROW_OPS_H_
#define TLM_MODEL_OPS_CPU_ROW_OPS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/ops.h"

namespace tlm {

// Threading is as for Ops; each function implements the function of the same name there.
class RowOps {
 public:
  // Both arguments outlive this object.
  RowOps(const Kernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  void Embed(const Matrix& table, const Matrix* positions_table, const DeviceBatch& batch,
             const Rows& out);
  void AddNorm(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out);
  void GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows, const Norm& norm,
                     const Rows& out);
  void PrepareAttention(const Rows& qkv, const HeadTransform& transform, const TokenLayout& layout,
                        const KvLayer& cache);

 private:
  // Calls body(row) for every row, with several rows per task if each is little work.
  void ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body);
  // Prepares the queries and keys of one token.
  void PrepareHeads(const Rows& qkv, const HeadTransform& transform, int64_t position,
                    const KvLayer& cache, int64_t token) const;
  // Stores keys and values of tokens at consecutive positions of one sequence, within one block.
  void StoreKv(const Rows& qkv, const TokenLayout& layout, const KvLayer& cache, int64_t token,
               int64_t tokens) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_ROW_OPS_H_
