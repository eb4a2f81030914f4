// A backend with the mistake that the determinism promise rules out first.
#ifndef TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_
#define TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_

#include <vector>

#include "model/ops/forwarding_ops.h"

namespace tlm {

// A matrix product of several rows is summed in two halves of k: the same formula in another order,
// chosen by the number of rows, as libraries tuned for speed do. On the CPU's backend; products
// that an activation or a gate follows are left alone.
class BatchDependentOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                      const Rows& out) override {
    if (x.rows == 1 || epilogue.activation.has_value()) return ops_.MatMul(x, w, epilogue, out);
    const std::vector<float> low = Half(x, 0, x.cols / 2);
    const std::vector<float> high = Half(x, x.cols / 2, x.cols);
    std::vector<float> sum(static_cast<size_t>(out.rows * out.cols));
    const auto rows = [](const std::vector<float>& values, int64_t cols) {
      return Rows{const_cast<float*>(values.data()), static_cast<int64_t>(values.size()) / cols,
                  cols, cols};
    };
    if (absl::Status status = ops_.MatMul(rows(low, x.cols), w, epilogue, out); !status.ok()) {
      return status;
    }
    if (absl::Status status = ops_.MatMul(rows(high, x.cols), w, {}, rows(sum, out.cols));
        !status.ok()) {
      return status;
    }
    for (int64_t i = 0; i < out.rows * out.cols; ++i) {
      out.as<float>()[i / out.cols * out.stride + i % out.cols] += sum[i];
    }
    return absl::OkStatus();
  }

 private:
  // x with every column outside [begin, end) zero.
  static std::vector<float> Half(const Rows& x, int64_t begin, int64_t end) {
    std::vector<float> half(static_cast<size_t>(x.rows * x.cols), 0.0f);
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t col = begin; col < end; ++col) {
        half[row * x.cols + col] = x.as<float>()[row * x.stride + col];
      }
    }
    return half;
  }
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_BATCH_DEPENDENT_OPS_H_
