// A vector of kLanes floats for the instruction set this translation unit is compiled for. Included
// only by the kernel files, inside their own namespace TLM_ISA_NAMESPACE, so that every instruction
// set has types and functions of its own.
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

static inline Vec Splat(float value) { return value - Vec{}; }

static inline Vec Load(const float* from) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

static inline void Store(float* to, Vec value) { __builtin_memcpy(to, &value, sizeof(value)); }

// a * b + c, rounded once where the instruction set can.
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

// The same for one value, so that a tail shorter than a vector rounds like the rest.
static inline float Fma(float a, float b, float c) {
#if defined(__AVX2__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

static inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }

// Lanes summed in a fixed tree: halves onto each other until one is left.
static inline float Sum(Vec value) {
  float lanes[kLanes];
  Store(lanes, value);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// kLanes stored elements as floats, exactly.
static inline Vec Widen(const float* from) { return Load(from); }

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

static inline BitVec LoadHalves(const void* from) {
  HalfVec halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return __builtin_convertvector(halves, BitVec);
}

static inline Vec Widen(const BF16* from) { return (Vec)(LoadHalves(from) << 16); }

// binary16's fields moved into a float's make the exponent too small by 112; the product repairs
// that and is exact, for subnormals too. Infinity and NaN, which keys and values may be, get back
// the exponent that says so.
static inline Vec Widen(const F16* from) {
  const BitVec bits = LoadHalves(from);
  const Vec magnitude = (Vec)((bits & 0x7fffu) << 13) * 0x1p112f;
  const BitVec not_finite = (BitVec)((bits & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (Vec)((BitVec)magnitude | not_finite | ((bits & 0x8000u) << 16));
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

// e^x for x <= 0 (and up to about 88), relative error below 2e-7: x = n ln 2 + r, |r| <= ln 2 / 2,
// a polynomial in r (Cephes' expf) times 2^n. Below -87.3 the result is 0; NaN stays NaN. Every
// lane alike.
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
