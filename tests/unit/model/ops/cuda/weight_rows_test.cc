#include "model/ops/cuda/weights/weight_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

void Append(DType dtype, double value, std::vector<char>* bytes) {
  const auto add = [bytes](auto element) {
    const char* const from = reinterpret_cast<const char*>(&element);
    bytes->insert(bytes->end(), from, from + sizeof(element));
  };
  if (dtype == DType::kF64) add(value);
  if (dtype == DType::kF32) add(static_cast<float>(value));
  if (dtype == DType::kBF16) add(FloatToBf16(static_cast<float>(value)));
  if (dtype == DType::kF16) add(FloatToF16(static_cast<float>(value)));
}

double ValueAt(DType dtype, const void* data, int64_t index) {
  const char* const at =
      static_cast<const char*>(data) + index * static_cast<int64_t>(DTypeBytes(dtype));
  uint16_t half = 0;
  float single = 0;
  double wide = 0;
  if (dtype == DType::kF64) return std::memcpy(&wide, at, sizeof(wide)), wide;
  if (dtype == DType::kF32) return std::memcpy(&single, at, sizeof(single)), single;
  std::memcpy(&half, at, sizeof(half));
  return dtype == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
}

// A host matrix of random values, one byte past any alignment as a mapped file's tensors may be.
class HostMatrix {
 public:
  HostMatrix(DType dtype, int64_t outputs, int64_t inputs, MatrixOrder order, uint32_t seed)
      : dtype_(dtype), outputs_(outputs), inputs_(inputs), order_(order), bytes_(1) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> values(-4.0, 4.0);
    for (int64_t i = 0; i < outputs * inputs; ++i) Append(dtype, values(random), &bytes_);
  }
  TensorView view() const {
    const bool outputs_first = order_ == MatrixOrder::kOutputsFirst;
    return {dtype_, outputs_first ? Shape{outputs_, inputs_} : Shape{inputs_, outputs_},
            bytes_.data() + 1};
  }
  double at(int64_t output, int64_t input) const {
    const bool outputs_first = order_ == MatrixOrder::kOutputsFirst;
    return ValueAt(dtype_, bytes_.data() + 1,
                   outputs_first ? output * inputs_ + input : input * outputs_ + output);
  }
  void Set(int64_t element, double value) {
    std::vector<char> bytes;
    Append(dtype_, value, &bytes);
    std::memcpy(bytes_.data() + 1 + static_cast<size_t>(element) * bytes.size(), bytes.data(),
                bytes.size());
  }
  int64_t outputs() const { return outputs_; }

 private:
  DType dtype_;
  int64_t outputs_;
  int64_t inputs_;
  MatrixOrder order_;
  std::vector<char> bytes_;
};

struct Case {
  std::vector<DType> parts;
  DType stored;
};
const Case kCases[] = {{{DType::kBF16}, DType::kBF16},
                       {{DType::kF16, DType::kF16}, DType::kF16},
                       {{DType::kF32}, DType::kF32},
                       {{DType::kF64}, DType::kF32},
                       {{DType::kBF16, DType::kF16, DType::kF64, DType::kF32}, DType::kF32}};

TEST(WeightRowsTest, ReadsEveryTypeAndOrderIntoPaddedRows) {
  for (const Case& test : kCases) {
    for (const MatrixOrder order : {MatrixOrder::kOutputsFirst, MatrixOrder::kInputsFirst}) {
      for (const int64_t k : {1, 7, 64, 131}) {
        std::vector<HostMatrix> parts;
        std::vector<TensorView> views;
        for (const DType dtype : test.parts) {
          const auto index = static_cast<uint32_t>(parts.size());
          parts.emplace_back(dtype, 37 + index, k, order, index);
        }
        for (const HostMatrix& part : parts) views.push_back(part.view());
        const WeightRows rows(views, order);
        ASSERT_EQ(rows.stored_type(), test.stored);
        ASSERT_EQ(rows.k(), k);

        // All outputs back to front, and two rows of zeros among them.
        std::vector<int64_t> outputs;
        for (int64_t output = rows.n() - 1; output >= 0; --output) outputs.push_back(output);
        outputs.insert(outputs.begin() + 5, -1);
        outputs.push_back(-1);
        const int64_t stride = k + 3;
        std::vector<char> out(
            outputs.size() * static_cast<size_t>(stride) * DTypeBytes(test.stored), '\x55');
        ASSERT_FALSE(rows.Read(outputs, stride, out.data()).has_value());
        for (size_t r = 0; r < outputs.size(); ++r) {
          int64_t local = outputs[r];
          size_t part = 0;
          while (local >= 0 && local >= parts[part].outputs()) local -= parts[part++].outputs();
          for (int64_t i = 0; i < stride; ++i) {
            const double expected = local < 0 || i >= k ? 0.0 : parts[part].at(local, i);
            const double actual =
                ValueAt(test.stored, out.data(), static_cast<int64_t>(r) * stride + i);
            ASSERT_EQ(actual, static_cast<double>(static_cast<float>(expected)))
                << "row " << r << " column " << i << " of k " << k;
          }
        }
      }
    }
  }
}

TEST(WeightRowsTest, RoundsEveryTypeToBfloat16WhereAsked) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (const MatrixOrder order : {MatrixOrder::kOutputsFirst, MatrixOrder::kInputsFirst}) {
      const HostMatrix part(dtype, 37, 50, order, 1);
      const TensorView view = part.view();
      const WeightRows rows({&view, 1}, order, DType::kBF16);
      std::vector<int64_t> outputs(37);
      std::iota(outputs.begin(), outputs.end(), 0);
      std::vector<uint16_t> out(37 * 50);
      ASSERT_FALSE(rows.Read(outputs, 50, out.data()).has_value());
      for (int64_t i = 0; i < 37 * 50; ++i) {
        const auto value = static_cast<float>(part.at(i / 50, i % 50));
        ASSERT_EQ(out[i], FloatToBf16(value)) << DTypeName(dtype);
      }
    }
  }
  // What bfloat16 has no finite value for.
  const float most = std::numeric_limits<float>::max();
  const TensorView view{DType::kF32, Shape{1, 1}, &most};
  const int64_t output = 0;
  uint16_t out;
  EXPECT_TRUE(WeightRows({&view, 1}, MatrixOrder::kOutputsFirst, DType::kBF16)
                  .Read({&output, 1}, 1, &out)
                  .has_value());
}

TEST(WeightRowsTest, FindsTheFirstValueThatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (const MatrixOrder order : {MatrixOrder::kOutputsFirst, MatrixOrder::kInputsFirst}) {
      for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
        const HostMatrix first(dtype, 3, 50, order, 1);
        HostMatrix second(dtype, 40, 50, order, 2);
        // Output 35, input 49.
        const int64_t element = order == MatrixOrder::kOutputsFirst ? 35 * 50 + 49 : 49 * 40 + 35;
        second.Set(element, bad);
        const TensorView views[] = {first.view(), second.view()};
        const WeightRows rows(views, order);
        std::vector<int64_t> outputs;
        for (int64_t output = 0; output < rows.n(); ++output) outputs.push_back(output);
        std::vector<float> out(outputs.size() * 50);
        const auto found = rows.Read(outputs, 50, out.data());
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->part, 1u);
        EXPECT_EQ(found->element, element);
        EXPECT_EQ(std::isnan(found->value), std::isnan(bad));
        if (!std::isnan(bad)) {
          EXPECT_EQ(found->value, bad);
        }
        // That output is not computed: nothing to find.
        outputs.resize(38);
        EXPECT_FALSE(rows.Read(outputs, 50, out.data()).has_value());
      }
    }
  }
}

TEST(WeightRowsTest, CallsWhatAFloatCannotHoldInfinite) {
  HostMatrix matrix(DType::kF64, 2, 3, MatrixOrder::kOutputsFirst, 1);
  matrix.Set(4, 1e300);
  const TensorView views[] = {matrix.view()};
  const WeightRows rows(views, MatrixOrder::kOutputsFirst);
  const int64_t outputs[] = {0, 1};
  float out[6];
  const auto found = rows.Read(outputs, 3, out);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(NonFiniteError(*found, views[0]),
              IsInvalidArgument("part 0 F64 [2, 3]", "element 4 is inf"));
}

TEST(WeightRowsTest, ReadsVectorsAsFloats) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    HostMatrix matrix(dtype, 1, 4097, MatrixOrder::kOutputsFirst, 3);
    const TensorView view{dtype, Shape{4097}, matrix.view().data};
    std::vector<float> out(4097);
    ASSERT_FALSE(ReadFloats(view, out).has_value());
    for (int64_t i = 0; i < 4097; ++i) {
      ASSERT_EQ(out[i], static_cast<float>(matrix.at(0, i)));
    }
    matrix.Set(4096, std::nan(""));
    const auto found = ReadFloats(view, out);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->element, 4096);
  }
}

}  // namespace
}  // namespace tlm
