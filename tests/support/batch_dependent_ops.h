// A backend with the mistake that the determinism promise rules out.
#ifndef TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_
#define TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_

#include <memory>
#include <span>
#include <vector>

#include "model/ops/ops.h"

namespace tlm {

// Passes everything on, but a matrix product of several rows is summed in two halves of k: the same
// formula in another order, chosen by the number of rows, as libraries tuned for speed do.
class BatchDependentOps : public Ops {
 public:
  // `ops` outlives this object.
  explicit BatchDependentOps(Ops& ops) : ops_(ops) {}

  Device& device() override { return ops_.device(); }
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(std::span<const TensorView> parts,
                                                     MatrixOrder order) override {
    return ops_.PackMatrix(parts, order);
  }
  absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) override {
    return ops_.PackVector(parts);
  }
  absl::Status Embed(const Matrix& table, const int32_t* ids, const Rows& out) override {
    return ops_.Embed(table, ids, out);
  }
  absl::Status GatherRows(const Rows& in, const int32_t* rows, const Rows& out) override {
    return ops_.GatherRows(in, rows, out);
  }
  absl::Status RmsNorm(const Rows& in, int64_t group, const float* gain, float eps,
                       EpsPlacement placement, const Rows& out) override {
    return ops_.RmsNorm(in, group, gain, eps, placement, out);
  }
  absl::Status LayerNorm(const Rows& in, const float* gain, const float* bias, float eps,
                         EpsPlacement placement, const Rows& out) override {
    return ops_.LayerNorm(in, gain, bias, eps, placement, out);
  }
  absl::Status MatMul(const Rows& x, const Matrix& w, const float* bias, const Rows& out) override {
    if (x.rows == 1) return ops_.MatMul(x, w, bias, out);
    const std::vector<float> low = Half(x, 0, x.cols / 2);
    const std::vector<float> high = Half(x, x.cols / 2, x.cols);
    std::vector<float> sum(static_cast<size_t>(out.rows * out.cols));
    const auto rows = [](const std::vector<float>& values, int64_t cols) {
      return Rows{const_cast<float*>(values.data()), static_cast<int64_t>(values.size()) / cols,
                  cols, cols};
    };
    if (absl::Status status = ops_.MatMul(rows(low, x.cols), w, bias, out); !status.ok())
      return status;
    if (absl::Status status = ops_.MatMul(rows(high, x.cols), w, nullptr, rows(sum, out.cols));
        !status.ok()) {
      return status;
    }
    return ops_.Add(out, rows(sum, out.cols));
  }
  absl::Status Add(const Rows& x, const Rows& y) override { return ops_.Add(x, y); }
  absl::Status SwiGlu(const Rows& gate_up, const Rows& out) override {
    return ops_.SwiGlu(gate_up, out);
  }
  absl::Status Activate(Activation activation, const Rows& x) override {
    return ops_.Activate(activation, x);
  }
  absl::Status Rope(const Rows& x, int64_t head_dim, RopePairing pairing, const float* table,
                    const int32_t* positions) override {
    return ops_.Rope(x, head_dim, pairing, table, positions);
  }
  absl::Status WriteKv(const Rows& k, const Rows& v, const TokenLayout& layout,
                       const KvLayer& cache) override {
    return ops_.WriteKv(k, v, layout, cache);
  }
  absl::Status Attention(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                         const KvLayer& cache, const Rows& out) override {
    return ops_.Attention(q, scale, window, layout, cache, out);
  }

 private:
  // x with every column outside [begin, end) zero.
  static std::vector<float> Half(const Rows& x, int64_t begin, int64_t end) {
    std::vector<float> half(static_cast<size_t>(x.rows * x.cols), 0.0f);
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t col = begin; col < end; ++col) {
        half[row * x.cols + col] = x.data[row * x.stride + col];
      }
    }
    return half;
  }

  Ops& ops_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_
