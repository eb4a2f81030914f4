// Runs attention on the threads of a pool.
#ifndef TLM_MODEL_OPS_CPU_ATTENTION_H_
#define TLM_MODEL_OPS_CPU_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Threading is as for Ops.
class CpuAttention {
 public:
  // Both arguments outlive this object.
  CpuAttention(const Kernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Reserve allocates working memory for heads of up to `head_dim` elements, unless there is
  // enough; Run needs it. Returns RESOURCE_EXHAUSTED like Allocate.
  size_t ReserveBytes(int64_t head_dim) const;
  absl::Status Reserve(Device& device, int64_t head_dim);
  void Release() {
    memory_ = Buffer();
    max_head_dim_ = 0;
  }

  // Implements Ops::Attention.
  void Run(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
           const KvLayer& cache, const Rows& out);

 private:
  // Consecutive tokens of one sequence and some query heads of one kv head.
  struct Unit {
    int64_t token = 0;
    int64_t tokens = 0;
    int64_t kv_head = 0;
    int64_t first_head = 0;
    int64_t heads = 0;
    int64_t tile_begin = 0;  // the tiles that they see
    int64_t tile_end = 0;

    int64_t rows() const { return tokens * heads; }
    int64_t tiles() const { return tile_end - tile_begin; }
    int64_t cost() const;
  };
  // Some tiles of a unit that is too large for one thread.
  struct Piece {
    int64_t unit = 0;
    int64_t tile_begin = 0;
    int64_t tile_end = 0;
    float* records = nullptr;
  };
  struct Call;  // the arguments of Run

  int64_t threads() const { return pool_.threads(); }
  void MakeUnits(const Call& call);
  // Moves the units that would keep one thread busy for too long to the front; returns their
  // number.
  int64_t UnitsToSplit(int64_t head_dim);
  // Cuts tiles of the first `splits` units into pieces_ and split_units_, from (unit, tile) on,
  // until the room for records is used up. Advances *unit and *tile past the cut tiles.
  void CutPieces(int64_t splits, int64_t head_dim, int64_t* unit, int64_t* tile);
  // Computes pieces_, and complete units from `first_unit` on.
  void Compute(const Call& call, int64_t first_unit);
  // Folds the records of split_units_.
  void FoldPieces(const Call& call);
  AttentionArgs ArgsOf(const Call& call, const Unit& unit) const;
  // Returns the keys of a tile that a unit sees, and of its first tile.
  static const void* KeysOf(const Call& call, const Unit& unit, int64_t tile);
  static const void* FirstKeys(const Call& call, const Unit& unit) {
    return KeysOf(call, unit, unit.tile_begin);
  }

  float* scratch(int64_t thread) const;
  float* states() const;
  float* records() const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  Buffer memory_;  // scratch of every thread, states of split units, their records
  int64_t max_head_dim_ = 0;
  // State of the running call, members only to reuse their memory.
  std::vector<Unit> units_;
  std::vector<Piece> pieces_;
  std::vector<Piece> split_units_;    // all tiles of a split unit that are cut now
  std::vector<int64_t> state_begin_;  // offsets of the split units' states, in floats
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_ATTENTION_H_
