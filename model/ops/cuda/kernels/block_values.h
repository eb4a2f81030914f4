// Weights in blocks as numbers: what every kernel that reads them does with a lane's share (see
// block_format.h). Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_VALUES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_VALUES_H_

#include <cstdint>

#include "model/ops/cuda/kernels/block_format.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// Lanes that share a row's step.
inline constexpr int kStepLanes = 4;
inline constexpr int kSpanSteps = kSpanInputs / kStepInputs;
inline constexpr int kSpanUnits = kSpanInputs / kUnitInputs;

// 2^23: of the floats from here on the low bits count. Integers below 2^8 become floats by an OR
// and an exact difference, which take less time than a conversion.
inline constexpr float kIntegerBase = 8388608.0f;
TLM_DEVICE float AboveBase(int integer) {
  return FloatOfBits(FloatBits(kIntegerBase) | static_cast<uint32_t>(integer));
}

// What the elements of a step have in common: (q - zero) * scale - min.
struct StepScale {
  float scale;
  float min;
  float offset;  // kIntegerBase + zero
};

template <typename T>
TLM_DEVICE T ValueAt(const unsigned char* at) {
  return *reinterpret_cast<const T*>(at);
}
// Byte `index` behind `at`, which is 4-byte aligned.
TLM_DEVICE int ByteAt(const unsigned char* at, int index) {
  return static_cast<int>(ValueAt<uint32_t>(at + index / 4 * 4) >> (index % 4 * 8) & 255);
}
TLM_DEVICE float HalfAt(const unsigned char* at) { return ToFloat(F16{ValueAt<uint16_t>(at)}); }

// The integers of a lane's four elements in a step of the span, from the words that have their low
// and their high bits.
TLM_DEVICE void StepIntegers(const StripFormat& format, uint32_t low, uint32_t high, int step,
                             int (&q)[4]) {
  if (format.low_bits == 8) {
#pragma unroll
    for (int i = 0; i < 4; ++i) q[i] = static_cast<int>(low >> (8 * i) & 255);
    return;
  }
  low >>= step % 2 * 8;
  q[0] = static_cast<int>(low & 15);
  q[1] = static_cast<int>(low >> 16 & 15);
  q[2] = static_cast<int>(low >> 4 & 15);
  q[3] = static_cast<int>(low >> 20 & 15);
  if (format.high_bits == 0) return;
  high >>= 4 * format.high_bits * (step % (8 / format.high_bits));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = high >> (i * format.high_bits) & ((1u << format.high_bits) - 1);
    q[i] |= static_cast<int>(bits) << 4;
  }
}

// A lane's bits of a span.
struct LaneBits {
  Quad low[2];  // of 4 bits the first alone
  uint32_t high[2];

  // Of row `row` of span `span` of a cell.
  TLM_DEVICE void Load(const StripFormat& format, const unsigned char* cell, int spans, int span,
                       int row, int lane) {
    const int piece = row * kStepLanes + lane;
    const unsigned char* const at = cell + format.high_at(span);
    low[0] = LoadQuad(at + piece * 16);
    if (format.low_bits == 8) low[1] = LoadQuad(at + (kStripRows * kStepLanes + piece) * 16);
    const unsigned char* const above = cell + format.high_at(spans) +
                                       span * kStripRows * (kSpanInputs / 8) * format.high_bits +
                                       piece * 4 * format.high_bits;
    if (format.high_bits > 0) high[0] = ValueAt<uint32_t>(above);
    if (format.high_bits > 1) high[1] = ValueAt<uint32_t>(above + 4);
  }

  TLM_DEVICE void Integers(const StripFormat& format, int step, int (&q)[4]) const {
    const bool bytes = format.low_bits == 8;
    StepIntegers(format, bytes ? low[step / 4].word[step % 4] : low[0].word[step / 2],
                 format.high_bits > 1 ? high[step / 4] : high[0], step, q);
  }
};

// Of kIq4NlValues + 128, by halves of a select: no memory is read.
TLM_DEVICE int Iq4NlInteger(int place) {
  constexpr uint32_t kWords[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
  const uint32_t first = (place & 4) == 0 ? kWords[0] : kWords[1];
  const uint32_t last = (place & 4) == 0 ? kWords[2] : kWords[3];
  const uint32_t word = (place & 8) == 0 ? first : last;
  return static_cast<int>(word >> (place % 4 * 8) & 255);
}

// Of step `step` in [0, 16) of a cell, and row `row`.
TLM_DEVICE StepScale ScaleOf(const StripFormat& format, const unsigned char* cell, int spans,
                             int step, int row) {
  StepScale result{.scale = 0.0f, .min = 0.0f, .offset = kIntegerBase};
  int zero = format.zero;
  const unsigned char* const entry =
      cell + format.entries_at(spans) + (step / 2 * kStripRows + row) * format.entry_bytes();
  const int group = format.group_log2 == 0 ? 0 : step * kStepInputs >> format.group_log2;
  const int place = group * kStripRows + row;
  const unsigned char* const head = cell + format.heads_at(spans) + place * format.head_bytes();
  int factors = 0;
  switch (format.scales) {
    case BlockScales::kHalf:
      result.scale = HalfAt(entry);
      break;
    case BlockScales::kHalfMin:
      result.scale = HalfAt(entry);
      result.min = HalfAt(entry + 2);
      break;
    case BlockScales::kFactorMin:
      factors = ValueAt<uint16_t>(entry);
      result.scale = HalfAt(head) * (AboveBase(factors & 255) - kIntegerBase);
      result.min = HalfAt(head + 2) * (AboveBase(factors >> 8) - kIntegerBase);
      break;
    case BlockScales::kTwoFactors:
      factors =
          ByteAt(cell + format.entries_at(spans), (step / 2 * kStripRows + row) * 2 + step % 2);
      result.scale = HalfAt(head) * (AboveBase(factors ^ 128) - (kIntegerBase + 128.0f));
      break;
    case BlockScales::kFloatElements:
      result.scale = ValueAt<float>(head);
      break;
    case BlockScales::kFloat:
      result.scale = ValueAt<float>(head);
      zero = ByteAt(cell + format.zeros_at(spans), place);
      break;
  }
  result.offset = AboveBase(zero);
  return result;
}

// The value of an E4M3 that is not NaN, as Fp8Value (model/tensor/fp8.h): its exponent, too small
// by 127 - 7 where a float has it, is made up for exactly.
TLM_DEVICE float E4m3Value(int bits) {
  const uint32_t q = static_cast<uint32_t>(bits);
  return FloatOfBits((q & 0x80u) << 24 | (q & 0x7fu) << 20) * 0x1p120f;
}

// element = (q - zero) * scale - min, or q * scale, each operation rounded (model/tensor/blocks.h).
TLM_DEVICE float ElementOf(const StripFormat& format, int q, const StepScale& scale) {
  if (format.scales == BlockScales::kFloatElements) return E4m3Value(q) * scale.scale;
  const int integer = format.has_values ? Iq4NlInteger(q) : q;
  return (AboveBase(integer) - scale.offset) * scale.scale - scale.min;
}

// The four elements of a lane in step `step` of the span, in [0, 8): of inputs 2 t, 2 t + 1,
// 2 t + 8, 2 t + 9.
TLM_DEVICE void StepElements(const StripFormat& format, const LaneBits& bits, int step,
                             const StepScale& scale, float (&elements)[4]) {
  int q[4];
  bits.Integers(format, step, q);
#pragma unroll
  for (int i = 0; i < 4; ++i) elements[i] = ElementOf(format, q[i], scale);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_BLOCK_VALUES_H_
