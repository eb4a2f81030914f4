#include "model/ops/cpu/panel_packer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "model/ops/cpu/kernels/matmul.h"
#include "model/tensor/float_elements.h"

namespace tlm {
namespace {

// Vectors that every processor of the architecture has: 128 bits.
using Words = uint32_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

template <typename Vector>
Vector LoadAs(const void* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// One word from each row.
constexpr size_t kLineBytes = 4 * kPanel;
// Inputs packed at a time when the source has neither consecutive rows nor consecutive outputs.
constexpr int64_t kChunk = 64;

// Writes lines of one panel from rows of its outputs.
//
// A row consists of words: a float, or two 16-bit weights. A panel of words [word][16] is the
// transposed rows; F32 and BF16 are stored in this form, and F16 after another shuffle.
class PanelWriter {
 public:
  explicit PanelWriter(DType dtype) : dtype_(dtype) {}

  // Transposes the first `words` words of all rows, a multiple of 4.
  void Transpose(const std::array<const char*, kPanel>& rows, int64_t words, std::byte* out) {
    for (int64_t word = 0; word < words; word += 4, out += 4 * kLineBytes) {
      for (size_t lane = 0; lane < kPanel; lane += 4) {
        const char* const four[4] = {rows[lane] + word * 4, rows[lane + 1] + word * 4,
                                     rows[lane + 2] + word * 4, rows[lane + 3] + word * 4};
        TransposeFour(four, out + lane * 4);
      }
      if (dtype_ == DType::kF16) SplitPairs(out);
    }
  }

  // Copies inputs of all outputs that are side by side, [count][16] every `stride` bytes. For BF16,
  // `count` is even.
  void Copy(const char* from, size_t stride, int64_t count, std::byte* out) {
    const size_t bytes = kPanel * DTypeBytes(dtype_);
    if (dtype_ == DType::kBF16) {
      for (int64_t i = 0; i < count; i += 2, from += 2 * stride, out += kLineBytes) {
        for (size_t half = 0; half < 2; ++half) {
          const Halves even = Checked(LoadAs<Halves>(from + half * 16));
          const Halves odd = Checked(LoadAs<Halves>(from + stride + half * 16));
          const Halves low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
          const Halves high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
          std::memcpy(out + half * 32, &low, sizeof(low));
          std::memcpy(out + half * 32 + 16, &high, sizeof(high));
        }
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i, from += stride, out += bytes) {
      for (size_t at = 0; at < bytes; at += 16) {
        const Words words = Checked(LoadAs<Words>(from + at));
        std::memcpy(out + at, &words, sizeof(words));
      }
    }
  }

  bool finite() const {
    for (int i = 0; i < 4; ++i) {
      if (not_finite_[i] != 0) return false;
    }
    return true;
  }

 private:
  // Checks values while packing: infinity and NaN have an exponent of all ones.
  Words Checked(Words words) {
    if (dtype_ == DType::kF32) {
      not_finite_ |= (Words)((words & 0x7f800000u) == 0x7f800000u);
    } else {
      const auto exponent = static_cast<uint16_t>(dtype_ == DType::kBF16 ? 0x7f80 : 0x7c00);
      not_finite_ |= (Words)(((Halves)words & exponent) == exponent);
    }
    return words;
  }
  Halves Checked(Halves halves) { return (Halves)Checked((Words)halves); }

  // Transposes four words of four rows to four places, one line apart.
  void TransposeFour(const char* const* rows, std::byte* out) {
    const Words row0 = Checked(LoadAs<Words>(rows[0]));
    const Words row1 = Checked(LoadAs<Words>(rows[1]));
    const Words row2 = Checked(LoadAs<Words>(rows[2]));
    const Words row3 = Checked(LoadAs<Words>(rows[3]));
    const Words low01 = __builtin_shufflevector(row0, row1, 0, 4, 1, 5);
    const Words high01 = __builtin_shufflevector(row0, row1, 2, 6, 3, 7);
    const Words low23 = __builtin_shufflevector(row2, row3, 0, 4, 1, 5);
    const Words high23 = __builtin_shufflevector(row2, row3, 2, 6, 3, 7);
    const Words words[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                            __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                            __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                            __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (size_t i = 0; i < 4; ++i) std::memcpy(out + i * kLineBytes, &words[i], sizeof(Words));
  }

  // Reorders four lines [16][2] to [2][16] each.
  static void SplitPairs(std::byte* lines) {
    for (int line = 0; line < 4; ++line, lines += kLineBytes) {
      Halves pairs[4];
      std::memcpy(pairs, lines, sizeof(pairs));
      const Halves split[4] = {
          __builtin_shufflevector(pairs[0], pairs[1], 0, 2, 4, 6, 8, 10, 12, 14),
          __builtin_shufflevector(pairs[2], pairs[3], 0, 2, 4, 6, 8, 10, 12, 14),
          __builtin_shufflevector(pairs[0], pairs[1], 1, 3, 5, 7, 9, 11, 13, 15),
          __builtin_shufflevector(pairs[2], pairs[3], 1, 3, 5, 7, 9, 11, 13, 15)};
      std::memcpy(lines, split, sizeof(split));
    }
  }

  const DType dtype_;
  Words not_finite_ = {};
};

// Copies `count` weights of one output as `dtype`, one after the other: unchanged, or as float.
void CopyWeights(const OutputWeights& weights, int64_t first, int64_t count, DType dtype,
                 char* to) {
  const size_t step = static_cast<size_t>(weights.stride) * DTypeBytes(weights.dtype);
  const char* from = weights.data + static_cast<size_t>(first) * step;
  if (dtype == DType::kF32) {
    return FloatsAt(from, weights.dtype, weights.stride, count, reinterpret_cast<float*>(to));
  }
  constexpr size_t kHalf = sizeof(uint16_t);
  for (int64_t i = 0; i < count; ++i, from += step, to += kHalf) std::memcpy(to, from, kHalf);
}

using Lanes = std::array<OutputWeights, kPanel>;

// Packs one panel.
class Packer {
 public:
  Packer(const MatrixParts& parts, int64_t panel, DType dtype)
      : dtype_(dtype), element_bytes_(DTypeBytes(dtype)), writer_(dtype) {
    for (int lane = 0; lane < kPanel; ++lane) {
      lanes_[static_cast<size_t>(lane)] = parts.At(panel, lane);
    }
    const OutputWeights& first = lanes_[0];
    as_stored_ = true;
    side_by_side_ = true;
    for (size_t lane = 0; lane < kPanel; ++lane) {
      const OutputWeights& weights = lanes_[lane];
      as_stored_ &= weights.data != nullptr && weights.dtype == dtype && weights.stride == 1;
      side_by_side_ &= weights.data == first.data + lane * element_bytes_ &&
                       weights.dtype == dtype && weights.stride == first.stride;
    }
  }

  // Packs inputs [begin, end) to the panel at `out`; `begin` is a multiple of kChunk.
  void Pack(int64_t begin, int64_t end, std::byte* out) {
    // Packs multiples of four words directly, the rest through a copy.
    const int64_t step = 16 / static_cast<int64_t>(element_bytes_);
    const int64_t whole = end - (end - begin) % step;
    if (side_by_side_) {
      const size_t stride = static_cast<size_t>(lanes_[0].stride) * element_bytes_;
      writer_.Copy(lanes_[0].data + static_cast<size_t>(begin) * stride, stride, whole - begin,
                   LineOf(begin, out));
      begin = whole;
    } else if (as_stored_) {
      std::array<const char*, kPanel> rows;
      for (size_t lane = 0; lane < kPanel; ++lane) {
        rows[lane] = lanes_[lane].data + static_cast<size_t>(begin) * element_bytes_;
      }
      writer_.Transpose(rows, (whole - begin) / step * 4, LineOf(begin, out));
      begin = whole;
    }
    for (; begin < end; begin += kChunk) {
      PackCopies(begin, std::min(kChunk, end - begin), LineOf(begin, out));
    }
  }

  bool finite() const { return writer_.finite(); }

 private:
  std::byte* LineOf(int64_t input, std::byte* out) const {
    return out + static_cast<size_t>(input) * element_bytes_ * kPanel;
  }

  void PackCopies(int64_t first, int64_t count, std::byte* out) {
    alignas(16) char copies[kPanel][kChunk * sizeof(float)];
    alignas(16) std::byte lines[kChunk * kLineBytes];
    std::array<const char*, kPanel> rows;
    const size_t bytes = (static_cast<size_t>(count) * element_bytes_ + 15) / 16 * 16;
    for (size_t lane = 0; lane < kPanel; ++lane) {
      std::memset(copies[lane], 0, bytes);
      if (lanes_[lane].data != nullptr) {
        CopyWeights(lanes_[lane], first, count, dtype_, copies[lane]);
      }
      rows[lane] = copies[lane];
    }
    writer_.Transpose(rows, static_cast<int64_t>(bytes / 4), lines);
    const int64_t inputs = dtype_ == DType::kBF16 ? (count + 1) / 2 * 2 : count;
    std::memcpy(out, lines, static_cast<size_t>(inputs) * element_bytes_ * kPanel);
  }

  const DType dtype_;
  const size_t element_bytes_;
  Lanes lanes_;
  bool as_stored_ = true;     // each output's weights are consecutive, in the stored type
  bool side_by_side_ = true;  // each input's weights are consecutive, in the stored type
  PanelWriter writer_;
};

}  // namespace

bool PackPanels(const MatrixParts& parts, int64_t begin, int64_t end, DType dtype, std::byte* out,
                size_t panel_bytes) {
  std::vector<Packer> packers;
  for (int64_t panel = begin; panel < end; ++panel) packers.emplace_back(parts, panel, dtype);
  // Panels whose weights share lines take turns.
  const int64_t k = parts.k();
  const int64_t step = packers.size() > 1 ? kChunk : k;
  for (int64_t first = 0; first < k; first += step) {
    for (size_t i = 0; i < packers.size(); ++i) {
      packers[i].Pack(first, std::min(k, first + step), out + i * panel_bytes);
    }
  }
  return std::all_of(packers.begin(), packers.end(),
                     [](const Packer& packer) { return packer.finite(); });
}

}  // namespace tlm
