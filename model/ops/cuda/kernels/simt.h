// The vocabulary of the kernels: a GPU's instructions under names of this header. The same source
// compiles for the device and, with another <simt_emulated.h>, for an emulated GPU
// (tests/support/simt).
//
// Kernels use only this header and plain C++. All shared memory is dynamic: SharedMemory<T>().
// Floating-point expressions are compiled without contraction; where a product and a sum must be
// rounded once, the code calls Fma. If a comment names a warp or a thread block, all of its threads
// must take part.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SIMT_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SIMT_H_

#include <cstdint>

#ifndef __CUDACC__
#include <simt_emulated.h>
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define TLM_DEVICE __device__ __forceinline__
#define TLM_HOST_DEVICE __host__ __device__ __forceinline__
#define TLM_KERNEL __global__ void

namespace tlm::simt {

// --- threadIdx, blockIdx, blockDim and gridDim are CUDA's. ---

// The thread block's dynamic shared memory, 128-byte aligned, contents undefined.
template <typename T>
TLM_DEVICE T* SharedMemory() {
  extern __shared__ __align__(128) unsigned char tlm_shared_memory[];
  return reinterpret_cast<T*>(tlm_shared_memory);
}

// --- Barriers and fences. ---

// The whole block; orders its shared and global memory accesses.
TLM_DEVICE void SyncThreads() { __syncthreads(); }
// The whole warp; orders its accesses.
TLM_DEVICE void SyncWarp() { __syncwarp(); }
// Orders this thread's global accesses before its later ones, as other blocks see them.
TLM_DEVICE void FenceDevice() { __threadfence(); }

// Programmatic dependent launch. WaitForPrevious returns when the previous kernel has ended and all
// its writes are visible. That kernel waited, too, so all earlier kernels' writes are also visible.
// The call precedes the first access to anything that another kernel writes, and precedes a
// kernel's end: all threads wait in block 0, and in any other block with work. LetNextStart allows
// the next kernel's blocks to begin when all blocks of this kernel have called it or ended. It may
// precede the wait, because the next kernel waits itself.
TLM_DEVICE void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
TLM_DEVICE void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" :::);
#endif
}

// --- Within a warp, all 32 lanes. ---

template <typename T>
TLM_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
// Returns the value of lane `lane`.
template <typename T>
TLM_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
// Returns bit i from the predicate of lane i.
TLM_DEVICE uint32_t Ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// --- Atomics, on integers only, because sums of floats would depend on the order. Each returns the
// old value. The address is in global or shared memory. ---

TLM_DEVICE uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  return atomicAdd(address, value);
}
TLM_DEVICE uint64_t AtomicAdd(uint64_t* address, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return atomicAdd(reinterpret_cast<unsigned long long*>(address), value);
}
TLM_DEVICE uint32_t AtomicOr(uint32_t* address, uint32_t value) { return atomicOr(address, value); }

// --- Memory. ---

// 16 bytes, the unit of all wide accesses; addresses are 16-byte aligned.
struct alignas(16) Quad {
  uint32_t word[4];
};
// A 4-byte load that sees what other thread blocks stored before a FenceDevice.
TLM_DEVICE uint32_t LoadVolatile(const uint32_t* from) {
  return *const_cast<const volatile uint32_t*>(from);
}

TLM_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// cp.async: begins copying 16 bytes from global to shared memory. If not `valid`, stores zeros and
// reads nothing.
TLM_DEVICE void CopyAsync16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
// Prefetches `bytes` of global memory, a multiple of 16 at a 16-byte aligned address, to the L2
// cache. Nothing waits for it. Does nothing before compute capability 9.0.
TLM_DEVICE void PrefetchToL2(const void* global, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes));
#endif
}
// Closes a group: the copies that this thread began since the last one.
TLM_DEVICE void CopyAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when all but the newest kPending groups of this thread have arrived. Other threads see
// the data after SyncThreads.
template <int kPending>
TLM_DEVICE void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- Tensor cores, all 32 lanes of a warp. PTX ISA, "Matrix fragments for mma.m16n8k16". ---

// ldmatrix: four 8 x 8 matrices of 16-bit elements from shared memory. Lane i gives the address of
// row i % 8 of matrix i / 8 (16-byte aligned). Lane i receives in out[j] elements 2 (i % 4) and 2
// (i % 4) + 1 of row i / 4 of matrix j; Transposed: of column i / 4.
TLM_DEVICE void LoadMatrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
TLM_DEVICE void LoadMatricesTransposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Storage of 16-bit elements.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// mma.m16n8k16: c += a b, a [16, 16] row-major, b [16, 8] column-major, c [16, 8] float32. With g =
// lane / 4 and t = lane % 4: a[0] holds row g, columns 2t and 2t + 1; a[1] row g + 8; a[2] and a[3]
// the same rows, columns + 8. b[0] holds column g, rows 2t and 2t + 1; b[1] rows + 8. c[0] and c[1]
// are row g, columns 2t and 2t + 1; c[2] and c[3] row g + 8.
template <typename T>
TLM_DEVICE void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
TLM_DEVICE void MultiplyAdd<Bf16>(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
TLM_DEVICE void MultiplyAdd<F16>(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// --- Arithmetic: each operation rounds once, to nearest even, on host and device alike. ---

TLM_HOST_DEVICE float Fma(float a, float b, float c) { return fmaf(a, b, c); }
TLM_HOST_DEVICE double Fma(double a, double b, double c) { return fma(a, b, c); }
TLM_HOST_DEVICE float Sqrt(float a) { return sqrtf(a); }
TLM_HOST_DEVICE float Magnitude(float a) { return fabsf(a); }
// Returns 1 / a within one unit in the last place, as the device computes it: the only function
// here that is not exact. No result may depend on which such number it is.
TLM_HOST_DEVICE float Reciprocal(float a) {
#ifdef __CUDA_ARCH__
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(a));
  return reciprocal;
#else
  return 1.0f / a;
#endif
}
// Returns the larger one; for a number and NaN the number; for two zeros either.
TLM_HOST_DEVICE float Larger(float a, float b) { return fmaxf(a, b); }
// Returns the smaller one; NaN if one of them is NaN.
TLM_DEVICE float SmallerOrNan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

TLM_DEVICE float ToFloat(float a) { return a; }
TLM_DEVICE float ToFloat(Bf16 a) { return __uint_as_float(uint32_t{a.bits} << 16); }
TLM_DEVICE float ToFloat(F16 a) { return __half2float(__ushort_as_half(a.bits)); }
template <typename T>
TLM_DEVICE T FromFloat(float a);
template <>
TLM_DEVICE float FromFloat<float>(float a) {
  return a;
}
template <>
TLM_DEVICE Bf16 FromFloat<Bf16>(float a) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(a))};
}
template <>
TLM_DEVICE F16 FromFloat<F16>(float a) {
  return {__half_as_ushort(__float2half_rn(a))};
}
// Returns a b, for the 16-bit elements in each half of a word; subnormals are kept.
template <typename T>
TLM_DEVICE uint32_t MultiplyPair(uint32_t a, uint32_t b);
template <>
TLM_DEVICE uint32_t MultiplyPair<Bf16>(uint32_t a, uint32_t b) {
  // Older devices lack the mul instruction of compute capability 9.0; adding -0 changes nothing.
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}
template <>
TLM_DEVICE uint32_t MultiplyPair<F16>(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// Returns a b + c in each half, rounded once; subnormals are kept.
template <typename T>
TLM_DEVICE uint32_t FmaPair(uint32_t a, uint32_t b, uint32_t c);
template <>
TLM_DEVICE uint32_t FmaPair<Bf16>(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
// prmt: byte i is byte n of a (n = 0 .. 3) or n - 4 of b, where n is hexadecimal digit i of
// `selector`.
TLM_DEVICE uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// Returns the bits of a where the mask's bits are 1, and the bits of b elsewhere. This is one lop3
// instruction, which compilers do not find if a mask is constant.
TLM_DEVICE uint32_t SelectBits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}
// Whether the device has E4m3ToF16: from compute capability 8.9 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kHasE4m3ToF16 = true;
#else
inline constexpr bool kHasE4m3ToF16 = false;
#endif
// Converts four E4M3 elements (model/tensor/fp8.h) to words of float16: `low` gets bytes 0 and 2,
// `high` gets bytes 1 and 3. NaN becomes 0x7fff.
TLM_DEVICE void E4m3ToF16(uint32_t bytes, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n"
      ".reg .b16 even, odd;\n"
      "mov.b32 {even, odd}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, even;\n"
      "cvt.rn.f16x2.e4m3x2 %1, odd;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(__byte_perm(bytes, 0, 0x3120)));
#else
  low = high = bytes;  // never called
#endif
}
TLM_HOST_DEVICE uint32_t FloatBits(float a) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(a);
#else
  union {
    float f;
    uint32_t u;
  } bits{a};
  return bits.u;
#endif
}
TLM_HOST_DEVICE float FloatOfBits(uint32_t a) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(a);
#else
  union {
    uint32_t u;
    float f;
  } bits{a};
  return bits.f;
#endif
}

}  // namespace tlm::simt

#endif  // __CUDACC__

namespace tlm::simt {

inline constexpr int kWarpLanes = 32;

// Returns the value of an E4M3 element that is not NaN, like Fp8Value (model/tensor/fp8.h). The
// bits become a float whose exponent is too small by 127 - 7; the factor corrects that without
// rounding.
TLM_DEVICE float E4m3Value(uint32_t bits) {
  return FloatOfBits((bits & 0x80u) << 24 | (bits & 0x7fu) << 20) * 0x1p120f;
}
// Computes the values of the two lowest bytes.
TLM_DEVICE void E4m3Values(uint32_t bytes, float (&out)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bytes)));
  out[0] = ToFloat(F16{static_cast<uint16_t>(halves)});
  out[1] = ToFloat(F16{static_cast<uint16_t>(halves >> 16)});
#else
  out[0] = E4m3Value(bytes & 255u);
  out[1] = E4m3Value(bytes >> 8 & 255u);
#endif
}

// Two 16-bit elements as a word of an mma fragment: `low` in the lower half.
template <typename T>
TLM_DEVICE uint32_t PackPair(float low, float high) {
  return uint32_t{FromFloat<T>(low).bits} | uint32_t{FromFloat<T>(high).bits} << 16;
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SIMT_H_
