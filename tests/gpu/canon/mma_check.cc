#include "tests/gpu/canon/mma_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "tests/gpu/canon/mma_probe.h"
#include "tests/support/simt/mma_model.h"

namespace tlm {
namespace {

using simt::MmaInput;
using simt::MmaUnit;

// Tiles in host memory.
struct Tiles {
  std::vector<uint16_t> a, b;
  std::vector<float> c;
};

// Numbers of one kind, one after the other.
class Source {
 public:
  Source(DType dtype, uint32_t seed) : dtype_(dtype), random_(seed) {}

  float Normal() { return normal_(random_); }
  // A random sign and fraction, with an exponent in [low, high].
  float Wide(int low, int high) {
    const int exponent = std::uniform_int_distribution<int>(low, high)(random_);
    const float fraction = std::uniform_real_distribution<float>(1.0f, 2.0f)(random_);
    return std::ldexp(Once(2) ? fraction : -fraction, exponent);
  }
  // True once in `times`.
  bool Once(int times) { return std::uniform_int_distribution<int>(1, times)(random_) == 1; }
  uint16_t Encode(float value) const {
    return dtype_ == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }
  // The exponents of operands that the format has room for.
  int low() const { return dtype_ == DType::kBF16 ? -126 : -14; }
  int high() const { return dtype_ == DType::kBF16 ? 127 : 15; }

 private:
  DType dtype_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

struct Kind {
  const char* name;
  bool assumed;
  float (*operand)(Source& source);
  float (*accumulator)(Source& source);
};

float Zero(Source&) { return 0.0f; }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Kind kKinds[] = {
    {"normal", false, [](Source& s) { return s.Normal(); }, [](Source& s) { return s.Normal(); }},
    // Exponents far enough apart that terms lose bits, or all of them.
    {"wide", false, [](Source& s) { return s.Wide(-12, 12); },
     [](Source& s) { return s.Wide(-24, 24); }},
    {"small beside large", false, [](Source& s) { return s.Wide(-14, -10); },
     [](Source& s) { return s.Wide(-2, 2); }},
    {"large beside small", false,
     [](Source& s) { return s.Once(16) ? s.Wide(6, 8) : s.Wide(-8, -2); }, Zero},
    {"every exponent", false, [](Source& s) { return s.Wide(s.low() / 2, s.high() / 2); },
     [](Source& s) { return s.Wide(-120, 120); }},
    {"subnormal operands", false, [](Source& s) { return s.Wide(s.low() - 6, s.low() + 6); },
     [](Source& s) { return s.Wide(2 * s.low(), 2 * s.low() + 20); }},
    {"infinity and NaN", false,
     [](Source& s) {
       if (s.Once(40)) return s.Once(2) ? kInfinity : -kInfinity;
       return s.Once(200) ? std::nanf("") : s.Once(10) ? 0.0f : s.Normal();
     },
     [](Source& s) { return s.Once(20) ? -kInfinity : s.Normal(); }},
    {"overflow", false,
     [](Source& s) {
       const int most = std::min(s.high(), 64);  // products of up to 2^128 and more
       return s.Wide(most - 2, most);
     },
     [](Source& s) { return s.Wide(120, 127); }},
    {"zeros beside small", true,
     [](Source& s) { return s.Once(2)   ? 0.0f
                            : s.Once(2) ? s.Wide(0, 15)
                                        : s.Wide(-14, -10); },
     Zero},
    {"vanishing sums", true, [](Source& s) { return s.Once(4) ? s.Wide(-76, -74) : 0.0f; },
     [](Source& s) { return s.Once(2) ? -0.0f : 0.0f; }},
};

Tiles MakeTiles(const Kind& kind, DType dtype, int tiles, uint32_t seed) {
  Source source(dtype, seed);
  Tiles made{std::vector<uint16_t>(static_cast<size_t>(tiles) * 256),
             std::vector<uint16_t>(static_cast<size_t>(tiles) * 128),
             std::vector<float>(static_cast<size_t>(tiles) * 128)};
  for (uint16_t& value : made.a) value = source.Encode(kind.operand(source));
  for (uint16_t& value : made.b) value = source.Encode(kind.operand(source));
  for (float& value : made.c) value = kind.accumulator(source);
  return made;
}

template <typename T>
absl::StatusOr<Buffer> Upload(CudaDevice& device, const std::vector<T>& values) {
  TLM_ASSIGN_OR_RETURN(Buffer buffer,
                       device.Allocate(values.size() * sizeof(T), MemoryPurpose::kRuntime));
  TLM_RETURN_IF_ERROR(device.CopyToDevice(buffer.data(), values.data(), buffer.bytes()));
  return buffer;
}

absl::StatusOr<std::vector<float>> RunTiles(CudaDevice& device, const Tiles& tiles, DType dtype) {
  TLM_ASSIGN_OR_RETURN(const Buffer a, Upload(device, tiles.a));
  TLM_ASSIGN_OR_RETURN(const Buffer b, Upload(device, tiles.b));
  TLM_ASSIGN_OR_RETURN(const Buffer c, Upload(device, tiles.c));
  TLM_ASSIGN_OR_RETURN(const Buffer out, Upload(device, tiles.c));
  const MmaProbeArgs args{.a = a.as<uint16_t>(),
                          .b = b.as<uint16_t>(),
                          .c = c.as<float>(),
                          .out = out.as<float>(),
                          .tiles = static_cast<int>(tiles.c.size() / 128)};
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  TLM_RETURN_IF_ERROR(
      device.Check(LaunchMmaProbe(args, dtype, device.compute_stream()), "LaunchMmaProbe"));
  std::vector<float> result(tiles.c.size());
  TLM_RETURN_IF_ERROR(device.CopyToHost(result.data(), out.data(), out.bytes()));
  return result;
}

void Compare(MmaUnit unit, const Tiles& tiles, const std::vector<float>& result, MmaCheck& check) {
  const MmaInput input = check.dtype == DType::kBF16 ? MmaInput::kBf16 : MmaInput::kF16;
  for (size_t tile = 0; tile < tiles.c.size() / 128; ++tile) {
    uint16_t a[16][16], b[8][16];
    float c[16][8];
    std::memcpy(a, &tiles.a[tile * 256], sizeof(a));
    std::memcpy(b, &tiles.b[tile * 128], sizeof(b));
    std::memcpy(c, &tiles.c[tile * 128], sizeof(c));
    simt::MmaTile(unit, input, a, b, c);
    for (size_t i = 0; i < 128; ++i) {
      const auto bits = std::bit_cast<uint32_t>(result[tile * 128 + i]);
      const auto expected = std::bit_cast<uint32_t>(c[i / 8][i % 8]);
      ++check.elements;
      if (bits == expected) continue;
      if (check.differences++ == 0) {
        check.first = fmt::format("tile {}, row {}, column {}: {:08x}, the model says {:08x}", tile,
                                  i / 8, i % 8, bits, expected);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<MmaCheck>> CheckMma(CudaDevice& device, int tiles) {
  const MmaUnit unit = device.properties().compute_major >= 9 ? simt::kHopperMma : simt::kAmpereMma;
  std::vector<MmaCheck> checks;
  uint32_t seed = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Kind& kind : kKinds) {
      MmaCheck& check =
          checks.emplace_back(MmaCheck{.name = kind.name, .dtype = dtype, .assumed = kind.assumed});
      const Tiles made = MakeTiles(kind, dtype, tiles, ++seed);
      TLM_ASSIGN_OR_RETURN(const std::vector<float> result, RunTiles(device, made, dtype));
      Compare(unit, made, result, check);
    }
  }
  return checks;
}

}  // namespace tlm
