// Op tests are written once, against Ops, and run on every backend. What a binary runs them on is
// in its own file: native_cases.cc (the host's instruction sets, and a GPU where there is one) or
// ops_emulated_test.cc (the CUDA backend on an emulated GPU).
#ifndef TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_
#define TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/ops.h"
#include "tests/support/status_matchers.h"

namespace tlm {

// A backend, and the type that the matrices of its model are stored in.
struct OpsCase {
  std::string name;
  DType weights = DType::kF32;
  bool emulated = false;  // every thread of a GPU is emulated: fewer and smaller shapes
  // UNAVAILABLE: this machine has no such backend, and why.
  std::function<absl::StatusOr<std::unique_ptr<Ops>>()> make;
};
inline std::ostream& operator<<(std::ostream& out, const OpsCase& c) { return out << c.name; }
inline std::string OpsCaseName(const ::testing::TestParamInfo<OpsCase>& info) {
  return info.param.name;
}

// Of this binary.
std::vector<OpsCase> OpsCases();

// Normally distributed.
std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale = 1.0f);
// The nearest value that `dtype` has, and the largest relative error of that.
float Rounded(float value, DType dtype);
std::vector<float> Rounded(std::vector<float> values, DType dtype);
// What is read of keys or values, rows of head_dim, that have been stored in `dtype`.
std::vector<float> Stored(std::vector<float> rows, int64_t head_dim, DType dtype);
double Roundoff(DType dtype);
// What rounding `value` may change: Roundoff, or half the smallest step of a float16.
double RoundingError(double value, DType dtype);

inline TensorView AsVector(const std::vector<float>& values) {
  return {DType::kF32, Shape{static_cast<int64_t>(values.size())}, values.data()};
}

// A host matrix in one of the stored types, and the exact values it holds.
class HostMatrix {
 public:
  HostMatrix(int64_t rows, int64_t cols, DType dtype, uint64_t seed)
      : HostMatrix(cols, dtype, RandomFloats(rows * cols, seed)) {}
  // `values` are rounded to `dtype`.
  HostMatrix(int64_t cols, DType dtype, std::vector<float> values);

  TensorView view() const;
  int64_t rows() const { return static_cast<int64_t>(values_.size()) / cols_; }
  int64_t cols() const { return cols_; }
  float at(int64_t row, int64_t col) const { return values_[row * cols_ + col]; }

 private:
  int64_t cols_;
  DType dtype_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
};

// Rows in device memory. Those that tests make have room beside every row that stays poisoned.
struct DeviceRows {
  Buffer memory;
  Rows rows;
};

// HeadTransform of one head in double precision: normalised where there is a gain, rotated by the
// angles of its position where theta is not 0.
struct HeadReference {
  std::vector<float> gain = {};
  double eps = 0.0;
  EpsPlacement placement = EpsPlacement::kInsideRoot;
  double theta = 0.0;
  RopePairing pairing = RopePairing::kHalf;
};
std::vector<double> Transformed(std::span<const float> head, const HeadReference& reference,
                                int64_t position);

// Consecutive tokens of one sequence.
struct Piece {
  int64_t begin = 0;  // position of the first
  int64_t tokens = 0;
  std::vector<int32_t> blocks = {};
};
// Token ids are 0; no logits are asked for.
Batch BatchOf(const std::vector<Piece>& pieces);

class OpsTest : public ::testing::TestWithParam<OpsCase> {
 protected:
  void SetUp() override;
  void TearDown() override;

  DType weights() const { return GetParam().weights; }
  DType activations() const { return ops_->ActivationType(weights()); }

  // Makes the backend ready for batches of this shape, instead of the one before.
  void Reserve(const ModelShape& shape, const BatchLimits& limits);

  std::unique_ptr<Matrix> Pack(const HostMatrix& host, MatrixUse use = MatrixUse::kPlain);
  Buffer Upload(const std::vector<float>& vector);
  Buffer Upload(const std::vector<int32_t>& vector);
  // Rounds to `dtype`. The stride is `extra` more than cols, rounded up to a multiple of 8.
  DeviceRows Upload(const std::vector<float>& values, int64_t cols, DType dtype, int64_t extra = 8);
  // The same, and as many rows of NaN after them as batches may be padded by.
  DeviceRows UploadPadded(std::vector<float> values, int64_t cols, DType dtype);
  // All NaN.
  DeviceRows Poisoned(int64_t rows, int64_t cols, DType dtype);
  // The first `count` rows (all, if below 0), end to end; fails where something was written beside.
  std::vector<float> Download(const DeviceRows& from, int64_t count = -1);

  // Runs `body` as the steps of a batch that asks for no logits.
  void RunBatch(const Batch& batch, const std::function<void(const DeviceBatch&)>& body);

  std::unique_ptr<Ops> ops_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_OPS_FIXTURE_H_
