// Matrix products on the device, and what their bits must be.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_GEMM_FIXTURE_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_GEMM_FIXTURE_H_

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "model/ops/cuda/weights/cuda_matrix.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/simt/mma_model.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/host_activations.h"

namespace tlm {

inline uint16_t Encode16(DType dtype, float value) {
  if (value != value) return 0x7fff;
  return dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
}
inline float Decode16(DType dtype, uint16_t bits) {
  return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
}
// As stored in `dtype` and read again.
inline float RoundTo(DType dtype, float value) {
  return dtype == DType::kF32 ? value : Decode16(dtype, Encode16(dtype, value));
}

// Row-major numbers of a type.
struct Numbers {
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF32;
  std::vector<float> values;

  float at(int64_t row, int64_t col) const { return values[row * cols + col]; }
  float& at(int64_t row, int64_t col) { return values[row * cols + col]; }
};

// Normally distributed, so that sums cancel and their order shows.
inline Numbers RandomNumbers(int64_t rows, int64_t cols, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Numbers numbers{rows, cols, dtype, std::vector<float>(rows * cols)};
  for (float& value : numbers.values) value = RoundTo(dtype, normal(random));
  return numbers;
}

// The sum that both kinds of kernels form, bit for bit.
inline float ChainOf(const Numbers& x, int64_t row, const Numbers& w, int64_t output) {
  if (!UsesTensorCores(w.rows, w.cols, w.dtype)) {
    float sum = 0.0f;
    for (int64_t i = 0; i < w.cols; ++i) sum = std::fma(w.at(output, i), x.at(row, i), sum);
    return sum;
  }
  const int64_t padded = (w.cols + 15) / 16 * 16;
  std::vector<uint16_t> a(padded);
  std::vector<uint16_t> b(padded);
  for (int64_t i = 0; i < w.cols; ++i) {
    a[i] = Encode16(w.dtype, w.at(output, i));
    b[i] = Encode16(x.dtype, x.at(row, i));
  }
  const auto input = w.dtype == DType::kBF16 ? simt::MmaInput::kBf16 : simt::MmaInput::kF16;
  static const simt::MmaUnit unit = MatrixUnitUnderTest();
  return simt::MmaDot(unit, input, a.data(), b.data(), static_cast<int>(padded), 0.0f);
}

inline float ActivatedBy(std::optional<Activation> activation, float v) {
  if (!activation.has_value()) return v;
  switch (*activation) {
    case Activation::kSilu:
      return HostSilu(v);
    case Activation::kRelu:
      return HostRelu(v);
    case Activation::kGeluTanh:
      return HostGeluTanh(v);
    case Activation::kGelu:
      return HostGelu(v);
  }
  return v;
}

// What Gemm promises; gemm.h. `bias` empty: none.
inline Numbers ExpectedProduct(const Numbers& x, const Numbers& w, const std::vector<float>& bias,
                               std::optional<Activation> activation, DType out) {
  Numbers expected{x.rows, w.rows, out, {}};
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t j = 0; j < w.rows; ++j) {
      float v = RoundTo(out, ChainOf(x, row, w, j));
      if (!bias.empty()) v = RoundTo(out, v + bias[j]);
      if (activation.has_value()) v = RoundTo(out, ActivatedBy(activation, v));
      expected.values.push_back(v);
    }
  }
  return expected;
}
inline Numbers ExpectedGated(const Numbers& x, const Numbers& w, const std::vector<float>& bias) {
  const Numbers sums = ExpectedProduct(x, w, bias, std::nullopt, x.dtype);
  const int64_t half = w.rows / 2;
  Numbers expected{x.rows, half, x.dtype, {}};
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t j = 0; j < half; ++j) {
      expected.values.push_back(
          RoundTo(x.dtype, HostSilu(sums.at(row, j)) * sums.at(row, half + j)));
    }
  }
  return expected;
}

inline void ExpectSameBits(const Numbers& actual, const Numbers& expected) {
  ASSERT_EQ(actual.values.size(), expected.values.size());
  for (int64_t row = 0; row < expected.rows; ++row) {
    for (int64_t col = 0; col < expected.cols; ++col) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual.at(row, col)),
                std::bit_cast<uint32_t>(expected.at(row, col)))
          << "row " << row << " column " << col << ": " << actual.at(row, col) << " instead of "
          << expected.at(row, col);
    }
  }
}

// Rows in device memory, with other bytes before, between and behind them.
class DeviceRows {
 public:
  // Columns [begin, begin + numbers.cols) of rows `stride` apart; everything else is NaN.
  DeviceRows(CudaDevice& device, const Numbers& numbers, int64_t begin, int64_t stride)
      : device_(device), begin_(begin), stride_(stride), like_(numbers) {
    const size_t elements = static_cast<size_t>(numbers.rows * stride + begin);
    std::vector<char> bytes(elements * DTypeBytes(numbers.dtype), char(0x7f));
    for (int64_t row = 0; row < numbers.rows; ++row) {
      for (int64_t col = 0; col < numbers.cols; ++col) {
        Put(numbers.dtype, numbers.at(row, col), begin + row * stride + col, bytes.data());
      }
    }
    memory_ = device.Allocate(bytes.size(), MemoryPurpose::kActivations).value();
    EXPECT_THAT(device.CopyToDevice(memory_.data(), bytes.data(), bytes.size()), IsOk());
    untouched_ = std::move(bytes);
  }

  Rows rows() const {
    return {memory_.as<char>() + static_cast<size_t>(begin_) * DTypeBytes(like_.dtype), like_.rows,
            like_.cols, stride_, like_.dtype};
  }
  // The numbers there now. Fails if anything beside them has changed.
  Numbers Read() {
    std::vector<char> bytes(untouched_.size());
    EXPECT_THAT(device_.CopyToHost(bytes.data(), memory_.data(), bytes.size()), IsOk());
    Numbers read = like_;
    const size_t size = DTypeBytes(like_.dtype);
    for (int64_t row = 0; row < like_.rows; ++row) {
      for (int64_t col = 0; col < like_.cols; ++col) {
        char* const at = bytes.data() + static_cast<size_t>(begin_ + row * stride_ + col) * size;
        read.at(row, col) = Get(like_.dtype, at);
        std::memcpy(at, untouched_.data() + (at - bytes.data()), size);
      }
    }
    EXPECT_TRUE(bytes == untouched_) << "something beside the rows was written";
    return read;
  }

  static void Put(DType dtype, float value, int64_t index, char* bytes) {
    const uint16_t narrow = dtype == DType::kF32 ? uint16_t{0} : Encode16(dtype, value);
    const void* const from = dtype == DType::kF32 ? static_cast<const void*>(&value) : &narrow;
    std::memcpy(bytes + static_cast<size_t>(index) * DTypeBytes(dtype), from, DTypeBytes(dtype));
  }
  static float Get(DType dtype, const char* from) {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, from, sizeof(value));
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return Decode16(dtype, bits);
  }

 private:
  CudaDevice& device_;
  int64_t begin_;
  int64_t stride_;
  Numbers like_;
  Buffer memory_;
  std::vector<char> untouched_;
};

class GemmFixture : public ::testing::Test {
 protected:
  // Products are planned for a device of `multiprocessors`.
  void Open(int multiprocessors = 4, GemmLibrary* library = nullptr) {
    ConfigureDevice({});
    device_ = CudaDevice::Create({}).value();
    CudaProperties properties = device_->properties();
    properties.multiprocessors = multiprocessors;
    properties.l2_bytes = 4096;  // what probes empty before every run they time
    gemm_ = std::make_unique<Gemm>(*device_, properties, library);
  }
  void SetUp() override { Open(); }

  std::unique_ptr<CudaMatrix> Pack(const Numbers& w, MatrixUse use = MatrixUse::kPlain) {
    const MatrixLayout layout(w.rows, w.cols, w.dtype, use);
    EXPECT_THAT(gemm_->Prepare(layout), IsOk());
    std::vector<char> bytes(layout.bytes());
    for (int64_t row = 0; row < w.rows; ++row) {
      for (int64_t i = 0; i < w.cols; ++i) {
        DeviceRows::Put(w.dtype, w.at(layout.OutputOfRow(row), i), row * layout.row_stride() + i,
                        bytes.data());
      }
    }
    Buffer data = device_->Allocate(bytes.size(), MemoryPurpose::kWeights).value();
    EXPECT_THAT(device_->CopyToDevice(data.data(), bytes.data(), bytes.size()), IsOk());
    return std::make_unique<CudaMatrix>(layout, std::move(data));
  }
  Buffer PackBias(const std::vector<float>& bias) {
    if (bias.empty()) return {};
    Buffer data = device_->Allocate(bias.size() * sizeof(float), MemoryPurpose::kWeights).value();
    EXPECT_THAT(device_->CopyToDevice(data.data(), bias.data(), bias.size() * sizeof(float)),
                IsOk());
    return data;
  }
  static Numbers Unwritten(int64_t rows, int64_t cols, DType dtype) {
    return {rows, cols, dtype,
            std::vector<float>(rows * cols, std::numeric_limits<float>::quiet_NaN())};
  }

  Numbers Multiply(const Numbers& x, const Numbers& w, const std::vector<float>& bias = {},
                   std::optional<Activation> activation = std::nullopt,
                   std::optional<DType> out_dtype = std::nullopt) {
    const std::unique_ptr<CudaMatrix> matrix = Pack(w);
    const Buffer bias_data = PackBias(bias);
    const DeviceRows in(*device_, x, 8, Stride(x));
    const Numbers blank = Unwritten(x.rows, w.rows, out_dtype.value_or(x.dtype));
    DeviceRows out(*device_, blank, 16, Stride(blank));
    EXPECT_THAT(gemm_->Run(in.rows(), *matrix,
                           {.bias = bias_data.as<float>(), .activation = activation}, out.rows()),
                IsOk());
    return out.Read();
  }
  Numbers MultiplyGated(const Numbers& x, const Numbers& w, const std::vector<float>& bias = {}) {
    const std::unique_ptr<CudaMatrix> matrix = Pack(w, MatrixUse::kGated);
    const Buffer bias_data = PackBias(bias);
    const DeviceRows in(*device_, x, 8, Stride(x));
    const Numbers blank = Unwritten(x.rows, w.rows / 2, x.dtype);
    DeviceRows out(*device_, blank, 16, Stride(blank));
    EXPECT_THAT(gemm_->RunGated(in.rows(), *matrix, bias_data.as<float>(), out.rows()), IsOk());
    return out.Read();
  }
  // Wider than the rows; a multiple of 8 where they are.
  static int64_t Stride(const Numbers& numbers) { return numbers.cols + 24; }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_GEMM_FIXTURE_H_
