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
  uint16_t Encode(float value) const { return bf16() ? FloatToBf16(value) : FloatToF16(value); }
  bool bf16() const { return dtype_ == DType::kBF16; }
  // The exponents of operands that the format has room for.
  int low() const { return bf16() ? -126 : -14; }
  int high() const { return bf16() ? 127 : 15; }

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
    {"vanishing sums", true, [](Source& s) { return s.Once(4) ? s.Wide(-76, -74) : 0.0f; },
     [](Source& s) { return s.Once(2) ? -0.0f : 0.0f; }},
};

MmaTiles MakeTiles(const Kind& kind, DType dtype, int tiles, uint32_t seed) {
  Source source(dtype, seed);
  MmaTiles made{std::vector<uint16_t>(static_cast<size_t>(tiles) * 256),
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

absl::StatusOr<std::vector<float>> RunTiles(CudaDevice& device, const MmaTiles& tiles,
                                            DType dtype) {
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

// What the model makes of a tile.
std::vector<float> ModelOf(MmaUnit unit, DType dtype, const MmaTiles& tiles, size_t tile) {
  uint16_t a[16][16], b[8][16];
  float c[16][8];
  std::memcpy(a, &tiles.a[tile * 256], sizeof(a));
  std::memcpy(b, &tiles.b[tile * 128], sizeof(b));
  std::memcpy(c, &tiles.c[tile * 128], sizeof(c));
  simt::MmaTile(unit, dtype == DType::kBF16 ? MmaInput::kBf16 : MmaInput::kF16, a, b, c);
  return {&c[0][0], &c[0][0] + 128};
}

bool SameFloat(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

std::string Difference(size_t tile, size_t i, float found, float expected, const char* whose) {
  return fmt::format("tile {}, row {}, column {}: {:08x}, {} {:08x}", tile, i / 8, i % 8,
                     std::bit_cast<uint32_t>(found), whose, std::bit_cast<uint32_t>(expected));
}

void Compare(MmaUnit unit, const MmaTiles& tiles, const std::vector<float>& result,
             MmaCheck& check) {
  for (size_t tile = 0; tile < tiles.c.size() / 128; ++tile) {
    const std::vector<float> expected = ModelOf(unit, check.dtype, tiles, tile);
    for (size_t i = 0; i < 128; ++i) {
      ++check.elements;
      if (SameFloat(result[tile * 128 + i], expected[i])) continue;
      if (check.differences++ > 0) continue;
      check.first = Difference(tile, i, result[tile * 128 + i], expected[i], "the model says");
    }
  }
}

// Sums with zeros among their factors: `weight` and `value` are those of the other terms, `partner`
// is what the zeros are multiplied with.
struct ZeroKind {
  const char* name;
  float (*weight)(Source& source);
  float (*value)(Source& source);
  float (*partner)(Source& source);
  float (*accumulator)(Source& source);
};

float Unit(Source& source) { return source.Wide(-4, 4); }

const ZeroKind kZeroKinds[] = {
    // Attention: weights that are far below the largest of their row, values as models have them.
    {"small weights, values of 2^-4 to 2^4",
     [](Source& s) { return std::abs(s.Wide(s.low() - 8, -10)); }, Unit, Unit, Zero},
    {"the same on a small sum", [](Source& s) { return std::abs(s.Wide(s.low() - 8, -10)); }, Unit,
     Unit, [](Source& s) { return s.Wide(-24, -16); }},
    {"the smallest weights and values",
     [](Source& s) { return s.bf16() ? s.Wide(-120, -112) : s.Wide(-20, -12); },
     [](Source& s) { return s.bf16() ? s.Wide(-16, -8) : s.Wide(-20, -12); }, Unit,
     [](Source& s) {
       if (s.Once(2)) return 0.0f;
       return s.bf16() ? s.Wide(-140, -130) : s.Wide(-32, -24);
     }},
    // Not the largest: they must not round to infinity.
    {"partners as large as the type has",
     [](Source& s) { return std::abs(s.Wide(s.bf16() ? -63 : -20, -10)); }, Unit,
     [](Source& s) { return s.Wide(s.high() - 2, s.high() - 1); }, Zero},
    {"rows of nothing but zeros", Zero, Unit, Unit,
     [](Source& s) { return s.Once(2) ? 0.0f : s.Wide(-30, -20); }},
};

// Two of the same sums: in `with` zeros of a have partners in b, in `without` they have zeros.
struct ZeroTiles {
  MmaTiles with, without;
};

ZeroTiles MakeZeroTiles(const ZeroKind& kind, DType dtype, int tiles, uint32_t seed) {
  Source source(dtype, seed);
  const auto count = static_cast<size_t>(tiles);
  MmaTiles with{std::vector<uint16_t>(count * 256), std::vector<uint16_t>(count * 128),
                std::vector<float>(count * 128)};
  MmaTiles without = with;
  for (size_t tile = 0; tile < count; ++tile) {
    for (size_t k = 0; k < 16; ++k) {
      // As a mask has it: the same k in all rows. Two of three terms on average are masked.
      const bool masked = !source.Once(3);
      for (size_t row = 0; row < 16; ++row) {
        with.a[tile * 256 + row * 16 + k] = source.Encode(masked ? 0.0f : kind.weight(source));
      }
      for (size_t column = 0; column < 8; ++column) {
        const size_t at = tile * 128 + column * 16 + k;
        with.b[at] = source.Encode(masked ? kind.partner(source) : kind.value(source));
        without.b[at] = masked ? uint16_t{0} : with.b[at];
      }
    }
  }
  for (float& value : with.c) value = kind.accumulator(source);
  without.a = with.a;
  without.c = with.c;
  return {std::move(with), std::move(without)};
}

}  // namespace

absl::StatusOr<std::vector<MmaCheck>> CheckMma(CudaDevice& device, int tiles) {
  const MmaUnit unit = UnitOf(device);
  std::vector<MmaCheck> checks;
  uint32_t seed = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Kind& kind : kKinds) {
      MmaCheck& check =
          checks.emplace_back(MmaCheck{.name = kind.name, .dtype = dtype, .assumed = kind.assumed});
      const MmaTiles made = MakeTiles(kind, dtype, tiles, ++seed);
      TLM_ASSIGN_OR_RETURN(const std::vector<float> result, RunTiles(device, made, dtype));
      Compare(unit, made, result, check);
    }
  }
  return checks;
}

MmaUnit UnitOf(const CudaDevice& device) {
  return device.properties().compute_major >= 9 ? simt::kHopperMma : simt::kAmpereMma;
}

MmaRun RunOn(CudaDevice& device) {
  return [&device](const MmaTiles& tiles, DType dtype) { return RunTiles(device, tiles, dtype); };
}

absl::StatusOr<std::vector<ZeroCheck>> CheckZeros(const MmaRun& run, MmaUnit unit, int tiles) {
  std::vector<ZeroCheck> checks;
  uint32_t seed = 100;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const ZeroKind& kind : kZeroKinds) {
      ZeroCheck& check = checks.emplace_back(ZeroCheck{.name = kind.name, .dtype = dtype});
      const ZeroTiles made = MakeZeroTiles(kind, dtype, tiles, ++seed);
      TLM_ASSIGN_OR_RETURN(const std::vector<float> with, run(made.with, dtype));
      TLM_ASSIGN_OR_RETURN(const std::vector<float> without, run(made.without, dtype));
      TLM_CHECK(with.size() == made.with.c.size() && without.size() == with.size());
      for (size_t tile = 0; tile < static_cast<size_t>(tiles); ++tile) {
        const std::vector<float> model = ModelOf(unit, dtype, made.without, tile);
        for (size_t i = 0; i < 128; ++i) {
          const size_t at = tile * 128 + i;
          ++check.elements;
          const bool partner = !SameFloat(with[at], without[at]);
          const bool other = !SameFloat(without[at], model[i]);
          check.partner_differences += partner ? 1 : 0;
          check.model_differences += other ? 1 : 0;
          if ((!partner && !other) || !check.first.empty()) continue;
          check.first = partner ? Difference(tile, i, with[at], without[at], "without partners")
                                : Difference(tile, i, without[at], model[i], "the model says");
        }
      }
    }
  }
  return checks;
}

}  // namespace tlm
