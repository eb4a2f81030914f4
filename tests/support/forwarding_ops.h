// A backend that passes everything on: what backends with a mistake of their own derive from.
#ifndef TLM_TESTS_SUPPORT_FORWARDING_OPS_H_
#define TLM_TESTS_SUPPORT_FORWARDING_OPS_H_

#include <memory>
#include <span>

#include "model/ops/ops.h"

namespace tlm {

class ForwardingOps : public Ops {
 public:
  // `ops` outlives this object.
  explicit ForwardingOps(Ops& ops) : ops_(ops) {}

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
    return ops_.MatMul(x, w, bias, out);
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

 protected:
  Ops& ops_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_FORWARDING_OPS_H_
