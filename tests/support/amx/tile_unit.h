// AMX tiles emulated by the host, one unit per thread. Each instruction follows Intel's Software
// Developer's Manual (volume 2, "AMX", palette 1) operand by operand and rounding by rounding.
// Where a processor raises an exception, the program ends with a message.
#ifndef TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_
#define TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_

#include <cstdint>

namespace tlm {

// ldtilecfg of 64 bytes, and tilerelease.
void EmulateLdTileCfg(const void* config);
void EmulateTileRelease();
// True if this thread has tiles configured.
bool TilesAreConfigured();

void EmulateTileZero(int tile);
void EmulateTileLoad(int tile, const void* from, int64_t stride);
void EmulateTileStore(int tile, void* to, int64_t stride);
// tdpbf16ps and tdpbsud compute sums += a b.
void EmulateTdpBf16Ps(int sums, int a, int b);
void EmulateTdpBSud(int sums, int a, int b);

// Returns c + a b, rounded once to nearest as in a tile unit: subnormal operands count as 0, and so
// does a result that is subnormal after rounding.
float EmulatedFma(float a, float b, float c);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_
