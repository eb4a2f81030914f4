#include "tests/support/amx/tile_unit.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "model/base/float16.h"

namespace tlm {
namespace {

constexpr int kTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kRowBytes = 64;

struct Tile {
  int rows = 0;
  int row_bytes = 0;
  std::array<std::array<uint8_t, kRowBytes>, kMaxRows> data = {};

  template <typename T>
  T Get(int row, int column) const {
    T value;
    std::memcpy(&value, data[row].data() + column * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void Set(int row, int column, T value) {
    std::memcpy(data[row].data() + column * sizeof(T), &value, sizeof(T));
  }
};

struct Unit {
  bool configured = false;
  std::array<Tile, kTiles> tiles;
};
thread_local Unit unit;

[[noreturn]] void Fault(const char* what) {
  std::fprintf(stderr, "tile unit: %s\n", what);
  std::abort();
}

Tile& Used(int tile) {
  if (!unit.configured) Fault("#UD: tiles are not configured");
  Tile& used = unit.tiles[tile];
  if (used.rows == 0) Fault("#UD: a tile without rows is used");
  if (used.row_bytes % 4 != 0) Fault("#UD: rows that are not whole words");
  return used;
}

// Sets rows and columns outside the configuration to 0.
void ClearBeside(Tile& tile) {
  for (int row = 0; row < kMaxRows; ++row) {
    const int from = row < tile.rows ? tile.row_bytes : 0;
    std::memset(tile.data[row].data() + from, 0, static_cast<size_t>(kRowBytes - from));
  }
}

void CheckProduct(int sums, int a, int b) {
  if (sums == a || sums == b || a == b) Fault("#UD: an operand is used twice");
  const Tile& c = Used(sums);
  const Tile& left = Used(a);
  const Tile& right = Used(b);
  if (c.row_bytes != right.row_bytes || c.rows != left.rows || left.row_bytes / 4 != right.rows) {
    Fault("#UD: the tiles of a product do not fit");
  }
}

// Uses the bits: the thread may have set its own arithmetic to take subnormals for 0.
float WithoutSubnormal(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

// Rounds to a float, ties to even; 0 if the result, rounded as with unlimited exponents, is
// subnormal.
float RoundedToNormal(double value) {
  constexpr double kScale = 0x1p200;
  constexpr double kMin = 0x1p-126;
  if (std::abs(value) >= 2.0 * kMin || std::isnan(value)) return static_cast<float>(value);
  const float scaled = static_cast<float>(value * kScale);
  const double rounded = static_cast<double>(scaled) / kScale;
  return std::abs(rounded) < kMin ? std::copysign(0.0f, scaled) : static_cast<float>(rounded);
}

// Returns a + b rounded to odd: a later rounding to float is then the only rounding.
double AddedToOdd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0.0 || (bits & 1) != 0) return sum;
  // The exact sum is between this double, which is even, and the next one towards the error.
  return std::nextafter(sum, error > 0.0 ? HUGE_VAL : -HUGE_VAL);
}

float EmulatedAdd(float a, float b) {
  return RoundedToNormal(AddedToOdd(WithoutSubnormal(a), WithoutSubnormal(b)));
}

}  // namespace

float EmulatedFma(float a, float b, float c) {
  const double product = static_cast<double>(WithoutSubnormal(a)) * WithoutSubnormal(b);
  return RoundedToNormal(AddedToOdd(product, WithoutSubnormal(c)));
}

void EmulateLdTileCfg(const void* config) {
  std::array<uint8_t, 64> bytes;
  std::memcpy(bytes.data(), config, bytes.size());
  if (bytes[0] > 1) Fault("#GP: no such palette");
  Unit next{.configured = bytes[0] == 1, .tiles = {}};
  for (int i = 2; i < 16; ++i) {
    if (bytes[i] != 0) Fault("#GP: reserved bytes");
  }
  for (int i = 0; i < 16; ++i) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes.data() + 16 + 2 * i, sizeof(row_bytes));
    const int rows = bytes[48 + i];
    if (i >= kTiles && (rows != 0 || row_bytes != 0)) Fault("#GP: no such tile");
    if (row_bytes > kRowBytes || rows > kMaxRows) Fault("#GP: too large a tile");
    if ((rows == 0) != (row_bytes == 0)) Fault("#GP: half an empty tile");
    if (i < kTiles) {
      next.tiles[i].rows = rows;
      next.tiles[i].row_bytes = row_bytes;
    }
  }
  unit = next;
}

void EmulateTileRelease() { unit = Unit(); }

bool TilesAreConfigured() { return unit.configured; }

void EmulateTileZero(int tile) { Used(tile).data = {}; }

void EmulateTileLoad(int tile, const void* from, int64_t stride) {
  Tile& to = Used(tile);
  for (int row = 0; row < to.rows; ++row) {
    std::memcpy(to.data[row].data(), static_cast<const char*>(from) + row * stride,
                static_cast<size_t>(to.row_bytes));
  }
  ClearBeside(to);
}

void EmulateTileStore(int tile, void* to, int64_t stride) {
  const Tile& from = Used(tile);
  for (int row = 0; row < from.rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, from.data[row].data(),
                static_cast<size_t>(from.row_bytes));
  }
}

void EmulateTdpBf16Ps(int sums, int a, int b) {
  CheckProduct(sums, a, b);
  Tile& c = unit.tiles[sums];
  const Tile& left = unit.tiles[a];
  const Tile& right = unit.tiles[b];
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      float by_parity[2] = {0.0f, 0.0f};
      for (int k = 0; k < left.row_bytes / 4; ++k) {
        for (int parity = 0; parity < 2; ++parity) {
          by_parity[parity] =
              EmulatedFma(Bf16ToFloat(left.Get<uint16_t>(m, 2 * k + parity)),
                          Bf16ToFloat(right.Get<uint16_t>(k, 2 * n + parity)), by_parity[parity]);
        }
      }
      const float sum = EmulatedAdd(by_parity[0], by_parity[1]);
      c.Set(m, n, EmulatedAdd(c.Get<float>(m, n), sum));
    }
  }
  ClearBeside(c);
}

void EmulateTdpBSud(int sums, int a, int b) {
  CheckProduct(sums, a, b);
  Tile& c = unit.tiles[sums];
  const Tile& left = unit.tiles[a];
  const Tile& right = unit.tiles[b];
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      int32_t sum = c.Get<int32_t>(m, n);
      for (int k = 0; k < left.row_bytes; ++k) {
        sum += int32_t{left.Get<int8_t>(m, k)} * int32_t{right.Get<uint8_t>(k / 4, 4 * n + k % 4)};
      }
      c.Set(m, n, sum);
    }
  }
  ClearBeside(c);
}

}  // namespace tlm
