#include "tests/unit/model/ops/ops_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "model/base/float16.h"
#include "model/tensor/fp8.h"

namespace tlm {
namespace {

std::vector<uint8_t> Encoded(float value, DType dtype) {
  std::vector<uint8_t> bytes(DTypeBytes(dtype));
  const uint16_t half = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  std::memcpy(bytes.data(), dtype == DType::kF32 ? static_cast<const void*>(&value) : &half,
              bytes.size());
  return bytes;
}

float Decoded(const uint8_t* bytes, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return dtype == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
}

}  // namespace

std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

float Rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(value));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(value));
  return value;
}

std::vector<float> Rounded(std::vector<float> values, DType dtype) {
  for (float& value : values) value = Rounded(value, dtype);
  return values;
}

std::vector<float> Stored(std::vector<float> rows, int64_t head_dim, DType dtype) {
  if (dtype != DType::kF8E4M3) return Rounded(std::move(rows), dtype);
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(head_dim)) {
    const std::span<float> row(rows.data() + begin, static_cast<size_t>(head_dim));
    uint32_t largest = 0;
    for (const float x : row) largest = std::max(largest, Fp8BitsOf(x) & 0x7fffffffu);
    const uint8_t scale = Fp8ScaleOf(largest);
    for (float& x : row) x = Fp8Value(Fp8Of(x * Fp8InverseScale(scale))) * Fp8Scale(scale);
  }
  return rows;
}

double Roundoff(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

double RoundingError(double value, DType dtype) {
  const double least = dtype == DType::kF16 ? 0x1p-25 : 0x1p-134;
  return std::max(Roundoff(dtype) * std::abs(value), least);
}

HostMatrix::HostMatrix(int64_t cols, DType dtype, std::vector<float> values)
    : cols_(cols), dtype_(dtype), values_(Rounded(std::move(values), dtype)) {
  if (dtype == DType::kF32) return;
  for (const float value : values_) {
    halves_.push_back(dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value));
  }
}

TensorView HostMatrix::view() const {
  const void* const data =
      dtype_ == DType::kF32 ? static_cast<const void*>(values_.data()) : halves_.data();
  return {dtype_, Shape{rows(), cols_}, data};
}

std::vector<double> Transformed(std::span<const float> head, const HeadReference& reference,
                                int64_t position) {
  std::vector<double> out(head.begin(), head.end());
  const auto dim = static_cast<double>(head.size());
  if (!reference.gain.empty()) {
    double square = 0.0;
    for (const double value : out) square += value * value / dim;
    const double root = reference.placement == EpsPlacement::kInsideRoot
                            ? std::sqrt(square + reference.eps)
                            : std::sqrt(square) + reference.eps;
    for (size_t d = 0; d < out.size(); ++d) out[d] *= reference.gain[d] / root;
  }
  if (reference.theta == 0.0) return out;
  const bool half = reference.pairing == RopePairing::kHalf;
  for (size_t i = 0; i < out.size() / 2; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(reference.theta, -2.0 * static_cast<double>(i) / dim);
    double& first = out[half ? i : 2 * i];
    double& second = out[half ? i + out.size() / 2 : 2 * i + 1];
    const double rotated = first * std::cos(angle) - second * std::sin(angle);
    second = first * std::sin(angle) + second * std::cos(angle);
    first = rotated;
  }
  return out;
}

Batch BatchOf(const std::vector<Piece>& pieces) {
  Batch batch;
  for (const Piece& piece : pieces) {
    batch.max_blocks = std::max(batch.max_blocks, static_cast<int64_t>(piece.blocks.size()));
  }
  for (const Piece& piece : pieces) {
    for (int64_t i = 0; i < piece.tokens; ++i) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(static_cast<int32_t>(piece.begin + i));
      batch.sequence_of.push_back(static_cast<int32_t>(batch.sequences));
    }
    batch.block_tables.insert(batch.block_tables.end(), piece.blocks.begin(), piece.blocks.end());
    ++batch.sequences;
    batch.block_tables.resize(batch.sequences * batch.max_blocks, 0);
  }
  return batch;
}

void OpsTest::SetUp() {
  auto made = GetParam().make();
  if (absl::IsUnavailable(made.status())) GTEST_SKIP() << made.status().message();
  ASSERT_THAT(made, IsOk());
  ops_ = *std::move(made);
  Reserve({.vocab_size = 64,
           .num_heads = 2,
           .num_kv_heads = 1,
           .head_dim = 16,
           .gated_outputs = 1200,
           .inputs = 4096},
          {.max_tokens = 160, .max_sequences = 8, .max_logits_rows = 8, .max_context = 256});
}

void OpsTest::TearDown() {
  if (ops_ != nullptr) ops_->Release();
}

void OpsTest::Reserve(const ModelShape& shape, const BatchLimits& limits) {
  ops_->Release();
  ASSERT_THAT(ops_->Reserve(limits, shape, activations()), IsOk());
}

std::unique_ptr<Matrix> OpsTest::Pack(const HostMatrix& host, MatrixUse use) {
  const TensorView view = host.view();
  auto matrix = ops_->PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use);
  EXPECT_THAT(matrix, IsOk());
  return *std::move(matrix);
}

Buffer OpsTest::Upload(const std::vector<float>& vector) {
  const TensorView view = AsVector(vector);
  auto buffer = ops_->PackVector({&view, 1});
  EXPECT_THAT(buffer, IsOk());
  return *std::move(buffer);
}

Buffer OpsTest::Upload(const std::vector<int32_t>& vector) {
  const size_t bytes = vector.size() * sizeof(int32_t);
  auto buffer = ops_->device().Allocate(bytes, MemoryPurpose::kRuntime);
  EXPECT_THAT(buffer, IsOk());
  EXPECT_THAT(ops_->device().CopyToDevice(buffer->data(), vector.data(), bytes), IsOk());
  return *std::move(buffer);
}

DeviceRows OpsTest::Upload(const std::vector<float>& values, int64_t cols, DType dtype,
                           int64_t extra) {
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  const int64_t stride = (cols + 7) / 8 * 8 + extra;
  const size_t element = DTypeBytes(dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * stride) * element, 0xff);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const std::vector<uint8_t> value = Encoded(values[i], dtype);
    std::copy(value.begin(), value.end(),
              bytes.begin() + static_cast<ptrdiff_t>(i / cols * stride + i % cols) *
                                  static_cast<ptrdiff_t>(element));
  }
  auto memory = ops_->device().Allocate(bytes.size(), MemoryPurpose::kActivations);
  EXPECT_THAT(memory, IsOk());
  EXPECT_THAT(ops_->device().CopyToDevice(memory->data(), bytes.data(), bytes.size()), IsOk());
  DeviceRows result{.memory = *std::move(memory), .rows = {}};
  result.rows = {result.memory.data(), rows, cols, stride, dtype};
  return result;
}

DeviceRows OpsTest::UploadPadded(std::vector<float> values, int64_t cols, DType dtype) {
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  values.resize(ops_->PaddedRows(rows) * cols, std::nanf(""));
  return Upload(values, cols, dtype);
}

DeviceRows OpsTest::Poisoned(int64_t rows, int64_t cols, DType dtype) {
  return Upload(std::vector<float>(rows * cols, std::nanf("")), cols, dtype);
}

std::vector<float> OpsTest::Download(const DeviceRows& from, int64_t count) {
  const Rows& rows = from.rows;
  if (count < 0) count = rows.rows;
  std::vector<uint8_t> bytes(from.memory.bytes());
  EXPECT_THAT(ops_->device().CopyToHost(bytes.data(), from.memory.data(), bytes.size()), IsOk());
  std::vector<float> values;
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (int64_t col = 0; col < rows.stride; ++col) {
      const uint8_t* const at =
          bytes.data() + static_cast<size_t>(row * rows.stride + col) * DTypeBytes(rows.dtype);
      if (col >= rows.cols) {
        const bool poisoned =
            std::all_of(at, at + DTypeBytes(rows.dtype), [](uint8_t byte) { return byte == 0xff; });
        EXPECT_TRUE(poisoned) << "written beside row " << row << ", at " << col;
        if (!poisoned) return values;
      } else if (row < count) {
        values.push_back(Decoded(at, rows.dtype));
      }
    }
  }
  return values;
}

void OpsTest::RunBatch(const Batch& batch, const std::function<void(const DeviceBatch&)>& body) {
  const auto on_device = ops_->BeginBatch(batch);
  ASSERT_THAT(on_device, IsOk());
  body(*on_device);
  ASSERT_THAT(ops_->EndBatch(Rows()), IsOk());
  ASSERT_THAT(ops_->AwaitBatch(), IsOk());
}

}  // namespace tlm
