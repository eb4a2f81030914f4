#include "model/ops/cpu/cpu_ops.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cpu/convert.h"
#include "model/ops/cpu/packed_matrix.h"

namespace tlm {
namespace {

// Less work than this is not worth handing to another thread: some microseconds.
constexpr int64_t kMinTaskElements = 16384;
constexpr int64_t kMinTaskProducts = 131072;
constexpr int kMaxThreads = 1024;

const Kernels& KernelsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return Avx2Kernels();
    case Isa::kAvx512:
      return Avx512Kernels();
#endif
    default:
      return PortableKernels();
  }
}

void (*KernelOf(Activation activation, const Kernels& kernels))(float*, int64_t) {
  switch (activation) {
    case Activation::kSilu:
      return kernels.silu;
    case Activation::kRelu:
      return kernels.relu;
    case Activation::kGeluTanh:
      return kernels.gelu_tanh;
    case Activation::kGelu:
      return kernels.gelu;
  }
  TLM_CHECK(false);
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Tokens of one sequence at consecutive positions.
struct TokenRun {
  int64_t begin = 0;
  int64_t tokens = 0;
};

std::vector<TokenRun> RunsOf(const TokenLayout& layout, int64_t max_tokens) {
  std::vector<TokenRun> runs;
  for (int64_t token = 0; token < layout.tokens; ++token) {
    const bool goes_on = !runs.empty() && runs.back().tokens < max_tokens &&
                         layout.sequence_of[token] == layout.sequence_of[token - 1] &&
                         layout.positions[token] == layout.positions[token - 1] + 1;
    if (goes_on) {
      ++runs.back().tokens;
    } else {
      runs.push_back({.begin = token, .tokens = 1});
    }
  }
  return runs;
}

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

const PackedMatrix& Packed(const Matrix& matrix) {
  return static_cast<const PackedMatrix&>(matrix);
}

void RotateHead(const float* angles, int64_t head_dim, RopePairing pairing, float* head) {
  const int64_t half = head_dim / 2;
  const bool interleaved = pairing == RopePairing::kInterleaved;
  for (int64_t i = 0; i < half; ++i) {
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const float cosine = angles[2 * i];
    const float sine = angles[2 * i + 1];
    const float rotated_first = first * cosine - second * sine;
    const float rotated_second = first * sine + second * cosine;
    first = rotated_first;
    second = rotated_second;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuOps>> CpuOps::Create(int threads, Isa isa) {
  if (threads < 1 || threads > kMaxThreads) {
    return InvalidArgument("threads is {}, the range is 1 to {}", threads, kMaxThreads);
  }
  const std::vector<Isa> available = AvailableIsas();
  if (std::find(available.begin(), available.end(), isa) == available.end()) {
    return InvalidArgument("this machine cannot run instruction set {}", IsaName(isa));
  }
  return std::unique_ptr<CpuOps>(new CpuOps(threads, isa));
}

absl::StatusOr<std::unique_ptr<CpuOps>> CpuOps::Create(int threads) {
  return Create(threads == 0 ? UsableProcessors() : threads, AvailableIsas().back());
}

CpuOps::CpuOps(int threads, Isa isa)
    : isa_(isa),
      kernels_(KernelsFor(isa)),
      device_(fmt::format("{} ({} thread{}, {})", ProcessorName(), threads, threads == 1 ? "" : "s",
                          IsaName(isa)),
              IsaName(isa)),
      pool_(threads),
      samplers_(static_cast<size_t>(threads)) {}

void CpuOps::ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body) {
  const int64_t rows_per_task = std::max<int64_t>(1, kMinTaskElements / work_per_row);
  const int64_t tasks = DivideUp(rows, rows_per_task);
  pool_.ParallelFor(tasks, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) body(row);
  });
}

bool CpuOps::TakesKvType(DType, DType kv) const {
  return kv == DType::kF32 || kv == DType::kF16 || kv == DType::kBF16;
}

absl::StatusOr<std::unique_ptr<Matrix>> CpuOps::PackMatrix(std::span<const TensorView> parts,
                                                           MatrixOrder order, MatrixUse use) {
  return PackedMatrix::Pack(parts, order, device_, pool_);
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
    for (int64_t i = 0; i < part.elements(); ++i) *to++ = ReadElement(part.data, part.dtype, i);
  }
  return buffer;
}

size_t CpuOps::ReserveBytes(const BatchLimits& limits, const ModelShape& shape, DType) const {
  return static_cast<size_t>(limits.max_tokens * shape.gated_outputs) * sizeof(float);
}

absl::Status CpuOps::Reserve(const BatchLimits& limits, const ModelShape& shape,
                             DType activations) {
  TLM_ASSIGN_OR_RETURN(gate_up_memory_, device_.Allocate(ReserveBytes(limits, shape, activations),
                                                         MemoryPurpose::kActivations));
  gate_up_ = {gate_up_memory_.data(), limits.max_tokens, shape.gated_outputs, shape.gated_outputs};
  return absl::OkStatus();
}

void CpuOps::Release() {
  gate_up_memory_ = Buffer();
  gate_up_ = Rows();
}

absl::StatusOr<DeviceBatch> CpuOps::BeginBatch(const Batch& batch) {
  batch_ = &batch;
  result_ = {};
  return DeviceBatch{.layout = {.tokens = batch.tokens(),
                                .sequences = batch.sequences,
                                .max_blocks = batch.max_blocks,
                                .positions = batch.positions.data(),
                                .sequence_of = batch.sequence_of.data(),
                                .block_tables = batch.block_tables.data()},
                     .token_ids = batch.token_ids.data(),
                     .rows = batch.rows(),
                     .logits_rows = batch.logits_rows.data()};
}

absl::Status CpuOps::Sample(const Rows& logits) {
  const std::vector<Draw>& draws = batch_->draws;
  const auto vocab_size = static_cast<size_t>(logits.cols);
  result_.tokens.assign(draws.size(), SampledToken());
  // The sampler of a task is its alone.
  const size_t tasks = std::min(draws.size(), samplers_.size());
  pool_.ParallelFor(static_cast<int64_t>(tasks), [&](int64_t task) {
    for (size_t i = static_cast<size_t>(task); i < draws.size(); i += tasks) {
      const Draw& draw = draws[i];
      const std::span<const float> row(logits.as<float>() + draw.row * logits.stride, vocab_size);
      result_.tokens[i] = samplers_[static_cast<size_t>(task)].Sample(
          row, *draw.params, *draw.history, draw.key, draw.score, draw.banned);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::EndBatch(const Rows& logits) {
  const std::vector<int32_t>& wanted = batch_->host_rows;
  if (wanted.empty()) return absl::OkStatus();
  // The draws are made: those rows may be overwritten that nobody wants.
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
  const PackedMatrix& packed = Packed(table);
  TLM_CHECK(out.cols == packed.k() && out.rows == batch.layout.tokens);
  ForEachRow(out.rows, out.cols, [&](int64_t row) {
    packed.CopyRow(batch.token_ids[row], out.as<float>() + row * out.stride);
  });
  if (positions_table == nullptr) return absl::OkStatus();
  const PackedMatrix& places = Packed(*positions_table);
  TLM_CHECK(out.cols == places.k());
  ForEachRow(out.rows, out.cols, [&](int64_t row) {
    places.AddRow(batch.layout.positions[row], out.as<float>() + row * out.stride);
  });
  return absl::OkStatus();
}

void CpuOps::NormRow(const Norm& norm, const float* in, int64_t n, float* out) const {
  const NormArgs args{.in = in,
                      .n = n,
                      .gain = norm.gain,
                      .bias = norm.bias,
                      .eps = norm.eps,
                      .eps_outside_root = norm.placement == EpsPlacement::kOutsideRoot,
                      .out = out};
  norm.kind == Norm::Kind::kRms ? kernels_.rms_norm(args) : kernels_.layer_norm(args);
}

absl::Status CpuOps::AddNorm(const Rows& x, const Rows& delta, const Norm& norm, const Rows& out) {
  TLM_CHECK(out.cols == x.cols && out.rows == x.rows);
  TLM_CHECK(delta.data == nullptr || (delta.cols == x.cols && delta.rows == x.rows));
  ForEachRow(x.rows, 2 * x.cols, [&](int64_t row) {
    float* const values = x.as<float>() + row * x.stride;
    if (delta.data != nullptr) {
      kernels_.add(values, delta.as<float>() + row * delta.stride, x.cols);
    }
    NormRow(norm, values, x.cols, out.as<float>() + row * out.stride);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                                   const Norm& norm, const Rows& out) {
  TLM_CHECK(out.cols == x.cols && delta.cols == x.cols);
  ForEachRow(out.rows, 2 * x.cols, [&](int64_t row) {
    const float* const values = x.as<float>() + rows[row] * x.stride;
    float* const to = out.as<float>() + row * out.stride;
    std::copy(values, values + x.cols, to);
    kernels_.add(to, delta.as<float>() + rows[row] * delta.stride, x.cols);
    NormRow(norm, to, x.cols, to);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                            const Rows& out) {
  const PackedMatrix& packed = Packed(w);
  TLM_CHECK(x.cols == packed.k() && out.cols == packed.n() && out.rows == x.rows);
  // Tasks are stripes of output features, each weight read by one thread; a multiple of the widest
  // kernel tile, and small enough that the last stripes even the threads out.
  constexpr int64_t kTilePanels = 8;
  const int64_t groups = DivideUp(packed.panels(), kTilePanels);
  const int64_t group_products = x.rows * packed.k() * kTilePanels * kPanel;
  const int64_t groups_per_task = std::max<int64_t>(groups / (int64_t{pool_.threads()} * 4),
                                                    DivideUp(kMinTaskProducts, group_products));
  const int64_t panels_per_task = groups_per_task * kTilePanels;
  const int64_t tasks = DivideUp(packed.panels(), panels_per_task);
  pool_.ParallelFor(tasks, [&](int64_t task) {
    kernels_.matmul({.x = x.as<float>(),
                     .x_stride = x.stride,
                     .rows = x.rows,
                     .w = packed.data(),
                     .storage = packed.storage(),
                     .k = packed.k(),
                     .n = packed.n(),
                     .panel_begin = task * panels_per_task,
                     .panel_end = std::min(packed.panels(), (task + 1) * panels_per_task),
                     .bias = epilogue.bias,
                     .out = out.as<float>(),
                     .out_stride = out.stride});
  });
  if (!epilogue.activation.has_value()) return absl::OkStatus();
  const auto activate = KernelOf(*epilogue.activation, kernels_);
  ForEachRow(out.rows, 4 * out.cols,
             [&](int64_t row) { activate(out.as<float>() + row * out.stride, out.cols); });
  return absl::OkStatus();
}

absl::Status CpuOps::MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                                 const Rows& out) {
  TLM_CHECK(w.n() == 2 * out.cols && x.rows <= gate_up_.rows && w.n() <= gate_up_.cols);
  const Rows gate_up = gate_up_.First(x.rows).Columns(0, w.n());
  TLM_RETURN_IF_ERROR(MatMul(x, w, {.bias = bias}, gate_up));
  ForEachRow(out.rows, 4 * out.cols, [&](int64_t row) {
    const float* const gate = gate_up.as<float>() + row * gate_up.stride;
    kernels_.swiglu(gate, gate + out.cols, out.cols, out.as<float>() + row * out.stride);
  });
  return absl::OkStatus();
}

void CpuOps::PrepareHeads(const HeadTransform& transform, const float* gain, int64_t position,
                          int64_t num_heads, int64_t head_dim, float* heads) const {
  const Norm norm{.gain = gain, .eps = transform.eps, .placement = transform.placement};
  for (int64_t head = 0; head < num_heads; ++head, heads += head_dim) {
    if (gain != nullptr) NormRow(norm, heads, head_dim, heads);
    if (transform.rope_table != nullptr) {
      RotateHead(transform.rope_table + position * head_dim, head_dim, transform.pairing, heads);
    }
  }
}

absl::Status CpuOps::PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                      const TokenLayout& layout, const KvLayer& cache) {
  const int64_t head_dim = cache.head_dim;
  const int64_t kv_size = cache.num_kv_heads * head_dim;
  const int64_t q_size = qkv.cols - 2 * kv_size;
  TLM_CHECK(q_size > 0 && q_size % kv_size == 0);
  const int64_t block_values = kv_size * kBlockTokens;  // offset within a block
  ForEachRow(layout.tokens, 2 * qkv.cols, [&](int64_t token) {
    const int64_t position = layout.positions[token];
    float* const q = qkv.as<float>() + token * qkv.stride;
    float* const k = q + q_size;
    const float* const v = k + kv_size;
    PrepareHeads(transform, transform.q_gain, position, q_size / head_dim, head_dim, q);
    PrepareHeads(transform, transform.k_gain, position, cache.num_kv_heads, head_dim, k);
    const int32_t* const blocks =
        layout.block_tables + layout.sequence_of[token] * layout.max_blocks;
    const int64_t slot = position % kBlockTokens;
    const int64_t block = blocks[position / kBlockTokens] * 2 * block_values;
    for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
      const int64_t base = block + head * kBlockTokens * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) {
        WriteElement(cache.data, cache.dtype, base + d * kBlockTokens + slot,
                     k[head * head_dim + d]);
        WriteElement(cache.data, cache.dtype, base + block_values + slot * head_dim + d,
                     v[head * head_dim + d]);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::Attention(const Rows& q, float scale, int64_t window,
                               const TokenLayout& layout, const KvLayer& cache, const Rows& out) {
  const int64_t head_dim = cache.head_dim;
  const int64_t group = q.cols / head_dim / cache.num_kv_heads;  // query heads of one kv head
  TLM_CHECK(group * cache.num_kv_heads * head_dim == q.cols && out.cols == q.cols);
  const int64_t head_elements = kBlockTokens * head_dim;
  const int64_t values = cache.num_kv_heads * head_elements;
  const int64_t heads = std::min(group, kMaxAttentionQueries);  // of a unit
  const int64_t parts = DivideUp(group, heads);
  const std::vector<TokenRun> runs =
      RunsOf(layout, RunLength(layout.tokens * cache.num_kv_heads, heads));
  // A unit is a run and some query heads of one kv head; its work grows with the positions seen.
  const int64_t units = static_cast<int64_t>(runs.size()) * cache.num_kv_heads * parts;
  int64_t positions = 0;
  for (int64_t token = 0; token < layout.tokens; ++token) {
    const int64_t seen = layout.positions[token] + 1;
    positions += window > 0 ? std::min(window, seen) : seen;
  }
  const int64_t mean_products = DivideUp(positions * 2 * q.cols, units);
  const int64_t units_per_task = std::max<int64_t>(1, kMinTaskProducts / mean_products);
  const auto attend = [&](int64_t unit) {
    const TokenRun run = runs[static_cast<size_t>(unit / (cache.num_kv_heads * parts))];
    const int64_t kv_head = unit / parts % cache.num_kv_heads;
    const int64_t first_head = unit % parts * heads;
    const int64_t column = (kv_head * group + first_head) * head_dim;
    float scratch[(kMaxAttentionQueries + kAttentionScratchRows) * kMaxHeadDim];
    kernels_.attention(
        {.q = q.as<float>() + run.begin * q.stride + column,
         .q_stride = q.stride,
         .tokens = run.tokens,
         .heads = std::min(heads, group - first_head),
         .head_dim = head_dim,
         .scale = scale,
         .position = layout.positions[run.begin],
         .window = window,
         .block_table = layout.block_tables + layout.sequence_of[run.begin] * layout.max_blocks,
         .cache = cache.data,
         .storage = StorageOf(cache.dtype),
         .block_elements = 2 * values,
         .key_offset = kv_head * head_elements,
         .value_offset = values + kv_head * head_elements,
         .out = out.as<float>() + run.begin * out.stride + column,
         .out_stride = out.stride,
         .scratch = scratch});
  };
  pool_.ParallelFor(DivideUp(units, units_per_task), [&](int64_t task) {
    const int64_t end = std::min(units, (task + 1) * units_per_task);
    for (int64_t unit = task * units_per_task; unit < end; ++unit) attend(unit);
  });
  return absl::OkStatus();
}

// Long enough to share the reading of tiles, short enough to keep all threads busy.
int64_t CpuOps::RunLength(int64_t rows, int64_t heads) const {
  const int64_t fair = DivideUp(rows, 2 * pool_.threads());
  return std::clamp(kMaxAttentionQueries / heads, int64_t{1}, std::max(fair, int64_t{1}));
}

}  // namespace tlm
