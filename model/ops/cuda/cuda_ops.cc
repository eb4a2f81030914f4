#include "model/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/device/nvtx.h"
#include "model/ops/cuda/kernels/add_norm.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/attention/prepare_attention.h"
#include "model/ops/cuda/kernels/embed.h"
#include "model/ops/cuda/kernels/gemm/dequantise.h"
#include "model/ops/cuda/kernels/sampling/sample.h"
#include "model/ops/cuda/weights/cuda_matrix.h"
#include "model/ops/cuda/weights/matrix_layout.h"
#include "model/tensor/blocks.h"

namespace tlm {
namespace {

const CudaMatrix& Cuda(const Matrix& matrix) { return static_cast<const CudaMatrix&>(matrix); }

EmbeddingTable TableOf(const CudaMatrix& table) {
  TLM_CHECK(!table.layout().gated());
  return {.data = table.data(), .dtype = table.dtype(), .stride = table.layout().row_stride()};
}

bool IsInBlocks(const TensorView& part) { return IsBlockQuantised(part.dtype); }

bool SameOrder(const TensorView& a, const TensorView& b) {
  if (a.input_order == nullptr || b.input_order == nullptr) return a.input_order == b.input_order;
  return std::equal(a.input_order, a.input_order + a.shape[1], b.input_order);
}
// Whether the rows of both may be in one segment.
bool Alike(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && SameOrder(a, b);
}

int64_t OutputsOf(std::span<const TensorView> parts, MatrixOrder order) {
  int64_t n = 0;
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 2 && (IsFloat(part.dtype) || IsInBlocks(part)));
    n += part.shape[order == MatrixOrder::kOutputsFirst ? 0 : 1];
  }
  return n;
}

void CheckSameShape(const Rows& a, const Rows& b) {
  TLM_CHECK(a.rows == b.rows && a.cols == b.cols);
}

size_t PanelBytes(const ModelShape& shape) {
  return shape.has_blocks ? Gemm::PanelBytes(shape.matrix_elements) : 0;
}

AddNormArgs NormArgsOf(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out) {
  TLM_CHECK(x.dtype == DType::kF32 && x.cols == out.cols);
  TLM_CHECK(delta.data == nullptr || (delta.dtype == out.dtype && delta.cols == x.cols));
  TLM_CHECK((norm.kind == Norm::Kind::kLayer) == (norm.bias != nullptr));
  return {.x = x.as<float>(),
          .x_stride = x.stride,
          .delta = delta.data,
          .delta_stride = delta.stride,
          .gain = norm.gain,
          .bias = norm.bias,
          .eps = norm.eps,
          .eps_outside_root = norm.placement == EpsPlacement::kOutsideRoot,
          .out = out.data,
          .out_stride = out.stride,
          .rows = out.rows,
          .dim = out.cols};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const CudaOptions& options,
                                                         MakeLibrary* make_library) {
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Create(options));
  std::unique_ptr<GemmLibrary> library;
  std::string without_library = "not asked for";
  if (options.library && make_library != nullptr) {
    absl::StatusOr<std::unique_ptr<GemmLibrary>> made = make_library(*device);
    without_library = std::string(made.status().message());
    if (made.ok()) library = *std::move(made);
  }
  TLM_RETURN_IF_ERROR(device->MakeCurrent());
  std::unique_ptr<CudaOps> ops(new CudaOps(std::move(device), std::move(library)));
  ops->without_library_ = std::move(without_library);
  return ops;
}

CudaOps::CudaOps(std::unique_ptr<CudaDevice> device, std::unique_ptr<GemmLibrary> library)
    : device_(std::move(device)),
      library_(std::move(library)),
      gemm_(*device_, device_->properties(), library_.get()),
      upload_(*device_) {}

CudaOps::~CudaOps() { Release(); }

absl::Status CudaOps::LoadKernels(const ModelShape& shape, DType activations) {
  const bool fp8 = shape.fp8_cache;
  const bool mma = pipeline_->attention_grid().mma;
  TLM_RETURN_IF_ERROR(device_->MakeCurrent());
  TLM_RETURN_IF_ERROR(device_->Check(LoadEmbed(), "LoadEmbed"));
  TLM_RETURN_IF_ERROR(device_->Check(LoadAddNorm(activations), "LoadAddNorm"));
  TLM_RETURN_IF_ERROR(device_->Check(LoadPrepareAttention(activations, shape.head_dim, fp8),
                                     "LoadPrepareAttention"));
  TLM_RETURN_IF_ERROR(
      device_->Check(LoadAttention(activations, shape.head_dim, fp8, mma), "LoadAttention"));
  return device_->Check(LoadSample(), "LoadSample");
}

// Checks the loaded model, once per question: the result depends only on the compared fields.
absl::Status CudaOps::CheckArithmeticOf(const ModelShape& shape, DType activations) {
  const ArithmeticQuestion question{
      .activations = activations,
      .head_dim = pipeline_->attention_grid().mma ? shape.head_dim : 0,
      .fp8_cache = shape.fp8_cache};
  if (question == asked_) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(arithmetic_, CheckArithmetic(*device_, question));
  asked_ = question;
  device_->SetInvarianceFault(arithmetic_.fault);
  // The probe includes neither the library nor its version: its results have shown the own kernels'
  // bits.
  device_->SetArithmeticProbe(arithmetic_.probe);
  return absl::OkStatus();
}

template <typename Launch>
absl::Status CudaOps::Queue(std::string_view name, const Launch& launch) {
  TLM_RETURN_IF_ERROR(device_->MakeCurrent());
  return device_->Check(launch(device_->compute_stream()), name);
}

DType CudaOps::ActivationType(DType weights) const {
  if (weights == DType::kI8) return DType::kBF16;
  return weights == DType::kBF16 || weights == DType::kF16 ? weights : DType::kF32;
}

bool CudaOps::TakesBlocks(std::span<const TensorView> parts, MatrixUse use) const {
  return std::all_of(parts.begin(), parts.end(), [&](const TensorView& part) {
    return IsInBlocks(part) && (use == MatrixUse::kPlain || Alike(part, parts.front()));
  });
}

size_t CudaOps::BlockMatrixBytes(DType type, int64_t n, int64_t k) const {
  const bool may_have_order = !FormatOf(type).has_half_scales;
  return BlockLayout(n, k, type).bytes() +
         (may_have_order ? static_cast<size_t>(k) * sizeof(int32_t) : 0);
}

absl::StatusOr<std::unique_ptr<Matrix>> CudaOps::PackMatrix(std::span<const TensorView> parts,
                                                            MatrixOrder order, MatrixUse use,
                                                            WeightFormat format,
                                                            std::span<const float> importance) {
  const std::optional<DType> type = BlockTypeOf(format);
  if (type.has_value() || std::any_of(parts.begin(), parts.end(), IsInBlocks)) {
    return PackBlocks(parts, order, use, type, importance);
  }
  const int64_t n = OutputsOf(parts, order);
  const DType stored = format == WeightFormat::kBFloat16  ? DType::kBF16
                       : format == WeightFormat::kFloat32 ? DType::kF32
                                                          : StoredType(parts);
  const int inputs_axis = order == MatrixOrder::kOutputsFirst ? 1 : 0;
  const MatrixLayout layout(n, parts.front().shape[inputs_axis], stored, use);
  TLM_ASSIGN_OR_RETURN(Buffer data, device_->Allocate(layout.bytes(), MemoryPurpose::kWeights));
  UploadTarget target{.data = data.data(),
                      .dtype = layout.dtype(),
                      .rows = n,
                      .row_stride = layout.row_stride(),
                      .output_of_row = {}};
  if (layout.gated()) {
    target.output_of_row = [&layout](int64_t row) { return layout.OutputOfRow(row); };
  }
  TLM_RETURN_IF_ERROR(upload_.Matrix(parts, order, target));
  TLM_RETURN_IF_ERROR(gemm_.Prepare(layout));
  return std::make_unique<CudaMatrix>(layout, std::move(data));
}

absl::StatusOr<std::unique_ptr<Matrix>> CudaOps::PackBlocks(std::span<const TensorView> parts,
                                                            MatrixOrder order, MatrixUse use,
                                                            std::optional<DType> type,
                                                            std::span<const float> importance) {
  const int inputs_axis = order == MatrixOrder::kOutputsFirst ? 1 : 0;
  const MatrixLayout layout(OutputsOf(parts, order), parts.front().shape[inputs_axis], DType::kBF16,
                            use);
  std::vector<CudaMatrix::Segment> segments;
  std::vector<BlockLayout> blocks;
  int64_t first_row = 0;
  while (!parts.empty()) {
    // Neighbours that are alike form one segment; the parts of a gated matrix always do.
    const bool in_blocks = IsInBlocks(parts.front());
    TLM_CHECK(in_blocks || type.has_value());
    size_t count = 1;
    while (count < parts.size() && IsInBlocks(parts[count]) == in_blocks &&
           (!in_blocks || Alike(parts[count], parts.front()))) {
      ++count;
    }
    TLM_CHECK(use == MatrixUse::kPlain || count == parts.size());
    TLM_ASSIGN_OR_RETURN(
        CudaMatrix::Segment segment,
        PackSegment(parts.first(count), order, in_blocks ? parts.front().dtype : *type,
                    in_blocks ? std::span<const float>() : importance, layout));
    segment.first_row = first_row;
    first_row += segment.layout.n();
    blocks.push_back(segment.layout);
    segments.push_back(std::move(segment));
    parts = parts.subspan(count);
  }
  TLM_RETURN_IF_ERROR(gemm_.Prepare(layout, blocks));
  return std::make_unique<CudaMatrix>(layout, std::move(segments));
}

absl::StatusOr<CudaMatrix::Segment> CudaOps::PackSegment(std::span<const TensorView> parts,
                                                         MatrixOrder order, DType type,
                                                         std::span<const float> importance,
                                                         const MatrixLayout& rows) {
  const BlockRows blocks(parts, order, type, importance);
  CudaMatrix::Segment segment{.layout = BlockLayout(blocks.n(), blocks.k(), type)};
  TLM_ASSIGN_OR_RETURN(segment.data,
                       device_->Allocate(segment.layout.bytes(), MemoryPurpose::kWeights));
  const auto output_of_row = [&rows](int64_t row) {
    return rows.gated() ? rows.OutputOfRow(row) : row;
  };
  TLM_RETURN_IF_ERROR(upload_.Blocks(blocks, segment.layout, segment.data.data(), output_of_row));
  if (const int32_t* const input_order = parts.front().input_order; input_order != nullptr) {
    const size_t bytes = static_cast<size_t>(blocks.k()) * sizeof(int32_t);
    TLM_ASSIGN_OR_RETURN(segment.input_order, device_->Allocate(bytes, MemoryPurpose::kWeights));
    TLM_RETURN_IF_ERROR(device_->CopyToDevice(segment.input_order.data(), input_order, bytes));
  }
  return segment;
}

absl::StatusOr<Buffer> CudaOps::PackVector(std::span<const TensorView> parts) {
  size_t elements = 0;
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 1 && IsFloat(part.dtype));
    elements += static_cast<size_t>(part.elements());
  }
  TLM_ASSIGN_OR_RETURN(Buffer buffer,
                       device_->Allocate(elements * sizeof(float), MemoryPurpose::kWeights));
  TLM_RETURN_IF_ERROR(upload_.Vector(parts, buffer.as<float>()));
  return buffer;
}

size_t CudaOps::ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                             DType activations) const {
  return BatchPipeline::DeviceBytes(*device_, limits, shape, activations) +
         gemm_.ReserveBytes(limits, shape.gated_outputs, activations) + PanelBytes(shape);
}

absl::Status CudaOps::Reserve(const BatchLimits& limits, const ModelShape& shape,
                              DType activations) {
  TLM_CHECK(pipeline_ == nullptr);
  TLM_RETURN_IF_ERROR(upload_.Finish());
  TLM_ASSIGN_OR_RETURN(pipeline_, BatchPipeline::Create(*device_, limits, shape, activations));
  TLM_RETURN_IF_ERROR(LoadKernels(shape, activations));
  TLM_RETURN_IF_ERROR(CheckArithmeticOf(shape, activations));
  return gemm_.Reserve(limits, shape.vocab_size, PanelBytes(shape));
}

void CudaOps::Release() {
  // Work in flight reads the memory that is about to be freed. A fault has been reported elsewhere.
  device_->Synchronize().IgnoreError();
  device_->DropGraphs().IgnoreError();
  pipeline_.reset();
  gemm_.Release();
}

std::string CudaOps::Report() const {
  const std::string products =
      library_ == nullptr
          ? fmt::format("own kernels for all products ({})", without_library_)
          : fmt::format("{} for {} of {} kinds of products of many rows", library_->version(),
                        gemm_.library_products(), gemm_.library_candidates());
  const RunCounts runs = device_->run_counts();
  const GraphFailures& failures = device_->graph_failures();
  std::string report = fmt::format(
      "{}; graphs: {} of {} recorded ahead in {:.2f} s, {} in steps; {} steps replayed, {} run "
      "directly",
      products, runs.ahead, common_steps(), absl::ToDoubleSeconds(device_->ahead_time()),
      runs.recorded, runs.replayed, runs.direct);
  if (runs.dropped > 0) report += fmt::format(", {} dropped for others", runs.dropped);
  if (failures.count > 0) {
    report += fmt::format(", {} not recorded ({})", failures.count, failures.last);
  }
  if (runs.library_failures > 0) {
    report += fmt::format("; {} failed {} times, own kernels since ({})", library_->version(),
                          runs.library_failures, library_->last_failure());
  }
  if (!arithmetic_.fault.empty()) {
    report += fmt::format("; results may depend on the rest of the batch ({})", arithmetic_.fault);
  } else if (arithmetic_.unknown) {
    report += "; an unknown tensor core: batch invariance checked by properties";
  }
  return report;
}

absl::StatusOr<DeviceBatch> CudaOps::BeginBatch(const Batch& batch) {
  TLM_CHECK(pipeline_ != nullptr);
  return pipeline_->Begin(batch);
}

int64_t CudaOps::common_steps() const {
  return pipeline_ == nullptr ? 0 : pipeline_->common_steps();
}

DeviceBatch CudaOps::CommonStep(int64_t index) { return pipeline_->CommonStep(index); }

absl::Status CudaOps::Sample(const Rows& logits) { return pipeline_->Sample(logits); }

absl::Status CudaOps::EndBatch(const Rows& logits) { return pipeline_->End(logits); }

absl::StatusOr<BatchResult> CudaOps::AwaitBatch() { return pipeline_->Await(); }

absl::Status CudaOps::Embed(const Matrix& table, const Matrix* positions_table,
                            const DeviceBatch& batch, const Rows& out) {
  TLM_CHECK(out.dtype == DType::kF32 && out.rows == batch.layout.tokens);
  TLM_CHECK(table.k() == out.cols);
  TLM_CHECK(positions_table == nullptr || positions_table->k() == out.cols);
  const NvtxRange range("embed");
  const CudaMatrix& tokens = Cuda(table);
  const int32_t* const sampled = pipeline_->sampled_before();
  const int32_t* const positions = batch.layout.positions;
  // Float tables first; rows of tables in blocks are then added. A sum of two rounds once, in
  // either order.
  const bool positions_in_blocks = positions_table != nullptr && Cuda(*positions_table).in_blocks();
  EmbedArgs args{.tokens_table = {},
                 .positions_table = {},
                 .token_ids = batch.token_ids,
                 .sampled = sampled,
                 .positions = positions,
                 .tokens = batch.layout.tokens,
                 .dim = out.cols,
                 .out = out.as<float>(),
                 .out_stride = out.stride};
  if (!tokens.in_blocks()) args.tokens_table = TableOf(tokens);
  if (positions_table != nullptr && !positions_in_blocks) {
    args.positions_table = TableOf(Cuda(*positions_table));
  }
  bool adds = args.tokens_table.data != nullptr || args.positions_table.data != nullptr;
  if (adds) {
    TLM_RETURN_IF_ERROR(
        Queue("embed", [&](cudaStream_t stream) { return LaunchEmbed(args, stream); }));
  }
  if (tokens.in_blocks()) {
    TLM_RETURN_IF_ERROR(EmbedBlocks(tokens, batch.token_ids, sampled, adds, out));
    adds = true;
  }
  return positions_in_blocks ? EmbedBlocks(Cuda(*positions_table), positions, nullptr, adds, out)
                             : absl::OkStatus();
}

absl::Status CudaOps::EmbedBlocks(const CudaMatrix& table, const int32_t* rows,
                                  const int32_t* others, bool adds, const Rows& out) {
  TLM_CHECK(table.segments().size() == 1 && !table.layout().gated());
  const EmbedBlocksArgs args{.table = ArgsOf(table.segments().front()),
                             .rows = rows,
                             .others = others,
                             .adds = adds,
                             .tokens = out.rows,
                             .out = out.as<float>(),
                             .out_stride = out.stride};
  return Queue("embed blocks",
               [&](cudaStream_t stream) { return LaunchEmbedBlocks(args, stream); });
}

absl::Status CudaOps::AddNorm(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out) {
  CheckSameShape(x, out);
  TLM_CHECK(delta.data == nullptr || delta.rows == x.rows);
  const NvtxRange range("add norm");
  const AddNormArgs args = NormArgsOf(x, delta, norm, out);
  return Queue("add norm",
               [&](cudaStream_t stream) { return LaunchAddNorm(args, out.dtype, stream); });
}

absl::Status CudaOps::GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                                    const Norm& norm, const Rows& out) {
  const NvtxRange range("gather add norm");
  AddNormArgs args = NormArgsOf(x, delta, norm, out);
  args.gather = rows;
  return Queue("gather add norm",
               [&](cudaStream_t stream) { return LaunchAddNorm(args, out.dtype, stream); });
}

absl::Status CudaOps::MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                             const Rows& out) {
  TLM_CHECK(x.cols == w.k() && out.cols == w.n() && out.rows == x.rows);
  TLM_CHECK(out.dtype == x.dtype || out.dtype == DType::kF32);
  const NvtxRange range("matmul");
  return gemm_.Run(x, Cuda(w), epilogue, out);
}

absl::Status CudaOps::MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                                  const Rows& out) {
  TLM_CHECK(x.cols == w.k() && 2 * out.cols == w.n() && out.rows == x.rows);
  TLM_CHECK(out.dtype == x.dtype && Cuda(w).layout().gated());
  const NvtxRange range("gated matmul");
  return gemm_.RunGated(x, Cuda(w), bias, out);
}

absl::Status CudaOps::PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                       const TokenLayout& layout, const KvLayer& cache) {
  const int64_t heads = qkv.cols / cache.head_dim - 2 * cache.num_kv_heads;
  TLM_CHECK(qkv.rows == layout.tokens && cache.head_dim <= kMaxHeadDim);
  TLM_CHECK(layout.max_blocks == 1);
  TLM_CHECK(heads > 0 && (heads + 2 * cache.num_kv_heads) * cache.head_dim == qkv.cols);
  TLM_CHECK(cache.dtype == qkv.dtype || cache.dtype == DType::kF8E4M3);
  TLM_CHECK((transform.q_gain == nullptr) == (transform.k_gain == nullptr));
  TLM_CHECK(transform.rope_table == nullptr || cache.head_dim % 2 == 0);
  const NvtxRange range("prepare attention");
  const PrepareAttentionArgs args{
      .qkv = qkv.data,
      .qkv_stride = qkv.stride,
      .num_heads = static_cast<int32_t>(heads),
      .num_kv_heads = static_cast<int32_t>(cache.num_kv_heads),
      .head_dim = static_cast<int32_t>(cache.head_dim),
      .q_gain = transform.q_gain,
      .k_gain = transform.k_gain,
      .eps = transform.eps,
      .eps_outside_root = transform.placement == EpsPlacement::kOutsideRoot,
      .rope_table = transform.rope_table,
      .interleaved = transform.pairing == RopePairing::kInterleaved,
      .positions = layout.positions,
      .table_of = layout.sequence_of,
      .block_tables = layout.block_tables,
      .cache = cache.data,
      .layers = static_cast<int32_t>(cache.layers),
      .tokens = layout.tokens,
      .fp8 = cache.dtype == DType::kF8E4M3};
  return Queue("prepare attention", [&](cudaStream_t stream) {
    return LaunchPrepareAttention(args, qkv.dtype, stream);
  });
}

absl::Status CudaOps::Attention(const Rows& q, float scale, int64_t window,
                                const TokenLayout& layout, const KvLayer& cache, const Rows& out) {
  CheckSameShape(q, out);
  const ModelShape& shape = pipeline_->shape();
  TLM_CHECK(q.rows == layout.tokens && out.dtype == q.dtype);
  TLM_CHECK(cache.dtype == q.dtype || cache.dtype == DType::kF8E4M3);
  TLM_CHECK(cache.num_kv_heads == shape.num_kv_heads && cache.head_dim == shape.head_dim);
  TLM_CHECK(q.cols == shape.num_heads * shape.head_dim);
  TLM_CHECK((cache.dtype == DType::kF8E4M3) == shape.fp8_cache);
  const NvtxRange range("attention");
  const AttentionScratch scratch = pipeline_->attention_scratch();
  const AttentionArgs args{.q = q.data,
                           .q_stride = q.stride,
                           .out = out.data,
                           .out_stride = out.stride,
                           .cache = cache.data,
                           .block_tables = layout.block_tables,
                           .layers = static_cast<int32_t>(cache.layers),
                           .num_kv_heads = static_cast<int32_t>(shape.num_kv_heads),
                           .group = static_cast<int32_t>(shape.num_heads / shape.num_kv_heads),
                           .head_dim = static_cast<int32_t>(shape.head_dim),
                           .window = window,
                           .scale = scale,
                           .blocks = static_cast<int32_t>(pipeline_->attention_grid().blocks),
                           .work = pipeline_->attention_work(),
                           .tickets = scratch.tickets,
                           .partial_stats = scratch.partial_stats,
                           .partial_values = scratch.partial_values,
                           .fp8 = cache.dtype == DType::kF8E4M3};
  return Queue("attention", [&](cudaStream_t stream) {
    return LaunchAttention(args, q.dtype, pipeline_->attention_grid().mma, stream);
  });
}

}  // namespace tlm
