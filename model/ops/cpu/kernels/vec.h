// A vector of kLanes floats for the instruction set of this translation unit. Only the kernel files
// include this, inside their own namespace TLM_ISA_NAMESPACE, so that every instruction set has its
// own types and functions.
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tlm {
namespace TLM_ISA_NAMESPACE {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t BitVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));
typedef int16_t SignedHalfVec __attribute__((vector_size(kLanes * 2)));
typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));

static inline Vec Splat(float value) { return value - Vec{}; }

static inline Vec Load(const float* from) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static inline void Store(float* to, Vec value) { __builtin_memcpy(to, &value, sizeof(value)); }

// Returns a * b + c, rounded once if the instruction set can.
static inline Vec Fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// Does the same for one value, so that a tail shorter than a vector rounds like the rest.
static inline float Fma(float a, float b, float c) {
#if defined(__AVX2__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

static inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }

// Sums the lanes in a fixed tree: halves are added onto each other until one is left.
static inline float Sum(Vec value) {
#if defined(__AVX512F__)
  const auto eight = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const Vec eight = value;
#endif
#if defined(__AVX2__)
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const Vec four = value;
#endif
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

// Returns kLanes stored elements as floats, exactly.
static inline Vec Widen(const float* from) { return Load(from); }

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

struct F8 {
  uint8_t bits;
};

static inline BitVec LoadHalves(const void* from) {
  HalfVec halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return __builtin_convertvector(halves, BitVec);
}
static inline BitVec LoadBytes(const void* from) {
  ByteVec bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return __builtin_convertvector(bytes, BitVec);
}

static inline Vec Widen(const BF16* from) { return (Vec)(LoadHalves(from) << 16); }

#if defined(__AVX512F__)
static inline Vec Widen(const F16* from) {
  return (Vec)_mm512_maskz_cvtph_ps((__mmask16)-1, _mm256_loadu_si256((const __m256i*)from));
}
#elif defined(__F16C__)
static inline Vec Widen(const F16* from) {
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
}
#else
// Moving binary16's fields into a float's makes the exponent too small by 112; the product repairs
// this exactly, also for subnormals. Infinity and NaN, possible in keys and values, get back their
// exponent.
static inline Vec Widen(const F16* from) {
  const BitVec bits = LoadHalves(from);
  const Vec magnitude = (Vec)((bits & 0x7fffu) << 13) * 0x1p112f;
  const BitVec not_finite = (BitVec)((bits & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (Vec)((BitVec)magnitude | not_finite | ((bits & 0x8000u) << 16));
}
#endif

// Converts E4M3 (model/tensor/fp8.h) in the high bytes of kLanes words to floats, exactly; the low
// bytes may have any value. Moving E4M3's fields into a wider type makes the exponent too small by
// the difference of the biases: `scales` from WidenScales also repair this.
#if defined(__F16C__)
// Goes through binary16, whose subnormals cost nothing.
constexpr uint32_t kF8BiasDifference = 15 - 7;
static inline Vec WidenF8(HalfVec words, Vec scales) {
  const HalfVec bits = (HalfVec)((SignedHalfVec)words >> 1) & 0xbf80u;
  const HalfVec nan = (HalfVec)((bits & 0x3f80u) == 0x3f80u) & 0x7c00u;
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps((__mmask16)-1, (__m256i)(bits | nan)) * scales;
#else
  return (Vec)_mm256_cvtph_ps((__m128i)(bits | nan)) * scales;
#endif
}
#else
constexpr uint32_t kF8BiasDifference = 127 - 7;
static inline Vec WidenF8(HalfVec words, Vec scales) {
  const BitVec bits = __builtin_convertvector(words, BitVec) << 16;
  const BitVec magnitude = bits & 0x7f000000u;
  const BitVec nan = (BitVec)(magnitude == 0x7f000000u) & 0x7f800000u;
  return (Vec)((BitVec)((Vec)(magnitude >> 4) * scales) | nan | (bits & 0x80000000u));
}
#endif
// Returns the scales of kLanes rows from their bytes.
static inline Vec WidenScales(const uint8_t* from) {
  return (Vec)((LoadBytes(from) + kF8BiasDifference) << 23);
}

// Converts values that have been divided by their rows' scales to E4M3 in the low bytes, like
// Fp8Of.
static inline BitVec RoundToF8(Vec scaled) {
  const BitVec bits = (BitVec)scaled;
  const IntVec magnitude = (IntVec)(bits & 0x7fffffffu);
  const IntVec odd = (magnitude >> 20) & 1;
  const IntVec normal = (magnitude - 0x3c000000 + 0x7ffff + odd) >> 20;
  const IntVec subnormal = (IntVec)((Vec)magnitude + 0x1p14f) - 0x46800000;
  IntVec code = magnitude < 0x3c800000 ? subnormal : normal;
  code = magnitude >= 0x43e00000 ? IntVec{} + 0x7e : code;
  code = magnitude >= 0x7f800000 ? IntVec{} + 0x7f : code;
  return (BitVec)code | ((bits >> 24) & 0x80u);
}

static inline float WidenOne(const float* from) { return *from; }
static inline float WidenOne(const BF16* from) {
  const uint32_t bits = (uint32_t)from->bits << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
static inline float WidenOne(const F16* from) {
  uint32_t bits = (uint32_t)(from->bits & 0x7fffu) << 13;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  value *= 0x1p112f;
  if ((from->bits & 0x7c00u) == 0x7c00u) {
    bits |= 0x7f800000u;
    __builtin_memcpy(&value, &bits, 4);
  }
  return from->bits & 0x8000u ? -value : value;
}

// Rounds to nearest, ties to even; NaN stays NaN.
static inline BF16 RoundOne(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if (value != value) return BF16{(uint16_t)((bits >> 16) | 0x40u)};
  return BF16{(uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

static inline void StoreRounded(BF16* to, Vec value) {
  const BitVec bits = (BitVec)value;
  const BitVec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const BitVec nan = (bits >> 16) | 0x40u;
  const HalfVec halves = __builtin_convertvector(value == value ? rounded : nan, HalfVec);
  __builtin_memcpy(to, &halves, sizeof(halves));
}

// Stores as one of the two types that a row may have.
static inline void StoreAs(float* to, Vec value) { Store(to, value); }
static inline void StoreAs(BF16* to, Vec value) { StoreRounded(to, value); }
static inline void StoreOneAs(float* to, float value) { *to = value; }
static inline void StoreOneAs(BF16* to, float value) { *to = RoundOne(value); }

// Load and store the first `count` < kLanes elements; loading fills the rest with zeros.
template <typename T>
static inline Vec WidenFirst(const T* from, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < kLanes; ++i) {
    if (i < count) lanes[i] = WidenOne(from + i);
  }
  return Load(lanes);
}
template <typename T>
static inline void StoreFirst(T* to, Vec value, int64_t count) {
  float lanes[kLanes];
  Store(lanes, value);
  for (int64_t i = 0; i < kLanes; ++i) {
    if (i < count) StoreOneAs(to + i, lanes[i]);
  }
}

static inline F16 RoundToF16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return F16{(uint16_t)(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return F16{(uint16_t)(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the rounded digits in the low bits.
    float shifted;
    __builtin_memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    uint32_t digits;
    __builtin_memcpy(&digits, &shifted, 4);
    return F16{(uint16_t)(sign | (digits - 0x3f000000u))};
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return F16{(uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

// Returns e^x for x <= 0 (and up to about 88), relative error below 2e-7: x = n ln 2 + r, |r| <= ln
// 2 / 2, a polynomial in r (Cephes' expf) times 2^n. Below -87.3 the result is 0; NaN stays NaN.
// All lanes compute the same way.
static inline Vec Exp(Vec x) {
  const Vec lowest = Splat(-87.33654f);
  const Vec clamped = Max(lowest, x);
  const Vec magic = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = Fma(clamped, Splat(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r = Fma(n, Splat(-0.693359375f), clamped);
  r = Fma(n, Splat(2.12194440e-4f), r);
  Vec p = Splat(1.9875691500e-4f);
  p = Fma(p, r, Splat(1.3981999507e-3f));
  p = Fma(p, r, Splat(8.3334519073e-3f));
  p = Fma(p, r, Splat(4.1665795894e-2f));
  p = Fma(p, r, Splat(1.6666665459e-1f));
  p = Fma(p, r, Splat(5.0000001201e-1f));
  p = Fma(p, r * r, r) + 1.0f;
  const IntVec exponent = ((IntVec)shifted - (IntVec)magic) << 23;
  const Vec scaled = (Vec)((IntVec)p + exponent);
  const Vec result = x < lowest ? Vec{} : scaled;
  return x == x ? result : x;
}

static inline float ExpOne(float x) {
  float lanes[kLanes];
  Store(lanes, Exp(Splat(x)));
  return lanes[0];
}

}  // namespace TLM_ISA_NAMESPACE
}  // namespace tlm
