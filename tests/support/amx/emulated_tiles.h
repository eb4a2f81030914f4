// The functions of model/ops/cpu/kernels/amx_tiles.h, emulated (tile_unit.h): the AMX kernels are
// compiled a second time with these. Include it in the same way.
#include <stdint.h>

#include "tests/support/amx/tile_unit.h"

namespace tlm {
namespace TLM_ISA_NAMESPACE {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

inline void ConfigureTiles(const TileConfig& config) { EmulateLdTileCfg(&config); }
inline void ReleaseTiles() { EmulateTileRelease(); }

template <int kTile>
inline void ZeroTile() {
  EmulateTileZero(kTile);
}
template <int kTile>
inline void LoadTile(const void* from, int64_t stride) {
  EmulateTileLoad(kTile, from, stride);
}
template <int kTile>
inline void StoreTile(void* to, int64_t stride) {
  EmulateTileStore(kTile, to, stride);
}
template <int kSums, int kA, int kB>
inline void MultiplyBf16() {
  EmulateTdpBf16Ps(kSums, kA, kB);
}
template <int kSums, int kA, int kB>
inline void MultiplyInt8() {
  EmulateTdpBSud(kSums, kA, kB);
}

}  // namespace
}  // namespace TLM_ISA_NAMESPACE
}  // namespace tlm
