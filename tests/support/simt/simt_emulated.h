// The counterpart of model/ops/cuda/kernels/simt.h: the same names, for a host that emulates a GPU.
// Every thread of a block is a fiber. Between the places where a warp or the block waits, threads
// run one after the other in random order, so that a missing barrier shows as a wrong result.
// tests/support/simt/emulator.h lists the checks.
#ifndef TLM_TESTS_SUPPORT_SIMT_SIMT_EMULATED_H_
#define TLM_TESTS_SUPPORT_SIMT_SIMT_EMULATED_H_

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "model/base/float16.h"
#include "model/tensor/fp8.h"

#define TLM_DEVICE inline
#define TLM_HOST_DEVICE inline
#define TLM_KERNEL void
#define __launch_bounds__(...)

// The indices of the running thread. Valid inside kernels only.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace tlm::simt {

// 16 bytes, the unit of all wide accesses; addresses are 16-byte aligned.
struct alignas(16) Quad {
  uint32_t word[4];
};
// Storage of 16-bit elements.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

namespace emulated {

extern unsigned char* shared_memory;

// Operations that the lanes of a warp do together.
enum class Collective : uint8_t {
  kSyncThreads,
  kSyncWarp,
  kShuffle,
  kBallot,
  kLoadMatrices,
  kLoadMatricesTransposed,
  kMultiplyAddBf16,
  kMultiplyAddF16,
};

void SyncThreads();
void SyncWarp();
void WaitForPrevious();
void LetNextStart();
void FenceDevice();
// Returns the 64 bits that lane `lane` passed as `value`.
uint64_t Exchange(uint64_t value, int lane);
uint32_t Ballot(bool predicate);
void LoadMatrices(uint32_t (&out)[4], const void* row, bool transposed);
void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Collective kind);
void CopyAsync16(void* shared, const void* global, bool valid);
void CopyAsyncCommit();
void CopyAsyncWait(int pending);
void PrefetchToL2(const void* global, int bytes);
// Returns the running thread's lane in its warp.
int Lane();
// Fails the kernel unless the 16 bytes at `from` are aligned and a device can access them.
void CheckGlobalQuad(const void* from);
// Fails the kernel unless `address` is aligned to the `bytes` of an atomic and a device can access
// them.
void CheckAligned(const void* address, size_t bytes);
// Records that the running thread changes `address` atomically.
void NoteAtomic(const void* address, size_t bytes);

template <typename T>
T ExchangeAs(T value, int lane) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(Exchange(std::bit_cast<Bits>(value), lane & 31)));
}
// Not instrumented: for races.h, an atomic's own accesses are neither loads nor stores.
template <typename T, typename Operation>
[[gnu::no_sanitize_thread]] T Atomic(T* address, Operation operation) {
  CheckAligned(address, sizeof(T));
  NoteAtomic(address, sizeof(T));
  const T old = *address;
  *address = operation(old);
  return old;
}

}  // namespace emulated

template <typename T>
T* SharedMemory() {
  return reinterpret_cast<T*>(emulated::shared_memory);
}

// --- Barriers and fences. ---

inline void SyncThreads() { emulated::SyncThreads(); }
inline void SyncWarp() { emulated::SyncWarp(); }
inline void FenceDevice() { emulated::FenceDevice(); }
inline void WaitForPrevious() { emulated::WaitForPrevious(); }
inline void LetNextStart() { emulated::LetNextStart(); }

// --- Within a warp, all 32 lanes. ---

template <typename T>
T ShuffleXor(T value, int mask) {
  return emulated::ExchangeAs(value, emulated::Lane() ^ mask);
}
template <typename T>
T Shuffle(T value, int lane) {
  return emulated::ExchangeAs(value, lane);
}
inline uint32_t Ballot(bool predicate) { return emulated::Ballot(predicate); }

// --- Atomics: one thread runs at a time. ---

inline uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  return emulated::Atomic(address, [value](uint32_t old) { return old + value; });
}
inline uint64_t AtomicAdd(uint64_t* address, uint64_t value) {
  return emulated::Atomic(address, [value](uint64_t old) { return old + value; });
}
inline uint32_t AtomicOr(uint32_t* address, uint32_t value) {
  return emulated::Atomic(address, [value](uint32_t old) { return old | value; });
}

// --- Memory. ---

inline uint32_t LoadVolatile(const uint32_t* from) {
  return *const_cast<const volatile uint32_t*>(from);
}
inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - emulated::shared_memory);
}
inline void CopyAsync16(void* shared, const void* global, bool valid = true) {
  emulated::CopyAsync16(shared, global, valid);
}
inline void PrefetchToL2(const void* global, int bytes) { emulated::PrefetchToL2(global, bytes); }
inline void CopyAsyncCommit() { emulated::CopyAsyncCommit(); }
template <int kPending>
void CopyAsyncWait() {
  emulated::CopyAsyncWait(kPending);
}

// --- Tensor cores. ---

inline void LoadMatrices(uint32_t (&out)[4], const void* row) {
  emulated::LoadMatrices(out, row, false);
}
inline void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) {
  emulated::LoadMatrices(out, row, true);
}
template <typename T>
void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<T, Bf16> || std::is_same_v<T, F16>);
  emulated::MultiplyAdd(c, a, b,
                        std::is_same_v<T, Bf16> ? emulated::Collective::kMultiplyAddBf16
                                                : emulated::Collective::kMultiplyAddF16);
}

// --- Arithmetic. ---

inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline double Fma(double a, double b, double c) { return std::fma(a, b, c); }
inline float Sqrt(float a) { return std::sqrt(a); }
inline float Magnitude(float a) { return std::fabs(a); }
// Errs by one unit in the last place or not at all, depending on the argument's bits.
inline float Reciprocal(float a) {
  const float exact = 1.0f / a;
  const uint32_t unit = std::bit_cast<uint32_t>(a) % 3 - 1;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(exact) + unit);
}
inline float Larger(float a, float b) { return std::fmax(a, b); }
inline float SmallerOrNan(float a, float b) {
  if (a != a || b != b) return __builtin_nanf("");
  return std::fmin(a, b);
}
inline float ToFloat(float a) { return a; }
inline float ToFloat(Bf16 a) { return Bf16ToFloat(a.bits); }
inline float ToFloat(F16 a) { return F16ToFloat(a.bits); }
template <typename T>
T FromFloat(float a);
template <>
inline float FromFloat<float>(float a) {
  return a;
}
template <>
inline Bf16 FromFloat<Bf16>(float a) {
  return {a != a ? uint16_t{0x7fff} : FloatToBf16(a)};  // the device's NaN
}
template <>
inline F16 FromFloat<F16>(float a) {
  return {a != a ? uint16_t{0x7fff} : FloatToF16(a)};
}
// For products that float32 can hold. Products of two 16-bit elements can be held except at the
// ends of their range.
template <typename T>
uint32_t MultiplyPair(uint32_t a, uint32_t b) {
  const auto product = [](uint32_t x, uint32_t y) {
    return uint32_t{
        FromFloat<T>(ToFloat(T{static_cast<uint16_t>(x)}) * ToFloat(T{static_cast<uint16_t>(y)}))
            .bits};
  };
  return product(a, b) | product(a >> 16, b >> 16) << 16;
}
// Rounds to odd: towards zero, with the last bit set if the sum is not a float. A later rounding to
// a shorter type then has the effect of a single rounding.
inline float ToOdd(double sum, double rest) {
  const float nearest = static_cast<float>(sum);
  if (!std::isfinite(sum) || (nearest == sum && rest == 0.0)) return nearest;
  const double beyond = nearest == sum ? -rest : nearest - sum;
  const bool is_beyond = std::signbit(beyond) == std::signbit(sum);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (is_beyond ? 1 : 0)) | 1u);
}
template <typename T>
uint32_t FmaPair(uint32_t a, uint32_t b, uint32_t c) {
  const auto fma = [](uint32_t x, uint32_t y, uint32_t z) {
    const double product =
        double{ToFloat(T{static_cast<uint16_t>(x)})} * double{ToFloat(T{static_cast<uint16_t>(y)})};
    const double addend = double{ToFloat(T{static_cast<uint16_t>(z)})};
    const double sum = product + addend;
    const double added = sum - product;
    const double rest = (product - (sum - added)) + (addend - added);
    return uint32_t{FromFloat<T>(ToOdd(sum, rest)).bits};
  };
  return fma(a, b, c) | fma(a >> 16, b >> 16, c >> 16) << 16;
}
inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t n = selector >> (4 * i) & 15;
    result |= ((n < 4 ? a >> (8 * n) : b >> (8 * (n & 3))) & 255) << (8 * i);
  }
  return result;
}
inline uint32_t SelectBits(uint32_t mask, uint32_t a, uint32_t b) {
  return (mask & a) | (~mask & b);
}
inline constexpr bool kHasE4m3ToF16 = true;
inline void E4m3ToF16(uint32_t bytes, uint32_t& low, uint32_t& high) {
  const auto value = [bytes](int i) {
    return uint32_t{FromFloat<F16>(Fp8Value(static_cast<uint8_t>(bytes >> 8 * i))).bits};
  };
  low = value(0) | value(2) << 16;
  high = value(1) | value(3) << 16;
}
inline uint32_t FloatBits(float a) { return std::bit_cast<uint32_t>(a); }
inline float FloatOfBits(uint32_t a) { return std::bit_cast<float>(a); }

}  // namespace tlm::simt

#endif  // TLM_TESTS_SUPPORT_SIMT_SIMT_EMULATED_H_
