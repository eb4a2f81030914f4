#include "tests/gpu/canon/product_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "model/ops/cuda/kernels/gemm/gemm_probe.h"
#include "tests/support/simt/mma_model.h"

namespace tlm {
namespace {

constexpr int kProbeRows = 2;  // one whose sums cancel, one whose sums do not
constexpr int64_t kModelOutputs = 48;

// Memory and kernels of one product.
class Product {
 public:
  Product(CudaDevice& device, GemmLibrary* library, const ProductShape& shape, int64_t most_rows)
      : device_(device),
        shape_(shape),
        most_rows_(most_rows),
        out_cols_(shape.gated ? shape.n / 2 : shape.n),
        out_dtype_(shape.logits ? DType::kF32 : shape.dtype),
        gemm_(device, device.properties(), library) {}

  absl::Status Prepare();
  absl::StatusOr<ProductCheck> Check(std::span<const int64_t> row_counts);

 private:
  enum class Mates { kRandom, kNan };
  using Outputs = std::array<std::vector<char>, kProbeRows>;

  size_t x_row_bytes() const { return static_cast<size_t>(shape_.k) * DTypeBytes(shape_.dtype); }
  size_t out_row_bytes() const { return static_cast<size_t>(out_cols_) * DTypeBytes(out_dtype_); }
  absl::Status Fill(void* data, int64_t rows, uint32_t seed, int cancelling_rows, float half);
  absl::Status Poison(const Buffer& buffer);
  absl::Status Run(const Buffer& x, int64_t rows);
  absl::StatusOr<std::vector<char>> OutputRow(int64_t row);
  // The two probe rows at places `at` and the one after it (from the start again behind the last)
  // of a batch; with one row the batch has the first alone.
  absl::StatusOr<Outputs> RunAmong(Mates mates, int64_t rows, int64_t at);
  absl::Status CompareRun(const Outputs& alone, Mates mates, int64_t rows, int64_t at,
                          ProductCheck& check);
  absl::Status CompareModel(const Outputs& alone, ProductCheck& check);

  CudaDevice& device_;
  const ProductShape shape_;
  const int64_t most_rows_;
  const int64_t out_cols_;
  const DType out_dtype_;
  Gemm gemm_;
  std::unique_ptr<CudaMatrix> w_;
  Buffer probes_;     // [kProbeRows, k]
  Buffer random_;     // [most_rows, k]
  Buffer nan_;        // [most_rows, k]
  Buffer mates_row_;  // [2 of each, k]: what stood where probes were put
  Buffer out_;        // [most_rows, out_cols]
};

absl::Status Product::Fill(void* data, int64_t rows, uint32_t seed, int cancelling_rows,
                           float half) {
  return device_.Check(LaunchProbeFill({.data = data,
                                        .rows = rows,
                                        .cols = shape_.k,
                                        .stride = shape_.k,
                                        .seed = seed,
                                        .cancelling_rows = cancelling_rows,
                                        .second_half = half},
                                       shape_.dtype, device_.compute_stream()),
                       "LaunchProbeFill");
}

absl::Status Product::Poison(const Buffer& buffer) {
  return device_.Check(
      cudaMemsetAsync(buffer.data(), 0xff, buffer.bytes(), device_.compute_stream()),
      "cudaMemsetAsync");
}

absl::Status Product::Prepare() {
  const MatrixLayout layout(shape_.n, shape_.k, shape_.dtype,
                            shape_.gated ? MatrixUse::kGated : MatrixUse::kPlain);
  TLM_RETURN_IF_ERROR(gemm_.Prepare(layout));
  TLM_RETURN_IF_ERROR(
      gemm_.Reserve({.max_tokens = most_rows_, .max_sequences = 1, .max_logits_rows = most_rows_},
                    shape_.logits ? shape_.n : 0));
  const auto allocate = [this](size_t bytes, Buffer& buffer) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes, MemoryPurpose::kRuntime));
    return absl::OkStatus();
  };
  Buffer w;
  const auto rows = static_cast<size_t>(most_rows_);
  TLM_RETURN_IF_ERROR(allocate(layout.bytes(), w));
  TLM_RETURN_IF_ERROR(allocate(kProbeRows * x_row_bytes(), probes_));
  TLM_RETURN_IF_ERROR(allocate(rows * x_row_bytes(), random_));
  TLM_RETURN_IF_ERROR(allocate(rows * x_row_bytes(), nan_));
  TLM_RETURN_IF_ERROR(allocate(kProbeRows * x_row_bytes(), mates_row_));
  TLM_RETURN_IF_ERROR(allocate(rows * out_row_bytes(), out_));
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  TLM_RETURN_IF_ERROR(Fill(w.data(), shape_.n, 1, 1, -1.0f));
  TLM_RETURN_IF_ERROR(Fill(probes_.data(), kProbeRows, 2, kProbeRows, 1.0f));
  TLM_RETURN_IF_ERROR(Fill(random_.data(), most_rows_, 3, 3, 1.0f));
  TLM_RETURN_IF_ERROR(Poison(nan_));
  w_ = std::make_unique<CudaMatrix>(layout, std::move(w));
  // Products fetch weights before earlier kernels have ended.
  return device_.Synchronize();
}

absl::Status Product::Run(const Buffer& x, int64_t rows) {
  TLM_RETURN_IF_ERROR(Poison(out_));
  const Rows in{x.data(), rows, shape_.k, shape_.k, shape_.dtype};
  const Rows out{out_.data(), rows, out_cols_, out_cols_, out_dtype_};
  return shape_.gated ? gemm_.RunGated(in, *w_, nullptr, out) : gemm_.Run(in, *w_, {}, out);
}

absl::StatusOr<std::vector<char>> Product::OutputRow(int64_t row) {
  std::vector<char> values(out_row_bytes());
  TLM_RETURN_IF_ERROR(device_.CopyToHost(
      values.data(), out_.as<char>() + static_cast<size_t>(row) * out_row_bytes(), values.size()));
  return values;
}

absl::StatusOr<Product::Outputs> Product::RunAmong(Mates mates, int64_t rows, int64_t at) {
  const Buffer& x = mates == Mates::kRandom ? random_ : nan_;
  const std::array<int64_t, kProbeRows> places = {at, (at + 1) % rows};
  const size_t bytes = x_row_bytes();
  const int used = rows == 1 ? 1 : kProbeRows;
  for (int i = 0; i < used; ++i) {
    char* const place = x.as<char>() + static_cast<size_t>(places[i]) * bytes;
    TLM_RETURN_IF_ERROR(device_.CopyOnDevice(mates_row_.as<char>() + i * bytes, place, bytes));
    TLM_RETURN_IF_ERROR(device_.CopyOnDevice(place, probes_.as<char>() + i * bytes, bytes));
  }
  TLM_RETURN_IF_ERROR(Run(x, rows));
  Outputs outputs;
  for (int i = 0; i < used; ++i) {
    char* const place = x.as<char>() + static_cast<size_t>(places[i]) * bytes;
    TLM_ASSIGN_OR_RETURN(outputs[i], OutputRow(places[i]));
    TLM_RETURN_IF_ERROR(device_.CopyOnDevice(place, mates_row_.as<char>() + i * bytes, bytes));
  }
  return outputs;
}

absl::Status Product::CompareRun(const Outputs& alone, Mates mates, int64_t rows, int64_t at,
                                 ProductCheck& check) {
  TLM_ASSIGN_OR_RETURN(const Outputs outputs, RunAmong(mates, rows, at));
  const auto element = static_cast<int64_t>(DTypeBytes(out_dtype_));
  int64_t differences = 0;
  for (int i = 0; i < (rows == 1 ? 1 : kProbeRows); ++i) {
    for (int64_t j = 0; j < out_cols_; ++j) {
      if (std::memcmp(&outputs[i][j * element], &alone[i][j * element], element) == 0) continue;
      if (differences++ == 0 && check.first.empty()) {
        check.first =
            fmt::format("{} rows, row {} among {}, output {}", rows, i == 0 ? at : (at + 1) % rows,
                        mates == Mates::kRandom ? "others" : "NaNs", j);
      }
    }
  }
  ++check.runs;
  check.different_runs += differences > 0 ? 1 : 0;
  check.different_elements += differences;
  return absl::OkStatus();
}

// The chain over k of a sample of outputs, rounded as the product is.
absl::Status Product::CompareModel(const Outputs& alone, ProductCheck& check) {
  if (shape_.gated) return absl::OkStatus();
  const simt::MmaUnit unit =
      device_.properties().compute_major >= 9 ? simt::kHopperMma : simt::kAmpereMma;
  const bool bf16 = shape_.dtype == DType::kBF16;
  const auto input = bf16 ? simt::MmaInput::kBf16 : simt::MmaInput::kF16;
  // What is left of k by 16 is zeros.
  const auto k = static_cast<size_t>((shape_.k + 15) / 16 * 16);
  std::vector<uint16_t> x(k), w(k);
  const auto stride = static_cast<size_t>(w_->layout().row_stride()) * sizeof(uint16_t);
  for (int i = 0; i < kProbeRows; ++i) {
    TLM_RETURN_IF_ERROR(
        device_.CopyToHost(x.data(), probes_.as<char>() + i * x_row_bytes(), x_row_bytes()));
    for (int64_t s = 0; s < kModelOutputs; ++s) {
      const int64_t j = s * (shape_.n - 1) / (kModelOutputs - 1);
      TLM_RETURN_IF_ERROR(device_.CopyToHost(
          w.data(), static_cast<const char*>(w_->data()) + static_cast<size_t>(j) * stride,
          x_row_bytes()));
      const float sum = simt::MmaDot(unit, input, w.data(), x.data(), static_cast<int>(k), 0.0f);
      const uint16_t rounded = bf16 ? FloatToBf16(sum) : FloatToF16(sum);
      const bool same = shape_.logits
                            ? std::memcmp(&alone[i][j * 4], &sum, sizeof(sum)) == 0
                            : std::memcmp(&alone[i][j * 2], &rounded, sizeof(rounded)) == 0;
      ++check.model_elements;
      check.model_differences += same ? 0 : 1;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ProductCheck> Product::Check(std::span<const int64_t> row_counts) {
  ProductCheck check;
  check.library = gemm_.library_products() > 0;
  Outputs alone;
  for (int i = 0; i < kProbeRows; ++i) {
    const Buffer& x = probes_;
    const Rows in{x.as<char>() + i * x_row_bytes(), 1, shape_.k, shape_.k, shape_.dtype};
    const Rows out{out_.data(), 1, out_cols_, out_cols_, out_dtype_};
    TLM_RETURN_IF_ERROR(shape_.gated ? gemm_.RunGated(in, *w_, nullptr, out)
                                     : gemm_.Run(in, *w_, {}, out));
    TLM_ASSIGN_OR_RETURN(alone[i], OutputRow(0));
  }
  TLM_RETURN_IF_ERROR(CompareModel(alone, check));
  for (const int64_t rows : row_counts) {
    for (const int64_t at : {int64_t{0}, rows / 2, rows - 1}) {
      for (const Mates mates : {Mates::kRandom, Mates::kNan}) {
        TLM_RETURN_IF_ERROR(CompareRun(alone, mates, rows, at, check));
      }
    }
  }
  return check;
}

}  // namespace

absl::StatusOr<ProductCheck> CheckProduct(CudaDevice& device, GemmLibrary* library,
                                          const ProductShape& shape,
                                          std::span<const int64_t> row_counts) {
  TLM_CHECK(!row_counts.empty());
  Product product(device, library, shape, row_counts.back());
  TLM_RETURN_IF_ERROR(product.Prepare());
  return product.Check(row_counts);
}

}  // namespace tlm
