// Converts weights in blocks to numbers, for every kernel that reads them; a lane converts its
// share (see block_format.h). Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_VALUES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_VALUES_H_

#include <cstdint>

#include "model/ops/cuda/kernels/gemm/block_format.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// Lanes that share the 16 inputs of a row's step.
inline constexpr int kStepLanes = 4;
inline constexpr int kSpanSteps = kSpanInputs / kStepInputs;
inline constexpr int kSpanUnits = kSpanInputs / kUnitInputs;

// 2^23: from here on a float's low bits are an integer. So an OR and an exact subtraction turn an
// integer below 2^8 into a float, in less time than a conversion.
inline constexpr float kIntegerBase = 8388608.0f;
TLM_DEVICE float AboveBase(int integer) {
  return FloatOfBits(FloatBits(kIntegerBase) | static_cast<uint32_t>(integer));
}

// The common parameters of a step's elements: (q - zero) * scale - min.
struct StepScale {
  float scale;
  float min;
  int zero;
};

template <typename T>
TLM_DEVICE T ValueAt(const unsigned char* at) {
  return *reinterpret_cast<const T*>(at);
}
// Byte `index` after `at`, which is 4-byte aligned.
TLM_DEVICE int ByteAt(const unsigned char* at, int index) {
  return static_cast<int>(ValueAt<uint32_t>(at + index / 4 * 4) >> (index % 4 * 8) & 255);
}
TLM_DEVICE float HalfAt(const unsigned char* at) { return ToFloat(F16{ValueAt<uint16_t>(at)}); }

// The integers of a lane's four elements in a step of the span, from the words with their low and
// their high bits.
TLM_DEVICE void StepIntegers(const StripFormat& format, uint32_t low, uint32_t high, int step,
                             int (&q)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (format.low_bits == 8) {
      q[i] = static_cast<int>(low >> (8 * i) & 255);
      continue;
    }
    const int byte = format.BytePlace(step, i);
    q[i] = static_cast<int>(low >> (byte + i / 2 * 4) & 15);
    if (format.high_bits == 0) continue;
    q[i] |= static_cast<int>(high >> (byte + format.HighPlace(step, i)) &
                             ((1u << format.high_bits) - 1))
            << 4;
  }
}

// A lane's bits of a unit: the words with the low bits of its first and its second step, and the
// word with its high bits.
struct UnitBits {
  uint32_t low[2];
  uint32_t high;
};

// A lane's bits of a span.
struct LaneBits {
  Quad low[2];  // for 4 bits only the first
  uint32_t high[2];

  // Loads row `row` of span `span` of a cell.
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

  // The bits of a unit of the span.
  TLM_DEVICE UnitBits Unit(const StripFormat& format, int unit) const {
    const uint32_t above = format.high_bits > 1 ? high[unit / 2] : high[0];
    if (format.low_bits == 4) return {{low[0].word[unit], low[0].word[unit]}, above};
    return {{low[unit / 2].word[unit % 2 * 2], low[unit / 2].word[unit % 2 * 2 + 1]}, above};
  }
};

// kIq4NlValues + 128, four per word, as constants instead of a table in memory.
TLM_DEVICE uint32_t Iq4NlWord(int word) {
  constexpr uint32_t kWords[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
  return kWords[word];
}
TLM_DEVICE int Iq4NlInteger(int place) {
  const uint32_t first = (place & 4) == 0 ? Iq4NlWord(0) : Iq4NlWord(1);
  const uint32_t last = (place & 4) == 0 ? Iq4NlWord(2) : Iq4NlWord(3);
  const uint32_t word = (place & 8) == 0 ? first : last;
  return static_cast<int>(word >> (place % 4 * 8) & 255);
}
// The values at the indices in the four lowest nibbles of `places`, one per byte.
TLM_DEVICE uint32_t Iq4NlIntegers(uint32_t places) {
  const uint32_t within = places & 0x7777u;
  const uint32_t is_last = Permute(0xff00u, 0, places >> 3 & 0x1111u);
  return SelectBits(is_last, Permute(Iq4NlWord(2), Iq4NlWord(3), within),
                    Permute(Iq4NlWord(0), Iq4NlWord(1), within));
}

// The scale of row `row` in step `step` of [0, 16) of a cell.
TLM_DEVICE StepScale ScaleOf(const StripFormat& format, const unsigned char* cell, int spans,
                             int step, int row) {
  StepScale result{.scale = 0.0f, .min = 0.0f, .zero = format.zero};
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
      result.zero = ByteAt(cell + format.zeros_at(spans), place);
      break;
  }
  return result;
}

// element = (q - zero) * scale - min, or q * scale. Each operation is rounded
// (model/tensor/blocks.h).
TLM_DEVICE float ElementOf(const StripFormat& format, int q, const StepScale& scale) {
  if (format.scales == BlockScales::kFloatElements) {
    return E4m3Value(static_cast<uint32_t>(q)) * scale.scale;
  }
  const int integer = format.has_values ? Iq4NlInteger(q) : q;
  return (AboveBase(integer) - AboveBase(scale.zero)) * scale.scale - scale.min;
}

// --- A lane's eight elements of a unit, converted to bfloat16 in few instructions. ---
//
// The bits equal ElementOf's, rounded to bfloat16, except the sign of zeros, which no sum that
// begins with 0 shows. First, integers become the low bits of a float, or of two bfloat16, whose
// upper bits are a constant exponent: 2^15 + q or 128 + q. That takes one permutation or selection
// and usually no shift. Then:
//
//   kPacked    in bfloat16, two at once: subtract 128 + zero, which is exact; multiply by the last
//   3
//              of the scale's 11 significant bits, which is exact; add the product with its first 8
//              bits, which rounds the exact product once. In float32 that product is exact, too
//   kFused     one multiply-add, (base + q) * scale - (base + zero) * scale. The subtrahend is
//              exact in float32, so (q - zero) * scale is rounded once
//   kMin       subtract the base, then one multiply-add, q * scale - min. The product is exact in
//              float32 (at most 5 + 17 bits)
//   kGeneral   subtract base + zero, multiply
//   kFloats    widen E4M3, multiply
enum class Conversion : int32_t { kPacked, kFused, kMin, kGeneral, kFloats };

// The fast conversion of a format. With float32 scales it may be used only for units that
// TakesFast.
TLM_HOST_DEVICE constexpr Conversion FastConversion(const StripFormat& format) {
  switch (format.scales) {
    case BlockScales::kHalf:
    case BlockScales::kFloat:
      return format.low_bits == 8 || format.has_values ? Conversion::kFused : Conversion::kPacked;
    case BlockScales::kHalfMin:
    case BlockScales::kFactorMin:
      return Conversion::kMin;
    case BlockScales::kTwoFactors:
      return Conversion::kFused;
    case BlockScales::kFloatElements:
      return Conversion::kFloats;
  }
  return Conversion::kGeneral;
}

// 2^15 for integers of 8 bits, else 128.
TLM_DEVICE float UnitBase(const StripFormat& format) {
  return format.low_bits == 8 || format.has_values ? 32768.0f : 128.0f;
}
TLM_DEVICE float BaseAndZero(const StripFormat& format, int zero) {
  return UnitBase(format) + (AboveBase(zero) - kIntegerBase);
}

// Whether, with a scale in float32, the fast conversion has the bits of kGeneral. kPacked requires
// a scale of 11 significant bits that is 0 or far from subnormal, and differences of 5 bits. kFused
// requires that the subtrahend is not rounded.
TLM_DEVICE bool TakesFast(const StripFormat& format, const StepScale& scale) {
  if (format.scales != BlockScales::kFloat) return true;
  if (format.low_bits == 8) {
    const float base = BaseAndZero(format, scale.zero);
    return Fma(base, scale.scale, -(base * scale.scale)) == 0.0f;
  }
  const uint32_t bits = FloatBits(scale.scale);
  return scale.zero < 32 && (bits & 0x1fff) == 0 &&
         ((bits & 0x7fffffff) == 0 || (bits & 0x7fffffff) >= FloatBits(0x1p-120f));
}

// The common parameters of a unit's elements, as the conversions need them.
struct UnitScale {
  // The scales of the unit's two steps, which differ only with kTwoFactors. With kPacked, two
  // bfloat16: the first significant bits in the upper half, the last ones in the lower half.
  uint32_t scale[2];
  uint32_t other;  // kPacked: -(128 + zero), twice; kFused: the subtrahend; kMin: min; kGeneral:
                   // base + zero
};

TLM_DEVICE uint32_t SplitScale(float scale) {
  const uint32_t first = FloatBits(scale) & 0xffff0000u;
  return first | FloatBits(scale - FloatOfBits(first)) >> 16;
}

// Computes it from the two steps' scales; `scales[1]` is used only with kTwoFactors.
TLM_DEVICE UnitScale UnitScaleOf(const StripFormat& format, Conversion conversion,
                                 const StepScale (&scales)[2]) {
  UnitScale result{{FloatBits(scales[0].scale), FloatBits(scales[1].scale)}, 0};
  const float base = BaseAndZero(format, scales[0].zero);
  switch (conversion) {
    case Conversion::kPacked:
      result.scale[0] = SplitScale(scales[0].scale);
      result.other = 0xc300c300u | static_cast<uint32_t>(scales[0].zero) * 0x10001u;
      break;
    case Conversion::kFused:
      result.other = FloatBits(base * scales[0].scale);
      break;
    case Conversion::kMin:
      result.other = FloatBits(scales[0].min);
      break;
    case Conversion::kGeneral:
      result.other = FloatBits(base);
      break;
    case Conversion::kFloats:
      break;
  }
  return result;
}

// The integers of a unit as bytes, for low_bits 4. bytes[i] has pair i of the first step in bytes 0
// and 2, of the second step in bytes 1 and 3. With has_values, bytes[i] has elements i of the
// pairs; the first step's are in bytes 0 and 1.
TLM_DEVICE void UnitBytes(const StripFormat& format, const UnitBits& bits, int unit,
                          uint32_t (&bytes)[2]) {
  if (format.has_values) {
    bytes[0] = Iq4NlIntegers(bits.low[0]);
    bytes[1] = Iq4NlIntegers(bits.low[0] >> 16);
    return;
  }
  bytes[0] = bits.low[0] & 0x0f0f0f0fu;
  bytes[1] = bits.low[0] >> 4 & 0x0f0f0f0fu;
  if (format.high_bits == 0) return;
  const uint32_t mask = format.high_bits == 1 ? 0x10101010u : 0x30303030u;
  const int place = format.HighPlace(2 * unit, 0);
  bytes[0] |= bits.high << (4 - place) & mask;
  bytes[1] |= bits.high >> place & mask;
}

// Converts pair `pair` of step `step` of a unit (inputs 2 t and 2 t + 1, or these + 8) by kPacked.
TLM_DEVICE uint32_t PackedPair(const StripFormat& format, const UnitBits& bits,
                               const uint32_t (&bytes)[2], int step, int pair,
                               const UnitScale& scale) {
  const uint32_t integers =
      format.high_bits == 0
          ? SelectBits(0x000f000fu, bits.low[0] >> (8 * step + 4 * pair), 0x43004300u)
          : Permute(bytes[pair], 0x43434343u, step == 0 ? 0x4240 : 0x4341);
  const uint32_t q = FmaPair<Bf16>(integers, 0x3f803f80u, scale.other);
  const uint32_t last = MultiplyPair<Bf16>(q, Permute(scale.scale[0], 0, 0x1010));
  return FmaPair<Bf16>(q, Permute(scale.scale[0], 0, 0x3232), last);
}

// Converts element `place` of a pair of step `step` to float32.
TLM_DEVICE float UnitElement(const StripFormat& format, Conversion conversion, const UnitBits& bits,
                             const uint32_t (&bytes)[2], int step, int pair, int place,
                             const UnitScale& scale) {
  const bool two = format.scales == BlockScales::kTwoFactors;
  const float factor = FloatOfBits(scale.scale[two ? step : 0]);
  if (conversion == Conversion::kMin && format.high_bits == 0) {
    // The nibble can be a float's low bits at its own place, or after it is moved below bit 20.
    const int nibble = 2 * step + pair + 4 * place;
    const int at = nibble < 5 ? 4 * nibble : 4 * nibble - 16;
    const uint32_t word = nibble < 5 ? bits.low[0] : bits.low[0] >> 16;
    const uint32_t base = static_cast<uint32_t>(150 - at) << 23;
    const float q = FloatOfBits(SelectBits(15u << at, word, base)) - FloatOfBits(base);
    return Fma(q, factor, -FloatOfBits(scale.other));
  }
  uint32_t above = 0;
  if (format.low_bits == 8) {
    above =
        Permute(bits.low[step], 0x4700u, 0x5404u | static_cast<uint32_t>(2 * pair + place) << 4);
  } else if (format.has_values) {
    above = Permute(bytes[place], 0x4700u, 0x5404u | static_cast<uint32_t>(2 * step + pair) << 4);
  } else {
    above = Permute(bytes[pair], 0x4300u, 0x5044u | static_cast<uint32_t>(step + 2 * place) << 8);
  }
  const float integer = FloatOfBits(above);
  const float other = FloatOfBits(scale.other);
  switch (conversion) {
    case Conversion::kFused:
      return Fma(integer, factor, two ? -(BaseAndZero(format, format.zero) * factor) : -other);
    case Conversion::kMin:
      return Fma(integer - UnitBase(format), factor, -other);
    default:
      return (integer - other) * factor;
  }
}

// Converts the pairs of inputs 2 t and 2 t + 1, and 2 t + 8 and 2 t + 9, of both steps of unit
// `unit` of a span.
TLM_DEVICE void UnitPairs(const StripFormat& format, Conversion conversion, const UnitBits& bits,
                          int unit, const UnitScale& scale, uint32_t (&pairs)[2][2]) {
  uint32_t bytes[2] = {};
  if (format.low_bits == 4) UnitBytes(format, bits, unit, bytes);
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      if (conversion == Conversion::kPacked) {
        pairs[step][pair] = PackedPair(format, bits, bytes, step, pair, scale);
        continue;
      }
      float elements[2];
      if (conversion == Conversion::kFloats) {
        E4m3Values(bits.low[step] >> (16 * pair), elements);
        elements[0] *= FloatOfBits(scale.scale[0]);
        elements[1] *= FloatOfBits(scale.scale[0]);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          elements[i] = UnitElement(format, conversion, bits, bytes, step, pair, i, scale);
        }
      }
      pairs[step][pair] = PackPair<Bf16>(elements[0], elements[1]);
    }
  }
}

// A lane's share of a span, for kRows rows. The four lanes of a row each compute the scales of one
// unit, and exchange them.
template <int kRows>
struct SpanShare {
  LaneBits bits[kRows];
  StepScale scales[kRows][2];  // scales of the lane's unit

  // Loads rows `row` + i * row_step of span `span` of a cell, with t = lane % 4.
  TLM_DEVICE void Load(const StripFormat& format, const unsigned char* cell, int spans, int span,
                       int row, int row_step, int t) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      bits[i].Load(format, cell, spans, span, row + i * row_step, t);
#pragma unroll
      for (int step = 0; step < (format.scales == BlockScales::kTwoFactors ? 2 : 1); ++step) {
        scales[i][step] =
            ScaleOf(format, cell, spans, span * kSpanSteps + 2 * t + step, row + i * row_step);
      }
    }
  }

  // Whether all lanes' scales allow the fast conversion.
  TLM_DEVICE bool TakesFast(const StripFormat& format) const {
    if (format.scales != BlockScales::kFloat) return true;
    bool takes = true;
#pragma unroll
    for (int i = 0; i < kRows; ++i) takes = takes && simt::TakesFast(format, scales[i][0]);
    return Ballot(takes) == 0xffffffffu;
  }

  // Calls store(unit, pairs) for every unit in turn, with pairs [kRows][2][2] from UnitPairs.
  template <typename Store>
  TLM_DEVICE void Convert(const StripFormat& format, Conversion conversion, int lane,
                          const Store& store) const {
    const bool two = format.scales == BlockScales::kTwoFactors;
    const bool has_other =
        !two && conversion != Conversion::kFloats &&
        (conversion != Conversion::kPacked || format.scales == BlockScales::kFloat);
    UnitScale of[kSpanUnits][kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const UnitScale mine = UnitScaleOf(format, conversion, scales[i]);
#pragma unroll
      for (int unit = 0; unit < kSpanUnits; ++unit) {
        const int from = lane / kStepLanes * kStepLanes + unit;
        of[unit][i] = mine;
        of[unit][i].scale[0] = Shuffle(mine.scale[0], from);
        if (two) of[unit][i].scale[1] = Shuffle(mine.scale[1], from);
        if (has_other) of[unit][i].other = Shuffle(mine.other, from);
      }
    }
#pragma unroll
    for (int unit = 0; unit < kSpanUnits; ++unit) {
      uint32_t pairs[kRows][2][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        UnitPairs(format, conversion, bits[i].Unit(format, unit), unit, of[unit][i], pairs[i]);
      }
      store(unit, pairs);
    }
  }
  template <typename Store>
  TLM_DEVICE void Convert(const StripFormat& format, int lane, const Store& store) const {
    if (TakesFast(format)) {
      Convert(format, FastConversion(format), lane, store);
    } else {
      Convert(format, Conversion::kGeneral, lane, store);
    }
  }
};

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_BLOCK_VALUES_H_
