// AMX tiles emulated by the host, one for every thread: what Intel's Software Developer's Manual
// says of each instruction (volume 2, "AMX", palette 1), operand by operand and rounding by
// rounding. What a processor answers with an exception ends the program with a message.
#ifndef TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_
#define TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_

#include <cstdint>

namespace tlm {

// ldtilecfg of 64 bytes, tilerelease.
void EmulateLdTileCfg(const void* config);
void EmulateTileRelease();
// Whether this thread has tiles configured.
bool TilesAreConfigured();

void EmulateTileZero(int tile);
void EmulateTileLoad(int tile, const void* from, int64_t stride);
void EmulateTileStore(int tile, void* to, int64_t stride);
// tdpbf16ps and tdpbsud: sums += a b.
void EmulateTdpBf16Ps(int sums, int a, int b);
void EmulateTdpBSud(int sums, int a, int b);

// c + a b rounded once to the nearest as a tile unit has it: subnormals among the operands count as
// 0, and so does a result that is subnormal after rounding.
float EmulatedFma(float a, float b, float c);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_AMX_TILE_UNIT_H_
