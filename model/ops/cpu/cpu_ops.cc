#include "model/ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "model/ops/cpu/arithmetic_probe.h"
#include "model/ops/cpu/packed_matrix.h"
#include "model/ops/cpu/processors.h"
#include "model/tensor/dtype.h"
#include "model/tensor/float_elements.h"

namespace tlm {
namespace {

constexpr int kMaxThreads = 1024;

absl::StatusOr<Isa> ChooseIsa(std::string_view name) {
  const std::vector<Isa> available = AvailableIsas();
  if (name == kBestIsa) return available.back();
  const std::optional<Isa> isa = IsaFromName(name);
  if (isa.has_value() && std::find(available.begin(), available.end(), *isa) != available.end()) {
    return *isa;
  }
  std::string names;
  for (const Isa one : available) names += fmt::format(", {}", IsaName(one));
  return InvalidArgument("isa is '{}', this machine takes {}{}", name, kBestIsa, names);
}

CpuMatrix::Kind KindOf(const Matrix& matrix) {
  return static_cast<const CpuMatrix&>(matrix).kind();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuOps>> CpuOps::Create(const CpuOptions& options) {
  const int threads = options.threads == 0 ? DefaultThreads() : options.threads;
  if (threads < 1 || threads > kMaxThreads) {
    return InvalidArgument("threads is {}, the range is 1 to {}", threads, kMaxThreads);
  }
  TLM_ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options.isa));
  std::unique_ptr<CpuOps> ops = CreateWith(threads, isa, KernelsFor(isa), options.pin_threads);
  if (HasBf16Products(isa)) {
    TLM_ASSIGN_OR_RETURN(std::string probe, ArithmeticProbe(ops->kernels_, ops->device_));
    ops->device_.set_arithmetic_probe(std::move(probe));
  }
  return ops;
}

absl::StatusOr<std::unique_ptr<CpuOps>> CpuOps::Create(int threads, Isa isa) {
  if (threads == 0) return InvalidArgument("threads is 0, the range is 1 to {}", kMaxThreads);
  return Create({.threads = threads, .isa = std::string(IsaName(isa)), .pin_threads = false});
}

absl::StatusOr<std::unique_ptr<CpuOps>> CpuOps::Create(int threads) {
  return Create({.threads = threads, .pin_threads = false});
}

std::unique_ptr<CpuOps> CpuOps::CreateWith(int threads, Isa isa, const Kernels& kernels,
                                           bool pin_threads) {
  return std::unique_ptr<CpuOps>(new CpuOps(threads, isa, kernels, pin_threads));
}

CpuOps::CpuOps(int threads, Isa isa, const Kernels& kernels, bool pin_threads)
    : isa_(isa),
      kernels_(kernels),
      device_(fmt::format("{} ({} thread{}, {})", ProcessorName(), threads, threads == 1 ? "" : "s",
                          IsaName(isa)),
              IsaName(isa)),
      pool_(threads, pin_threads),
      rows_(kernels, pool_),
      matmul_(kernels, device_, pool_),
      quant_matmul_(kernels, device_, pool_),
      attention_(kernels, pool_),
      samplers_(static_cast<size_t>(threads)) {}

DType CpuOps::ActivationType(DType weights) const {
  return weights == DType::kBF16 && HasBf16Products(isa_) ? DType::kBF16 : DType::kF32;
}

DType CpuOps::DefaultKvType(DType weights) const { return DefaultKvDType(weights); }

bool CpuOps::TakesKvType(DType, DType kv) const {
  return kv == DType::kF32 || kv == DType::kF16 || kv == DType::kBF16 || kv == DType::kF8E4M3;
}

bool CpuOps::TakesBlocks(std::span<const TensorView> parts, MatrixUse use) const {
  if (use == MatrixUse::kGated) return QuantMatrix::Fit(parts, use);
  return std::all_of(parts.begin(), parts.end(), [](const TensorView& part) {
    return IsIntegerBlocks(part.dtype) || !IsBlockQuantised(part.dtype);
  });
}

absl::StatusOr<std::unique_ptr<Matrix>> CpuOps::PackMatrix(std::span<const TensorView> parts,
                                                           MatrixOrder order, MatrixUse use,
                                                           WeightFormat format,
                                                           std::span<const float> importance) {
  const auto is_in_blocks = [](const TensorView& part) { return IsBlockQuantised(part.dtype); };
  if (std::none_of(parts.begin(), parts.end(), is_in_blocks)) {
    return PackFloats(parts, order, use, format, importance);
  }
  std::vector<std::unique_ptr<CpuMatrix>> pieces;
  while (!parts.empty()) {
    size_t count = 1;
    while (count < parts.size() && QuantMatrix::Fit(parts.first(count + 1), use)) ++count;
    std::unique_ptr<CpuMatrix> piece;
    if (QuantMatrix::Fit(parts.first(count), use)) {
      TLM_ASSIGN_OR_RETURN(piece, QuantMatrix::Pack(parts.first(count), use, device_, pool_));
    } else {
      TLM_ASSIGN_OR_RETURN(piece, PackFloats(parts.first(count), order, use, format, importance));
    }
    pieces.push_back(std::move(piece));
    parts = parts.subspan(count);
  }
  if (pieces.size() == 1) return std::move(pieces.front());
  TLM_CHECK(use == MatrixUse::kPlain);
  return std::make_unique<StackedMatrix>(std::move(pieces));
}

absl::StatusOr<std::unique_ptr<CpuMatrix>> CpuOps::PackFloats(std::span<const TensorView> parts,
                                                              MatrixOrder order, MatrixUse use,
                                                              WeightFormat format,
                                                              std::span<const float> importance) {
  if (const std::optional<DType> type = BlockTypeOf(format)) {
    return QuantMatrix::Quantise(MatrixParts(parts, order, use), use, *type,
                                 importance.empty() ? nullptr : importance.data(), device_, pool_);
  }
  return PackedMatrix::Pack(parts, order, use, device_, pool_);
}

absl::StatusOr<Buffer> CpuOps::PackVector(std::span<const TensorView> parts) {
  int64_t elements = 0;
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 1 && IsFloat(part.dtype));
    elements += part.elements();
  }
  TLM_ASSIGN_OR_RETURN(
      Buffer buffer,
      device_.Allocate(static_cast<size_t>(elements) * sizeof(float), MemoryPurpose::kWeights));
  float* to = buffer.as<float>();
  for (const TensorView& part : parts) {
    for (int64_t i = 0; i < part.elements(); ++i, ++to) {
      *to = FloatAt(part.data, part.dtype, i);
      if (!std::isfinite(*to)) {
        return InvalidArgument("element {} of a vector is {}, which is not finite", i, *to);
      }
    }
  }
  return buffer;
}

std::string CpuOps::Report() const {
  std::string report =
      fmt::format("threads {}pinned, {}", pool_.pinned() ? "" : "not ", device_.LargePages());
#if defined(__x86_64__)
  // AmxBf16Kernels needs a processor with the instructions of that table.
  if (isa_ == Isa::kAmxBf16) {
    const bool by_vectors = &kernels_ == &AmxBf16Kernels(true);
    report += by_vectors ? ", few rows by vectors" : ", few rows by tiles";
  }
#endif
  return report;
}

// Returns an odd number of cache lines: rows a power of two apart would share a few sets of the
// caches, and a tile reads or writes many rows at once.
int64_t CpuOps::RowStride(int64_t cols, DType dtype) const {
  constexpr int64_t kLineBytes = 64;
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(dtype));
  return (DivideUp(cols * element_bytes, kLineBytes) | 1) * kLineBytes / element_bytes;
}

absl::StatusOr<DeviceBatch> CpuOps::BeginBatch(const Batch& batch) {
  pool_.AdoptCaller();
  batch_ = &batch;
  result_ = {};
  return DeviceBatch{.layout = {.tokens = batch.tokens(),
                                .max_blocks = batch.max_blocks,
                                .positions = batch.positions.data(),
                                .sequence_of = batch.sequence_of.data(),
                                .block_tables = batch.block_tables.data()},
                     .token_ids = batch.token_ids.data(),
                     .rows = batch.rows(),
                     .logits_rows = batch.logits_rows.data()};
}

absl::Status CpuOps::Sample(const Rows& logits) {
  const std::vector<SamplingJob>& jobs = batch_->jobs;
  const auto vocab_size = static_cast<size_t>(logits.cols);
  result_.tokens.assign(jobs.size(), SampledToken());
  // Each thread has a sampler.
  pool_.ParallelFor(static_cast<int64_t>(jobs.size()), [&](int64_t task, int worker) {
    const auto i = static_cast<size_t>(task);
    const std::span<const float> row(logits.as<float>() + jobs[i].row * logits.stride, vocab_size);
    result_.tokens[i] = samplers_[static_cast<size_t>(worker)].Sample(row, jobs[i]);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::EndBatch(const Rows& logits) {
  const std::vector<int32_t>& wanted = batch_->host_rows;
  if (wanted.empty()) return absl::OkStatus();
  // Sampling is done, so rows without a request may be overwritten.
  float* const data = logits.as<float>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float* const from = data + wanted[i] * logits.stride;
    float* const to = data + static_cast<int64_t>(i) * logits.cols;
    if (to != from) std::memmove(to, from, static_cast<size_t>(logits.cols) * sizeof(float));
  }
  result_.logits = {data, wanted.size() * static_cast<size_t>(logits.cols)};
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> CpuOps::AwaitBatch() { return std::move(result_); }

absl::Status CpuOps::Embed(const Matrix& table, const Matrix* positions_table,
                           const DeviceBatch& batch, const Rows& out) {
  rows_.Embed(table, positions_table, batch, out);
  return absl::OkStatus();
}

absl::Status CpuOps::AddNorm(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out) {
  rows_.AddNorm(x, delta, norm, out);
  return absl::OkStatus();
}

absl::Status CpuOps::GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                                   const Norm& norm, const Rows& out) {
  rows_.GatherAddNorm(x, delta, rows, norm, out);
  return absl::OkStatus();
}

absl::Status CpuOps::MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                            const Rows& out) {
  switch (KindOf(w)) {
    case CpuMatrix::Kind::kPacked:
      matmul_.MatMul(x, static_cast<const PackedMatrix&>(w), epilogue, out);
      break;
    case CpuMatrix::Kind::kQuant:
      quant_matmul_.MatMul(x, static_cast<const QuantMatrix&>(w), epilogue, out);
      break;
    case CpuMatrix::Kind::kStacked:
      return MatMulPieces(x, static_cast<const StackedMatrix&>(w), epilogue, out);
  }
  return absl::OkStatus();
}

absl::Status CpuOps::MatMulPieces(const Rows& x, const StackedMatrix& w, Epilogue epilogue,
                                  const Rows& out) {
  int64_t first = 0;
  for (const auto& piece : w.pieces()) {
    TLM_RETURN_IF_ERROR(MatMul(x, *piece, epilogue, out.Columns(first, piece->n())));
    first += piece->n();
    if (epilogue.bias != nullptr) epilogue.bias += piece->n();
  }
  return absl::OkStatus();
}

absl::Status CpuOps::MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                                 const Rows& out) {
  if (KindOf(w) == CpuMatrix::Kind::kQuant) {
    quant_matmul_.MatMulGated(x, static_cast<const QuantMatrix&>(w), bias, out);
  } else {
    matmul_.MatMulGated(x, static_cast<const PackedMatrix&>(w), bias, out);
  }
  return absl::OkStatus();
}

absl::Status CpuOps::PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                      const TokenLayout& layout, const KvLayer& cache) {
  rows_.PrepareAttention(qkv, transform, layout, cache);
  return absl::OkStatus();
}

absl::Status CpuOps::Attention(const Rows& q, float scale, int64_t window,
                               const TokenLayout& layout, const KvLayer& cache, const Rows& out) {
  attention_.Run(q, scale, window, layout, cache, out);
  return absl::OkStatus();
}

}  // namespace tlm
