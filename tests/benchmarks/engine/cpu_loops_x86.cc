#include "tests/benchmarks/engine/cpu_loops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

// Functions carry their instruction set themselves, so that the program runs everywhere.
#define TLM_AVX2 __attribute__((target("avx2,fma")))
#define TLM_AVX512 __attribute__((target("avx512f")))
#define TLM_AVX512_BW __attribute__((target("avx512f,avx512bw")))
#define TLM_AVX512_BF16 __attribute__((target("avx512f,avx512bf16")))
#define TLM_AVX512_VNNI __attribute__((target("avx512f,avx512vnni")))
#define TLM_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

namespace tlm::bench {
namespace {

// As many sums as hide the latency of two units and fit into 16 registers beside the operands. They
// begin with different values: equal ones would be computed once.
constexpr int kSums = 12;
constexpr size_t kStreams = 4;  // read side by side: one alone does not fill the memory's queues
constexpr size_t kAhead = 1024;

TLM_AVX2 uint64_t ReadAvx2(const char* data, size_t bytes) {
  const size_t part = bytes / kStreams;
  __m256i seen[kStreams] = {};
  for (size_t i = 0; i < part; i += 64) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kStreams; ++j) {
      const auto* at = reinterpret_cast<const __m256i*>(data + j * part + i);
      _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
      seen[j] = _mm256_or_si256(seen[j], _mm256_or_si256(at[0], at[1]));
    }
  }
  alignas(32) uint64_t words[4];
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(words),
      _mm256_or_si256(_mm256_or_si256(seen[0], seen[1]), _mm256_or_si256(seen[2], seen[3])));
  return words[0] | words[1] | words[2] | words[3];
}

TLM_AVX512 uint64_t ReadAvx512(const char* data, size_t bytes) {
  const size_t part = bytes / kStreams;
  __m512i seen[kStreams] = {};
  for (size_t i = 0; i < part; i += 64) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kStreams; ++j) {
      const char* at = data + j * part + i;
      _mm_prefetch(at + kAhead, _MM_HINT_T0);
      seen[j] = _mm512_or_si512(seen[j], _mm512_load_si512(at));
    }
  }
  alignas(64) uint64_t words[8];
  _mm512_store_si512(
      words, _mm512_or_si512(_mm512_or_si512(seen[0], seen[1]), _mm512_or_si512(seen[2], seen[3])));
  uint64_t all = 0;
  for (const uint64_t word : words) all |= word;
  return all;
}

TLM_AVX2 float FmaAvx2(int64_t rounds) {
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.3f);
  __m256 sums[kSums];
  for (int j = 0; j < kSums; ++j) sums[j] = _mm256_set1_ps(static_cast<float>(j));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = _mm256_fmadd_ps(sums[j], a, b);
  }
  float total = 0;
  for (const __m256& sum : sums) total += _mm256_cvtss_f32(sum);
  return total;
}

TLM_AVX512 float FmaAvx512(int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.3f);
  __m512 sums[kSums];
  for (int j = 0; j < kSums; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = _mm512_fmadd_ps(sums[j], a, b);
  }
  float total = 0;
  for (const __m512& sum : sums) total += _mm512_cvtss_f32(sum);
  return total;
}

TLM_AVX512_BF16 float DotBf16(int64_t rounds) {
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));  // 0.5
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3e803e80));  // 0.25
  __m512 sums[kSums];
  for (int j = 0; j < kSums; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = _mm512_dpbf16_ps(sums[j], a, b);
  }
  float total = 0;
  for (const __m512& sum : sums) total += _mm512_cvtss_f32(sum);
  return total;
}

// Without vpdpbusd: products of pairs in 16 bits, sums of pairs in 32.
TLM_AVX2 float MultiplyBytesAvx2(int64_t rounds) {
  const __m256i b = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i sums[kSums / 2] = {}, a[kSums / 2];
  for (int j = 0; j < kSums / 2; ++j) a[j] = _mm256_set1_epi8(static_cast<char>(j + 1));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 6
    for (int j = 0; j < kSums / 2; ++j) {
      asm volatile("" : "+x"(a[j]));  // another product every round, for all the compiler knows
      sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a[j], b), ones));
    }
  }
  int total = 0;
  for (const __m256i& sum : sums) total ^= _mm256_extract_epi32(sum, 0);
  return static_cast<float>(total);
}

TLM_AVX512_BW float MultiplyBytesAvx512(int64_t rounds) {
  const __m512i b = _mm512_set1_epi8(3), ones = _mm512_set1_epi16(1);
  __m512i sums[kSums] = {}, a[kSums];
  for (int j = 0; j < kSums; ++j) a[j] = _mm512_set1_epi8(static_cast<char>(j + 1));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) {
      asm volatile("" : "+v"(a[j]));  // as above
      sums[j] = _mm512_add_epi32(sums[j], _mm512_madd_epi16(_mm512_maddubs_epi16(a[j], b), ones));
    }
  }
  int total = 0;
  for (const __m512i& sum : sums) total ^= _mm512_cvtsi512_si32(sum);
  return static_cast<float>(total);
}

TLM_AVX512_VNNI float DotBytes(int64_t rounds) {
  const __m512i a = _mm512_set1_epi8(5), b = _mm512_set1_epi8(3);
  __m512i sums[kSums];
  for (int j = 0; j < kSums; ++j) sums[j] = _mm512_set1_epi32(j);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) sums[j] = _mm512_dpbusd_epi32(sums[j], a, b);
  }
  int total = 0;
  for (const __m512i& sum : sums) total ^= _mm512_cvtsi512_si32(sum);
  return static_cast<float>(total);
}

// Tiles 0 to 3 take sums, 4 and 5 rows of x, 6 and 7 of w: all eight of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr int kTileProducts = 4;  // of a round

TLM_AMX void LoadTiles(const TileConfig& config, const void* operands) {
  // The intrinsic does not tell GCC 12 that it reads the configuration.
  asm volatile("" ::"r"(&config), "r"(operands) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operands, 64);
  _tile_loadd(5, operands, 64);
  _tile_loadd(6, operands, 64);
  _tile_loadd(7, operands, 64);
}

template <typename T>
TLM_AMX float FirstOfTiles() {
  alignas(64) T sums[256];
  float total = 0;
  _tile_stored(0, sums, 64);
  asm volatile("" ::"r"(sums) : "memory");
  total += static_cast<float>(sums[0]);
  _tile_stored(3, sums, 64);
  asm volatile("" ::"r"(sums) : "memory");
  total += static_cast<float>(sums[0]);
  _tile_release();
  return total;
}

TLM_AMX float TilesBf16(int64_t rounds) {
  alignas(64) uint16_t operands[512];
  for (uint16_t& value : operands) value = 0x3f00;
  LoadTiles(TileConfig(), operands);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return FirstOfTiles<float>();
}

TLM_AMX float TilesInt8(int64_t rounds) {
  alignas(64) int8_t operands[1024];
  std::memset(operands, 3, sizeof(operands));
  LoadTiles(TileConfig(), operands);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return FirstOfTiles<int32_t>();
}

// Linux gives a process the tiles when it asks (Documentation/arch/x86/xstate.rst).
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool HasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  return (d & kAll) == kAll && RequestTiles();
}

constexpr ProductLoop kFma512 = {"vfmadd zmm", 2.0 * kSums * 16, FmaAvx512};
constexpr ProductLoop kDotBf16 = {"vdpbf16ps zmm", 2.0 * kSums * 32, DotBf16};
constexpr ProductLoop kDotBytes = {"vpdpbusd zmm", 2.0 * kSums * 64, DotBytes};

constexpr CpuLoops kAvx2 = {.read = ReadAvx2,
                            .floats = {"vfmadd ymm", 2.0 * kSums * 8, FmaAvx2},
                            .int8 = {"vpmaddubsw ymm", 2.0 * (kSums / 2) * 32, MultiplyBytesAvx2}};
constexpr CpuLoops kAvx512 = {.read = ReadAvx512,
                              .floats = kFma512,
                              .int8 = {"vpmaddubsw zmm", 2.0 * kSums * 64, MultiplyBytesAvx512}};
constexpr CpuLoops kAvx512Bf16 = {
    .read = ReadAvx512, .floats = kFma512, .bf16 = kDotBf16, .int8 = kDotBytes};
constexpr CpuLoops kAmx = {.read = ReadAvx512,
                           .floats = kFma512,
                           .bf16 = {"tdpbf16ps", 2.0 * kTileProducts * 16 * 16 * 32, TilesBf16},
                           .int8 = {"tdpbssd", 2.0 * kTileProducts * 16 * 16 * 64, TilesInt8}};

}  // namespace

const CpuLoops* X86LoopsOf(std::string_view arithmetic) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  const bool bf16 =
      avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (arithmetic == "avx2") return avx2 ? &kAvx2 : nullptr;
  if (arithmetic == "avx512") return avx512 ? &kAvx512 : nullptr;
  if (arithmetic == "avx512_bf16") return bf16 ? &kAvx512Bf16 : nullptr;
  if (arithmetic == "amx_bf16") return bf16 && HasTiles() ? &kAmx : nullptr;
  return nullptr;
}

}  // namespace tlm::bench

#else

namespace tlm::bench {

const CpuLoops* X86LoopsOf(std::string_view arithmetic) { return nullptr; }

}  // namespace tlm::bench

#endif  // __x86_64__
