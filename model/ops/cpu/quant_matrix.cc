#include "model/ops/cpu/quant_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/blocks.h"
#include "model/tensor/float_elements.h"
#include "model/tensor/quantise.h"

namespace tlm {
namespace {

constexpr int64_t kMaxGroups = kQuantChunk / 32;
constexpr int64_t kMaxSubBlocks = kQuantChunk / 16;

// A chunk of a panel while it is packed.
struct PanelChunk {
  alignas(64) uint8_t q[kPanel][kQuantChunk];
  float scale[kMaxGroups][kPanel];
  float min[kMaxGroups][kPanel];
  uint8_t zero[kMaxGroups][kPanel];
  int8_t s[kMaxSubBlocks][kPanel];
  uint8_t t[kMaxSubBlocks][kPanel];
};

// Reads or quantises the blocks of outputs.
class BlockReader {
 public:
  BlockReader(DType type, const float* importance)
      : type_(type),
        format_(FormatOf(type)),
        size_(static_cast<int64_t>(BlockOf(type).elements)),
        importance_(importance) {}

  // Reads inputs [first, first + count) of one output; returns false if a value is not finite.
  bool Read(const OutputWeights& weights, int64_t first, int64_t count, int lane,
            PanelChunk& chunk) const {
    bool finite = true;
    BlockValues block;
    for (int64_t begin = 0; begin < count; begin += size_) {
      ReadOne(weights, first + begin, std::min(size_, count - begin), block);
      finite &= LargestMagnitude(type_, block) <= std::numeric_limits<float>::max();
      std::memcpy(chunk.q[lane] + begin, block.q, static_cast<size_t>(size_));
      const int64_t group = begin / size_;
      chunk.scale[group][lane] = block.scale;
      chunk.min[group][lane] = block.min;
      chunk.zero[group][lane] = static_cast<uint8_t>(block.zero);
      if (format_.sub_block == 0) continue;
      for (int64_t b = 0; b < size_ / format_.sub_block; ++b) {
        chunk.s[b][lane] = block.s[b];
        chunk.t[b][lane] = block.t[b];
      }
    }
    return finite;
  }

 private:
  void ReadOne(const OutputWeights& weights, int64_t first, int64_t count,
               BlockValues& block) const {
    if (IsBlockQuantised(weights.dtype)) {
      const size_t at = StoredBytes(type_, static_cast<size_t>(first));
      return ReadBlock(type_, reinterpret_cast<const std::byte*>(weights.data) + at, &block);
    }
    float values[kMaxBlockElements];
    const size_t at = static_cast<size_t>(first * weights.stride) * DTypeBytes(weights.dtype);
    FloatsAt(weights.data + at, weights.dtype, weights.stride, count, values);
    QuantiseBlock(type_, values, count, importance_ == nullptr ? nullptr : importance_ + first,
                  &block);
  }

  const DType type_;
  const BlockFormat format_;
  const int64_t size_;
  const float* const importance_;
};

// Returns four inputs of an output.
uint32_t FourAt(const PanelChunk& chunk, int lane, int64_t input) {
  uint32_t four;
  std::memcpy(&four, chunk.q[lane] + input, sizeof(four));
  return four;
}

// Writes q in the order of kernels/quant.h.
void WriteQ(const PanelChunk& chunk, int bits, int64_t inputs, std::byte* to) {
  auto* line = reinterpret_cast<uint32_t*>(to);
  if (bits == 8) {
    for (int64_t i = 0; i < inputs; i += 4, line += kPanel) {
      for (int lane = 0; lane < kPanel; ++lane) line[lane] = FourAt(chunk, lane, i);
    }
    return;
  }
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  for (int64_t i = 0; i < inputs; i += 8, line += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      line[lane] = (FourAt(chunk, lane, i) & kLow) | (FourAt(chunk, lane, i + 4) & kLow) << 4;
    }
  }
  const int high = bits - 4;
  if (high == 0) return;
  const int64_t of_line = 4 * (8 / high);
  const uint32_t mask = high == 1 ? 0x01010101u : 0x03030303u;
  for (int64_t i = 0; i < inputs; i += of_line, line += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      uint32_t all = 0;
      for (int64_t b = 0; b < of_line / 4; ++b) {
        all |= (FourAt(chunk, lane, i + 4 * b) >> 4 & mask) << (b * high);
      }
      line[lane] = all;
    }
  }
}

void WriteScales(const float* from, bool half, int64_t count, std::byte* to) {
  if (!half) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i, to += sizeof(uint16_t)) {
    const uint16_t bits = FloatToF16(from[i]);
    std::memcpy(to, &bits, sizeof(bits));
  }
}

// Returns the offset from the first t of a chunk.
int64_t PlaceOfT(int64_t sub_block, int64_t lane) {
  return (sub_block / 2 * kPanel + lane) * 2 + sub_block % 2;
}

void WriteChunk(const PanelChunk& chunk, const QuantLayout& layout, int64_t inputs, std::byte* to) {
  const QuantPlaces at = PlacesOf(layout, inputs);
  const int64_t groups = QuantGroups(layout, inputs) * kPanel;
  WriteQ(chunk, layout.bits, inputs, to);
  WriteScales(chunk.scale[0], layout.half_scales, groups, to + at.scale);
  if (layout.has_min) WriteScales(chunk.min[0], layout.half_scales, groups, to + at.min);
  if (layout.sub_block > 0) {
    const int64_t sub_blocks = inputs / layout.sub_block;
    std::memcpy(to + at.s, chunk.s, static_cast<size_t>(sub_blocks * kPanel));
    for (int64_t b = 0; layout.has_min && b < sub_blocks; ++b) {
      for (int lane = 0; lane < kPanel; ++lane) {
        to[at.t + PlaceOfT(b, lane)] = static_cast<std::byte>(chunk.t[b][lane]);
      }
    }
  }
  if (layout.zero < 0) std::memcpy(to + at.zero, chunk.zero, static_cast<size_t>(groups));
}

// Returns false if a value is not finite.
bool PackPanel(const MatrixParts& parts, int64_t panel, const BlockReader& reader,
               const QuantLayout& layout, std::byte* to) {
  PanelChunk chunk;
  bool finite = true;
  const int64_t padded = QuantPaddedInputs(parts.k());
  for (int64_t first = 0; first < padded; first += kQuantChunk) {
    const int64_t count = std::min(parts.k() - first, kQuantChunk);
    const int64_t inputs = std::min(padded - first, kQuantChunk);
    // Clears chunks with padding: the last inputs, and the last panels, which are two in a gated
    // matrix.
    if (count < kQuantChunk || panel + 2 >= parts.panels()) {
      std::memset(&chunk, 0, sizeof(chunk));
      std::memset(chunk.q, std::max(layout.zero, 0), sizeof(chunk.q));
    }
    for (int lane = 0; lane < kPanel; ++lane) {
      const OutputWeights weights = parts.At(panel, lane);
      if (weights.data != nullptr) finite &= reader.Read(weights, first, count, lane, chunk);
    }
    WriteChunk(chunk, layout, inputs, to);
    to += PlacesOf(layout, inputs).bytes;
  }
  return finite;
}

// Returns q of input i of a chunk.
int StoredQ(const QuantLayout& layout, const uint8_t* chunk, const QuantPlaces& at, int64_t lane,
            int64_t i) {
  const int64_t byte = lane * 4 + i % 4;  // within a line
  const int64_t four = i / 4;
  if (layout.bits == 8) return chunk[four * 4 * kPanel + byte];
  const int low = chunk[four / 2 * 4 * kPanel + byte] >> (four % 2 * 4) & 15;
  const int high = layout.bits - 4;
  if (high == 0) return low;
  const int64_t fours = 8 / high;  // in a line
  const int bits = chunk[at.high + four / fours * 4 * kPanel + byte] >> (four % fours * high);
  return low | (bits & ((1 << high) - 1)) << 4;
}

QuantLayout LayoutOf(DType type) {
  const BlockFormat format = FormatOf(type);
  return {.bits = format.bits,
          .group = static_cast<int>(BlockOf(type).elements),
          .sub_block = format.sub_block,
          .has_min = format.has_min,
          .half_scales = format.has_half_scales,
          .zero = format.zero};
}

// Returns the zero of all blocks of a part, or -1 if they differ.
int CommonZero(const TensorView& part) {
  const int zero = FormatOf(part.dtype).zero;
  if (zero >= 0) return zero;
  const DTypeBlock block = BlockOf(part.dtype);
  const std::byte* const first = part.as<std::byte>() + kOwnZeroAt;
  for (size_t at = 0; at < part.bytes(); at += block.bytes) {
    if (first[at] != *first) return -1;
  }
  return std::to_integer<int>(*first);
}

absl::StatusOr<QuantMatrix::Segment> PackSegment(const MatrixParts& parts, DType type,
                                                 const QuantLayout& layout, const float* importance,
                                                 Device& device, ThreadPool& pool) {
  const auto panel_bytes = static_cast<size_t>(QuantPanelBytes(layout, parts.k()));
  QuantMatrix::Segment segment{
      .type = type, .layout = layout, .n = parts.n(), .panels = parts.panels()};
  TLM_ASSIGN_OR_RETURN(
      segment.data,
      device.Allocate(static_cast<size_t>(parts.panels()) * panel_bytes, MemoryPurpose::kWeights));
  const BlockReader reader(type, importance);
  std::atomic<bool> finite = true;
  pool.ParallelFor(parts.panels(), [&](int64_t panel) {
    std::byte* const to = segment.data.as<std::byte>() + static_cast<size_t>(panel) * panel_bytes;
    if (!PackPanel(parts, panel, reader, layout, to)) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite.load(std::memory_order_relaxed)) {
    return InvalidArgument("a matrix of {} outputs and {} inputs has a value that is not finite",
                           parts.n(), parts.k());
  }
  return segment;
}

bool SameOrder(const TensorView& a, const TensorView& b) {
  if (a.input_order == nullptr || b.input_order == nullptr) return a.input_order == b.input_order;
  return std::equal(a.input_order, a.input_order + a.shape[1], b.input_order);
}

}  // namespace

bool QuantMatrix::Fit(std::span<const TensorView> parts, MatrixUse use) {
  const TensorView& first = parts.front();
  return std::all_of(parts.begin(), parts.end(), [&](const TensorView& part) {
    return IsIntegerBlocks(part.dtype) && SameOrder(first, part) &&
           BlockOf(part.dtype).elements == BlockOf(first.dtype).elements &&
           (use == MatrixUse::kPlain || part.dtype == first.dtype);
  });
}

absl::StatusOr<std::unique_ptr<QuantMatrix>> QuantMatrix::Pack(std::span<const TensorView> parts,
                                                               MatrixUse use, Device& device,
                                                               ThreadPool& pool) {
  const int64_t k = parts.front().shape[1];
  auto matrix = std::unique_ptr<QuantMatrix>(new QuantMatrix(k, use));
  if (const int32_t* const order = parts.front().input_order; order != nullptr) {
    matrix->input_order_.assign(order, order + k);
  }
  while (!parts.empty()) {
    // Neighbours of the same type form one segment; in a gated matrix all do.
    QuantLayout layout = LayoutOf(parts.front().dtype);
    layout.zero = CommonZero(parts.front());
    size_t count = 1;
    for (; count < parts.size() && parts[count].dtype == parts.front().dtype; ++count) {
      if (CommonZero(parts[count]) != layout.zero) layout.zero = -1;
    }
    const MatrixParts alike(parts.first(count), MatrixOrder::kOutputsFirst, use);
    TLM_ASSIGN_OR_RETURN(Segment segment,
                         PackSegment(alike, parts.front().dtype, layout, nullptr, device, pool));
    segment.first_output = matrix->n_;
    matrix->n_ += segment.n;
    matrix->segments_.push_back(std::move(segment));
    parts = parts.subspan(count);
  }
  return matrix;
}

absl::StatusOr<std::unique_ptr<QuantMatrix>> QuantMatrix::Quantise(const MatrixParts& parts,
                                                                   MatrixUse use, DType type,
                                                                   const float* importance,
                                                                   Device& device,
                                                                   ThreadPool& pool) {
  auto matrix = std::unique_ptr<QuantMatrix>(new QuantMatrix(parts.k(), use));
  QuantLayout layout = LayoutOf(type);
  if (layout.bits == 8) layout.zero = 128;  // in all blocks
  TLM_ASSIGN_OR_RETURN(Segment segment, PackSegment(parts, type, layout, importance, device, pool));
  matrix->n_ = segment.n;
  matrix->segments_.push_back(std::move(segment));
  return matrix;
}

size_t QuantMatrix::BytesFor(DType type, int64_t n, int64_t k) {
  return static_cast<size_t>((n + kPanel - 1) / kPanel * QuantPanelBytes(LayoutOf(type), k));
}

int64_t QuantMatrix::panels() const {
  int64_t panels = 0;
  for (const Segment& segment : segments_) panels += segment.panels;
  return panels;
}

size_t QuantMatrix::bytes() const {
  size_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.data.bytes();
  return bytes;
}

std::map<DType, uint64_t> QuantMatrix::BytesByType() const {
  std::map<DType, uint64_t> bytes;
  for (const Segment& segment : segments_) bytes[segment.type] += segment.data.bytes();
  return bytes;
}

template <typename Take>
void QuantMatrix::ForEachWeight(int64_t row, const Take& take) const {
  TLM_CHECK(use_ == MatrixUse::kPlain && row < n_);
  const Segment* segment = segments_.data();
  while (row >= segment->first_output + segment->n) ++segment;
  row -= segment->first_output;
  const QuantLayout& layout = segment->layout;
  const int64_t lane = row % kPanel;
  const uint8_t* chunk = segment->data.as<uint8_t>() + row / kPanel * QuantPanelBytes(layout, k_);
  const int64_t padded = QuantPaddedInputs(k_);
  const auto scale_at = [&](const uint8_t* from, int64_t group) {
    const int64_t i = group * kPanel + lane;
    return layout.half_scales ? FloatAt(from, DType::kF16, i) : FloatAt(from, DType::kF32, i);
  };
  for (int64_t first = 0; first < k_; first += kQuantChunk) {
    const int64_t inputs = std::min(padded - first, kQuantChunk);
    const QuantPlaces at = PlacesOf(layout, inputs);
    for (int64_t i = 0; i < std::min(k_ - first, kQuantChunk); ++i) {
      const int64_t group = i / layout.group;
      float scale = scale_at(chunk + at.scale, group);
      float min = layout.has_min ? scale_at(chunk + at.min, group) : 0.0f;
      if (layout.sub_block > 0) {
        const int64_t b = i / layout.sub_block * kPanel + lane;
        scale *= static_cast<float>(static_cast<int8_t>(chunk[at.s + b]));
        if (layout.has_min) {
          min *= static_cast<float>(chunk[at.t + PlaceOfT(i / layout.sub_block, lane)]);
        }
      }
      const int zero = layout.zero < 0 ? chunk[at.zero + group * kPanel + lane] : layout.zero;
      const int q = StoredQ(layout, chunk, at, lane, i);
      take(input_order_.empty() ? first + i : input_order_[static_cast<size_t>(first + i)],
           static_cast<float>(q - zero) * scale - min);
    }
    chunk += at.bytes;
  }
}

void QuantMatrix::CopyRow(int64_t row, float* out) const {
  ForEachWeight(row, [out](int64_t i, float weight) { out[i] = weight; });
}

void QuantMatrix::AddRow(int64_t row, float* to) const {
  ForEachWeight(row, [to](int64_t i, float weight) { to[i] += weight; });
}

}  // namespace tlm
