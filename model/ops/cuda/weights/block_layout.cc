#include "model/ops/cuda/weights/block_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/quantise.h"

namespace tlm {
namespace {

// The largest finite bfloat16.
constexpr float kMaxBf16 = 0x1.fep127f;

BlockScales ScalesOf(DType type, const BlockFormat& format) {
  if (format.has_floats) return BlockScales::kFloatElements;
  if (!format.has_half_scales) return BlockScales::kFloat;
  if (format.sub_block == 16) return BlockScales::kTwoFactors;
  if (format.sub_block == 32) return BlockScales::kFactorMin;
  TLM_CHECK(BlockOf(type).elements == kUnitInputs);
  return format.has_min ? BlockScales::kHalfMin : BlockScales::kHalf;
}

StripFormat FormatFor(DType type) {
  const BlockFormat format = FormatOf(type);
  const bool has_values = type == DType::kIq4Nl;
  const int low_bits = format.bits == 8 && !has_values ? 8 : 4;
  const StripFormat result =
      StripFormatOf(low_bits, has_values ? 0 : format.bits - low_bits, ScalesOf(type, format),
                    has_values, std::countr_zero(static_cast<uint32_t>(BlockOf(type).elements)));
  TLM_CHECK(result.zero == std::max(format.zero, 0) && KindOf(result) < kStripKindCount);
  return result;
}

// Maps a value of kIq4NlValues to its index.
uint8_t PlaceOfValue(uint8_t q) {
  const auto* const found =
      std::find(std::begin(kIq4NlValues), std::end(kIq4NlValues), static_cast<int>(q) - 128);
  return static_cast<uint8_t>(found - std::begin(kIq4NlValues));
}

template <typename T>
void Put(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

void Or(uint32_t bits, std::byte* to) {
  uint32_t word;
  std::memcpy(&word, to, sizeof(word));
  Put(word | bits, to);
}

// Writes the integers of one step (16 inputs) of a row. `span`: the span's low and high bits in a
// cell.
void WriteStep(const uint8_t* q, const StripFormat& format, int row, int step, std::byte* low,
               std::byte* high) {
  constexpr int kLanes = 4;
  for (int t = 0; t < kLanes; ++t) {
    const uint32_t of_lane[4] = {q[2 * t], q[2 * t + 1], q[2 * t + 8], q[2 * t + 9]};
    if (format.low_bits == 8) {
      const int piece = (step / 4 * kStripRows + row) * kLanes + t;
      Put(of_lane[0] | of_lane[1] << 8 | of_lane[2] << 16 | of_lane[3] << 24,
          low + piece * 16 + step % 4 * 4);
      continue;
    }
    const int piece = row * kLanes + t;
    for (int i = 0; i < 4; ++i) {
      const int byte = format.BytePlace(step, i);
      Or((of_lane[i] & 15) << (byte + i / 2 * 4), low + piece * 16 + step / 2 * 4);
      if (format.high_bits == 0) continue;
      const int word = piece * format.high_bits + (format.high_bits > 1 ? step / 4 : 0);
      Or(of_lane[i] >> 4 << (byte + format.HighPlace(step, i)), high + word * 4);
    }
  }
}

uint32_t Halves(float low, float high) {
  return uint32_t{FloatToF16(low)} | uint32_t{FloatToF16(high)} << 16;
}

// Writes the scales of blocks of 32 inputs, and the factors of longer blocks.
void WriteEntry(const BlockValues& values, BlockScales scales, size_t unit, std::byte* to) {
  switch (scales) {
    case BlockScales::kHalf:
      return Put(FloatToF16(values.scale), to);
    case BlockScales::kHalfMin:
      return Put(Halves(values.scale, values.min), to);
    case BlockScales::kFactorMin:
      to[0] = static_cast<std::byte>(values.s[unit]);
      to[1] = static_cast<std::byte>(values.t[unit]);
      return;
    case BlockScales::kTwoFactors:
      return Put(std::to_array({values.s[2 * unit], values.s[2 * unit + 1]}), to);
    case BlockScales::kFloat:
    case BlockScales::kFloatElements:
      return;
  }
}

void WriteHead(const BlockValues& values, BlockScales scales, std::byte* to) {
  if (scales == BlockScales::kFloat || scales == BlockScales::kFloatElements) {
    return Put(values.scale, to);
  }
  if (scales == BlockScales::kFactorMin) return Put(Halves(values.scale, values.min), to);
  Put(FloatToF16(values.scale), to);
}

}  // namespace

BlockLayout::BlockLayout(int64_t n, int64_t k, DType type)
    : n_(n),
      k_(k),
      type_(type),
      format_(FormatFor(type)),
      spans_((k + kSpanInputs - 1) / kSpanInputs) {
  TLM_CHECK(n >= 0 && k >= 0 && k <= std::numeric_limits<int32_t>::max());
  strip_bytes_ =
      static_cast<size_t>(spans_ / kMaxSpans) * static_cast<size_t>(format_.cell_bytes(kMaxSpans)) +
      static_cast<size_t>(format_.cell_bytes(static_cast<int>(spans_ % kMaxSpans)));
}

size_t BlockLayout::bytes() const {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  const auto strips = static_cast<size_t>(this->strips());
  return strip_bytes_ != 0 && strips > kMax / strip_bytes_ ? kMax : strips * strip_bytes_;
}

void BlockLayout::Write(const BlockValues& values, int row, int64_t first, std::byte* strip) const {
  const auto elements = static_cast<int64_t>(BlockOf(type_).elements);
  const int64_t cell = first / kCellInputs;
  const int spans = static_cast<int>(std::min<int64_t>(kMaxSpans, spans_ - cell * kMaxSpans));
  const int begin = static_cast<int>(first % kCellInputs);  // within the cell
  const int end = std::min(begin + static_cast<int>(elements), spans * kSpanInputs);
  std::byte* const to =
      strip + static_cast<size_t>(cell) * static_cast<size_t>(format_.cell_bytes(kMaxSpans));
  uint8_t q[kMaxBlockElements];
  for (int i = 0; i < end - begin; ++i) {
    q[i] = format_.has_values ? PlaceOfValue(values.q[i]) : values.q[i];
  }
  constexpr int kSpanSteps = kSpanInputs / kStepInputs;
  for (int at = begin; at < end; at += kStepInputs) {
    const int span = at / kSpanInputs;
    WriteStep(q + at - begin, format_, row, at / kStepInputs % kSpanSteps,
              to + format_.high_at(span),
              to + format_.high_at(spans) + (format_.entries_at(span) - format_.high_at(span)));
  }
  for (int at = begin; at < end && format_.entry_bytes() > 0; at += kUnitInputs) {
    const int entry = at / kUnitInputs * kStripRows + row;
    WriteEntry(values, format_.scales, static_cast<size_t>((at - begin) / kUnitInputs),
               to + format_.entries_at(spans) + entry * format_.entry_bytes());
  }
  if (format_.group_log2 == 0) return;
  const int head = (begin >> format_.group_log2) * kStripRows + row;
  WriteHead(values, format_.scales, to + format_.heads_at(spans) + head * format_.head_bytes());
  if (format_.zero_bytes() > 0) {
    to[format_.zeros_at(spans) + head] = static_cast<std::byte>(values.zero);
  }
}

BlockRows::BlockRows(std::span<const TensorView> parts, MatrixOrder order, DType type,
                     std::span<const float> importance)
    : parts_(parts.begin(), parts.end()), type_(type), importance_(importance) {
  if (!IsBlockQuantised(parts.front().dtype)) floats_.emplace(parts, order, DType::kF32);
  const int outputs_axis = order == MatrixOrder::kOutputsFirst ? 0 : 1;
  k_ = parts.front().shape[1 - outputs_axis];
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 2 && part.shape[1 - outputs_axis] == k_);
    TLM_CHECK(floats_.has_value() || (part.dtype == type && order == MatrixOrder::kOutputsFirst));
    n_ += part.shape[outputs_axis];
  }
  TLM_CHECK(importance.empty() || static_cast<int64_t>(importance.size()) == k_);
}

const std::byte* BlockRows::Find(int64_t output) const {
  const size_t row_bytes = StoredBytes(type_, static_cast<size_t>(k_));
  for (const TensorView& part : parts_) {
    if (output < part.shape[0]) {
      return part.as<std::byte>() + static_cast<size_t>(output) * row_bytes;
    }
    output -= part.shape[0];
  }
  TLM_CHECK(false);
}

absl::Status BlockRows::NotFinite() const {
  return InvalidArgument("a matrix of {} outputs and {} inputs has a value that is not finite", n_,
                         k_);
}

absl::Status BlockRows::ReadStrip(std::span<const int64_t> outputs, const BlockLayout& layout,
                                  std::byte* strip) const {
  TLM_CHECK(outputs.size() <= kStripRows && layout.type() == type_ && layout.k() == k_);
  std::memset(strip, 0, layout.strip_bytes());
  if (floats_.has_value()) return Quantise(outputs, layout, strip);
  const DTypeBlock size = BlockOf(type_);
  BlockValues values;
  for (size_t row = 0; row < outputs.size(); ++row) {
    if (outputs[row] < 0) continue;
    const std::byte* block = Find(outputs[row]);
    for (int64_t first = 0; first < k_;
         first += static_cast<int64_t>(size.elements), block += size.bytes) {
      ReadBlock(type_, block, &values);
      if (!(LargestMagnitude(type_, values) <= kMaxBf16)) return NotFinite();
      layout.Write(values, static_cast<int>(row), first, strip);
    }
  }
  return absl::OkStatus();
}

absl::Status BlockRows::Quantise(std::span<const int64_t> outputs, const BlockLayout& layout,
                                 std::byte* strip) const {
  const auto k = static_cast<size_t>(k_);
  std::vector<float> rows(outputs.size() * k);
  const auto found = floats_->Read(outputs, k_, rows.data());
  if (found.has_value()) return NonFiniteError(*found, parts_[found->part]);
  const auto elements = static_cast<int64_t>(BlockOf(type_).elements);
  BlockValues values;
  for (size_t row = 0; row < outputs.size(); ++row) {
    if (outputs[row] < 0) continue;
    for (int64_t first = 0; first < k_; first += elements) {
      QuantiseBlock(type_, rows.data() + row * k + static_cast<size_t>(first),
                    std::min(elements, k_ - first),
                    importance_.empty() ? nullptr : importance_.data() + first, &values);
      if (!(LargestMagnitude(type_, values) <= kMaxBf16)) return NotFinite();
      layout.Write(values, static_cast<int>(row), first, strip);
    }
  }
  return absl::OkStatus();
}

}  // namespace tlm
