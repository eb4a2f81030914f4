#include "server/rpc/output/row_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/base/errors.h"
#include "model/base/float16.h"

namespace tlm {
namespace {

static_assert(std::endian::native == std::endian::little, "rows go out as they lie in memory");

absl::Status CheckFinite(std::span<const float> logits, float highest) {
  const bool has_nan =
      std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); });
  if (has_nan || !std::isfinite(highest)) return DataLoss("the model produced non-finite logits");
  return absl::OkStatus();
}

}  // namespace

absl::Status RowEncoder::Append(std::span<const float> logits, v1::ForwardRows& rows) {
  TLM_RETURN_IF_ERROR(Transform(logits));
  if (format_.top_k > 0) {
    AppendTop(rows);
  } else {
    AppendData(rows);
  }
  rows.set_row_count(rows.row_count() + 1);
  return absl::OkStatus();
}

absl::Status RowEncoder::Transform(std::span<const float> logits) {
  const float highest = logits.empty() ? -std::numeric_limits<float>::infinity()
                                       : *std::max_element(logits.begin(), logits.end());
  TLM_RETURN_IF_ERROR(CheckFinite(logits, highest));
  const auto slice = logits.subspan(static_cast<size_t>(format_.vocab_begin),
                                    static_cast<size_t>(format_.width()));
  values_.assign(slice.begin(), slice.end());
  if (format_.values == v1::ROW_VALUES_LOGITS) return absl::OkStatus();

  const double shift = highest;
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - shift);
  const double log_sum = std::log(sum);
  const bool logarithms = format_.values == v1::ROW_VALUES_LOG_PROBABILITIES;
  for (float& value : values_) {
    const double logprob = static_cast<double>(value) - shift - log_sum;
    value = static_cast<float>(logarithms ? logprob : std::exp(logprob));
  }
  return absl::OkStatus();
}

void RowEncoder::AppendData(v1::ForwardRows& rows) const {
  std::string& data = *rows.mutable_data();
  const size_t offset = data.size();
  data.resize(offset + static_cast<size_t>(format_.row_bytes()));
  char* out = data.data() + offset;
  if (format_.dtype == v1::DATA_TYPE_FLOAT32) {
    std::memcpy(out, values_.data(), values_.size() * sizeof(float));
    return;
  }
  for (const float value : values_) {
    const uint16_t bits =
        format_.dtype == v1::DATA_TYPE_BFLOAT16 ? FloatToBf16(value) : FloatToF16(value);
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
}

void RowEncoder::AppendTop(v1::ForwardRows& rows) {
  ranked_.clear();
  for (size_t i = 0; i < values_.size(); ++i) {
    ranked_.emplace_back(values_[i], static_cast<int32_t>(format_.vocab_begin + i));
  }
  const auto end = ranked_.begin() + std::min<int64_t>(format_.top_k, format_.width());
  std::partial_sort(ranked_.begin(), end, ranked_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  auto* top = rows.add_top();
  for (auto entry = ranked_.begin(); entry != end; ++entry) {
    top->add_ids(static_cast<uint32_t>(entry->second));
    top->add_values(entry->first);
  }
}

}  // namespace tlm
