// The angles of rotary position embedding (Su et al. 2021), and the known ways to stretch them for
// contexts longer than a model's training context.
#ifndef TLM_MODEL_OPS_ROPE_TABLE_H_
#define TLM_MODEL_OPS_ROPE_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "model/config/model_config.h"

namespace tlm {

// Rotary positions of one head, computed in double. The angle of pair i < head_dim / 2 at position
// p is p * w'_i. Without scaling w'_i = w_i = theta^(-2i / head_dim); with scaling
//
//   linear   w' = w / factor                                             (Chen et al. 2023)
//   llama3   by the wavelength l = 2 pi / w, with c the original context length:
//              w             where l < c / high_freq_factor
//              w / factor    where l > c / low_freq_factor
//              (1 - s) w / factor + s w   between,
//                s = (c / l - low_freq_factor) / (high_freq_factor - low_freq_factor)
//   yarn     w' = r_i w / factor + (1 - r_i) w,  r_i = clamp((i - low) / (high - low), 0, 1),
//              low and high the pairs that turn beta_fast and beta_slow times in c positions:
//              d(b) = head_dim log(c / (2 pi b)) / (2 log theta), rounded outwards where `truncate`
//              says so, low >= 0, high <= head_dim - 1   (Peng et al. 2023, section 3.2);
//              cosines and sines are multiplied by attention_factor (section 3.4)
//   factors  w'_i = w_i / factors_i
class RopeTable {
 public:
  // head_dim is even, theta > 0, and `scaling` passes Validate().
  RopeTable(int64_t head_dim, double theta, const std::optional<RopeScaling>& scaling = {});

  // w', [head_dim / 2].
  const std::vector<double>& frequencies() const { return frequencies_; }

  // Returns [positions, head_dim / 2] pairs (cos, sin) of positions first, first + 1, ..., rounded
  // to float once, for HeadTransform::rope_table.
  std::vector<float> Entries(int64_t first, int64_t positions) const;

 private:
  std::vector<double> frequencies_;
  double attention_factor_ = 1.0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_ROPE_TABLE_H_
