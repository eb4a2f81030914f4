// Reads the tensors of a checkpoint once: checks every value, hashes the weights, and keeps only
// the acquired tensors in memory.
#ifndef TLM_MODEL_WEIGHTS_CHECKPOINT_PAGER_H_
#define TLM_MODEL_WEIGHTS_CHECKPOINT_PAGER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/gmac.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"

namespace tlm {

class CheckpointPager : public TensorPager {
 public:
  struct Options {
    bool check_finite = true;
    bool release = true;  // false: Release does nothing, because others also read the tensors
    int threads = 0;      // for large tensors; 0: all processors
  };
  static constexpr int64_t kPieceBytes = int64_t{1} << 20;

  // `checkpoint` does not move and outlives this object.
  CheckpointPager(const Checkpoint& checkpoint, const Options& options);

  // Returns INVALID_ARGUMENT like CheckFinite; INTERNAL if libcrypto refuses.
  absl::Status Acquire(std::span<const TensorView> tensors) override;
  void Release(std::span<const TensorView> tensors) override;

  // Identifies the weights acquired so far, whatever files store them. Returns a SHA-256 in
  // lower-case hexadecimal over each tensor in the order of their names: one line "<name> <dtype>
  // <shape>\n" and the Gmac, 16 bytes, of each of its pieces of kPieceBytes; the last piece may be
  // shorter. Returns INTERNAL if libcrypto refuses.
  absl::StatusOr<std::string> Identity() const;

 private:
  struct Piece {
    TensorView part;
    const std::string* name;
    TensorView whole;
    GmacTag* tag;
  };

  absl::Status Examine(const Piece& piece) const;

  const Checkpoint& checkpoint_;
  const Options options_;
  std::map<const void*, std::string> name_of_;  // by address of the data
  std::map<std::string, std::vector<GmacTag>> tags_of_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_CHECKPOINT_PAGER_H_
