// The tile instructions that the AMX kernels use (Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 2, "AMX"). Only the kernel files include this, inside namespace
// TLM_ISA_NAMESPACE, like vec.h; tests include functions of the same names that compute what the
// manual specifies.
//
// These are not from <amxtileintrin.h>: GCC 12's intrinsics do not declare that they read and write
// memory, so that stores before a tile load may be optimised away.
#include <stdint.h>

namespace tlm {
namespace TLM_ISA_NAMESPACE {
namespace {

// The configuration of tiles 0 .. 7; a tile with rows = 0 is not used.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Sets all tiles to 0.
inline void ConfigureTiles(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

// Until the next ConfigureTiles this thread has no tiles, and the system saves no tile state for
// it.
inline void ReleaseTiles() { asm volatile("tilerelease" : : : "memory"); }

template <int kTile>
inline void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "n"(kTile));
}

// Rows of the tile are `stride` bytes apart; nothing else is read.
template <int kTile>
inline void LoadTile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "n"(kTile) : "memory");
}

template <int kTile>
inline void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "n"(kTile) : "memory");
}

// sums[m][n] += sum over k of a[m][k] * b[k / 2][n][k % 2], bfloat16: E = the sum over even k from
// 0, O = the sum over odd k, sums += E + O. Each step is rounded to nearest; subnormal inputs and
// results count as 0.
template <int kSums, int kA, int kB>
inline void MultiplyBf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(kSums), "n"(kA), "n"(kB));
}

// sums[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], with a int8, b uint8 and sums int32,
// exactly.
template <int kSums, int kA, int kB>
inline void MultiplyInt8() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(kSums), "n"(kA), "n"(kB));
}

}  // namespace
}  // namespace TLM_ISA_NAMESPACE
}  // namespace tlm
