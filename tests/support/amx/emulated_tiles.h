// The functions of model/ops/cpu/kernels/amx_tiles.h, played (tile_unit.h): the AMX kernels are
// compiled a second time with these. Included like that one.
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

inline void ConfigureTiles(const TileConfig& config) { PlayLdTileCfg(&config); }
inline void ReleaseTiles() { PlayTileRelease(); }

template <int kTile>
inline void ZeroTile() {
  PlayTileZero(kTile);
}
template <int kTile>
inline void LoadTile(const void* from, int64_t stride) {
  PlayTileLoad(kTile, from, stride);
}
template <int kTile>
inline void StoreTile(void* to, int64_t stride) {
  PlayTileStore(kTile, to, stride);
}
template <int kSums, int kA, int kB>
inline void MultiplyBf16() {
  PlayTdpBf16Ps(kSums, kA, kB);
}
template <int kSums, int kA, int kB>
inline void MultiplyInt8() {
  PlayTdpBSud(kSums, kA, kB);
}

}  // namespace
}  // namespace TLM_ISA_NAMESPACE
}  // namespace tlm
