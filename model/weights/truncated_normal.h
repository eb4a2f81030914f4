// Random numbers for initial weights, computed from their index: in any order, by any thread.
#ifndef TLM_MODEL_WEIGHTS_TRUNCATED_NORMAL_H_
#define TLM_MODEL_WEIGHTS_TRUNCATED_NORMAL_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace tlm {

// The stream of one tensor: independent samples of the standard normal distribution cut off at
// three deviations, each a function of (seed, name, index) alone, the same on every machine. Their
// deviation is sqrt(1 - 6 phi(3) / (2 Phi(3) - 1)) = 0.98658. A value type.
class TruncatedNormal {
 public:
  static constexpr double kCutOff = 3.0;
  static constexpr double kDeviation = 0.9865784;

  TruncatedNormal(uint64_t seed, std::string_view name);

  // out[i] = scale * sample(first + i), so |out[i]| <= 3 * scale; `first` is even.
  void Fill(int64_t first, float scale, std::span<float> out) const;

 private:
  uint64_t key_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_TRUNCATED_NORMAL_H_
