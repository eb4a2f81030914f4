// A matrix of the CPU backend, in any storage format.
#ifndef TLM_MODEL_OPS_CPU_CPU_MATRIX_H_
#define TLM_MODEL_OPS_CPU_CPU_MATRIX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/ops/ops.h"

namespace tlm {

// The base of every Matrix that CpuOps packs.
class CpuMatrix : public Matrix {
 public:
  enum class Kind { kPacked, kQuant, kStacked };  // PackedMatrix, QuantMatrix, StackedMatrix
  virtual Kind kind() const = 0;
  // Writes row `row` as float32, k values; not for gated matrices.
  virtual void CopyRow(int64_t row, float* out) const = 0;
  // Adds the row to `to`.
  virtual void AddRow(int64_t row, float* to) const = 0;
};

// Matrices with the same inputs whose outputs are concatenated, if no other kind can hold them.
class StackedMatrix : public CpuMatrix {
 public:
  // `pieces` has at least one matrix, none of them gated.
  explicit StackedMatrix(std::vector<std::unique_ptr<CpuMatrix>> pieces)
      : pieces_(std::move(pieces)) {}

  Kind kind() const override { return Kind::kStacked; }
  int64_t n() const override { return SumOf(&Matrix::n); }
  int64_t k() const override { return pieces_.front()->k(); }
  DType dtype() const override { return DType::kI8; }
  size_t bytes() const override { return SumOf(&Matrix::bytes); }
  std::map<DType, uint64_t> BytesByType() const override {
    std::map<DType, uint64_t> bytes;
    for (const auto& piece : pieces_) {
      for (const auto& [type, of_type] : piece->BytesByType()) bytes[type] += of_type;
    }
    return bytes;
  }
  void CopyRow(int64_t row, float* out) const override { PieceOf(row).CopyRow(row, out); }
  void AddRow(int64_t row, float* to) const override { PieceOf(row).AddRow(row, to); }

  const std::vector<std::unique_ptr<CpuMatrix>>& pieces() const { return pieces_; }

 private:
  template <typename Number>
  Number SumOf(Number (Matrix::*number)() const) const {
    Number sum = 0;
    for (const auto& piece : pieces_) sum += ((*piece).*number)();
    return sum;
  }
  // Returns the piece that has `row`, and makes `row` relative to it.
  const CpuMatrix& PieceOf(int64_t& row) const {
    size_t i = 0;
    for (; row >= pieces_[i]->n(); ++i) row -= pieces_[i]->n();
    return *pieces_[i];
  }

  const std::vector<std::unique_ptr<CpuMatrix>> pieces_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_MATRIX_H_
