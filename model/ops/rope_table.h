// The angles of rotary position embedding (Su et al. 2021).
#ifndef TLM_MODEL_OPS_ROPE_TABLE_H_
#define TLM_MODEL_OPS_ROPE_TABLE_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace tlm {

// [positions, head_dim / 2] pairs (cos, sin) of position * theta^(-2i / head_dim), computed in
// double and rounded once.
inline std::vector<float> MakeRopeTable(int64_t positions, int64_t head_dim, double theta) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(positions * head_dim));
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_ROPE_TABLE_H_
