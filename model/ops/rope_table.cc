#include "model/ops/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tlm {
namespace {

double Llama3Frequency(double frequency, const RopeScaling& scaling) {
  const double context = static_cast<double>(scaling.original_context_length);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < context / scaling.high_freq_factor) return frequency;
  if (wavelength > context / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth = (context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The pairs between which yarn's ramp rises from 0 to 1.
struct Ramp {
  double low;
  double high;
};

Ramp YarnRamp(int64_t head_dim, double theta, const RopeScaling& scaling) {
  const auto pair_that_turns = [&](double times) {
    const double context = static_cast<double>(scaling.original_context_length);
    return static_cast<double>(head_dim) * std::log(context / (times * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  Ramp ramp = {pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)};
  if (scaling.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, static_cast<double>(head_dim - 1));
  if (ramp.low == ramp.high) ramp.high += 0.001;  // a step, as in the reference implementation
  return ramp;
}

void ScaleYarn(int64_t head_dim, double theta, const RopeScaling& scaling,
               std::vector<double>* frequencies) {
  const Ramp ramp = YarnRamp(head_dim, theta, scaling);
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double share =
        std::clamp((static_cast<double>(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / scaling.factor * share + frequency * (1.0 - share);
  }
}

}  // namespace

RopeTable::RopeTable(int64_t head_dim, double theta, const std::optional<RopeScaling>& scaling) {
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies_.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  if (!scaling.has_value()) return;
  switch (scaling->kind) {
    case RopeScaling::Kind::kLinear:
      for (double& frequency : frequencies_) frequency /= scaling->factor;
      return;
    case RopeScaling::Kind::kLlama3:
      for (double& frequency : frequencies_) frequency = Llama3Frequency(frequency, *scaling);
      return;
    case RopeScaling::Kind::kYarn:
      ScaleYarn(head_dim, theta, *scaling, &frequencies_);
      attention_factor_ = scaling->attention_factor;
      return;
    case RopeScaling::Kind::kFactors:
      for (size_t i = 0; i < frequencies_.size(); ++i) frequencies_[i] /= scaling->factors[i];
      return;
  }
}

std::vector<float> RopeTable::Entries(int64_t first, int64_t positions) const {
  std::vector<float> entries;
  entries.reserve(static_cast<size_t>(positions) * 2 * frequencies_.size());
  for (int64_t position = first; position < first + positions; ++position) {
    for (const double frequency : frequencies_) {
      const double angle = static_cast<double>(position) * frequency;
      entries.push_back(static_cast<float>(attention_factor_ * std::cos(angle)));
      entries.push_back(static_cast<float>(attention_factor_ * std::sin(angle)));
    }
  }
  return entries;
}

}  // namespace tlm
