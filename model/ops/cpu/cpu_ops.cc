#include "model/ops/cpu/cpu_ops.h"

#include <sched.h>

#include <algorithm>
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
      pool_(threads) {}

void CpuOps::ForEachRow(int64_t rows, int64_t work_per_row, absl::FunctionRef<void(int64_t)> body) {
  const int64_t rows_per_task = std::max<int64_t>(1, kMinTaskElements / work_per_row);
  const int64_t tasks = DivideUp(rows, rows_per_task);
  pool_.ParallelFor(tasks, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) body(row);
  });
}

absl::StatusOr<std::unique_ptr<Matrix>> CpuOps::PackMatrix(std::span<const TensorView> parts,
                                                           MatrixOrder order) {
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

absl::Status CpuOps::Embed(const Matrix& table, const int32_t* ids, const Rows& out) {
  const PackedMatrix& packed = Packed(table);
  TLM_CHECK(out.cols == packed.k());
  ForEachRow(out.rows, out.cols,
             [&](int64_t row) { packed.CopyRow(ids[row], out.data + row * out.stride); });
  return absl::OkStatus();
}

absl::Status CpuOps::GatherRows(const Rows& in, const int32_t* rows, const Rows& out) {
  TLM_CHECK(in.cols == out.cols);
  for (int64_t row = 0; row < out.rows; ++row) {
    const float* const from = in.data + rows[row] * in.stride;
    std::copy(from, from + in.cols, out.data + row * out.stride);
  }
  return absl::OkStatus();
}

absl::Status CpuOps::RmsNorm(const Rows& in, int64_t group, const float* gain, float eps,
                             EpsPlacement placement, const Rows& out) {
  TLM_CHECK(in.cols % group == 0 && out.cols == in.cols && out.rows == in.rows);
  ForEachRow(in.rows, in.cols, [&](int64_t row) {
    for (int64_t begin = 0; begin < in.cols; begin += group) {
      kernels_.rms_norm({.in = in.data + row * in.stride + begin,
                         .n = group,
                         .gain = gain,
                         .eps = eps,
                         .eps_outside_root = placement == EpsPlacement::kOutsideRoot,
                         .out = out.data + row * out.stride + begin});
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::LayerNorm(const Rows& in, const float* gain, const float* bias, float eps,
                               EpsPlacement placement, const Rows& out) {
  TLM_CHECK(out.cols == in.cols && out.rows == in.rows);
  ForEachRow(in.rows, in.cols, [&](int64_t row) {
    kernels_.layer_norm({.in = in.data + row * in.stride,
                         .n = in.cols,
                         .gain = gain,
                         .bias = bias,
                         .eps = eps,
                         .eps_outside_root = placement == EpsPlacement::kOutsideRoot,
                         .out = out.data + row * out.stride});
  });
  return absl::OkStatus();
}

absl::Status CpuOps::MatMul(const Rows& x, const Matrix& w, const float* bias, const Rows& out) {
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
    kernels_.matmul({.x = x.data,
                     .x_stride = x.stride,
                     .rows = x.rows,
                     .w = packed.data(),
                     .storage = packed.storage(),
                     .k = packed.k(),
                     .n = packed.n(),
                     .panel_begin = task * panels_per_task,
                     .panel_end = std::min(packed.panels(), (task + 1) * panels_per_task),
                     .bias = bias,
                     .out = out.data,
                     .out_stride = out.stride});
  });
  return absl::OkStatus();
}

absl::Status CpuOps::Add(const Rows& x, const Rows& y) {
  TLM_CHECK(x.cols == y.cols && x.rows == y.rows);
  ForEachRow(x.rows, x.cols, [&](int64_t row) {
    kernels_.add(x.data + row * x.stride, y.data + row * y.stride, x.cols);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::SwiGlu(const Rows& gate_up, const Rows& out) {
  TLM_CHECK(gate_up.cols == 2 * out.cols && gate_up.rows == out.rows);
  ForEachRow(out.rows, 4 * out.cols, [&](int64_t row) {
    const float* const gate = gate_up.data + row * gate_up.stride;
    kernels_.swiglu(gate, gate + out.cols, out.cols, out.data + row * out.stride);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::Activate(Activation activation, const Rows& x) {
  const auto kernel = KernelOf(activation, kernels_);
  ForEachRow(x.rows, 4 * x.cols, [&](int64_t row) { kernel(x.data + row * x.stride, x.cols); });
  return absl::OkStatus();
}

absl::Status CpuOps::Rope(const Rows& x, int64_t head_dim, RopePairing pairing, const float* table,
                          const int32_t* positions) {
  TLM_CHECK(x.cols % head_dim == 0);
  ForEachRow(x.rows, x.cols, [&](int64_t row) {
    const float* const angles = table + positions[row] * head_dim;
    for (int64_t begin = 0; begin < x.cols; begin += head_dim) {
      RotateHead(angles, head_dim, pairing, x.data + row * x.stride + begin);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::WriteKv(const Rows& k, const Rows& v, const TokenLayout& layout,
                             const KvLayer& cache) {
  const int64_t head_dim = cache.head_dim;
  TLM_CHECK(k.cols == cache.num_kv_heads * head_dim && v.cols == k.cols);
  const int64_t values = cache.num_kv_heads * kBlockTokens * head_dim;  // offset within a block
  ForEachRow(layout.tokens, 2 * k.cols, [&](int64_t token) {
    const int64_t position = layout.positions[token];
    const int32_t* const blocks =
        layout.block_tables + layout.sequence_of[token] * layout.max_blocks;
    const int64_t slot = position % kBlockTokens;
    const int64_t block = blocks[position / kBlockTokens] * 2 * values;
    for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
      const int64_t base = block + head * kBlockTokens * head_dim;
      const float* const key = k.data + token * k.stride + head * head_dim;
      const float* const value = v.data + token * v.stride + head * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) {
        WriteElement(cache.data, cache.dtype, base + d * kBlockTokens + slot, key[d]);
        WriteElement(cache.data, cache.dtype, base + values + slot * head_dim + d, value[d]);
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
        {.q = q.data + run.begin * q.stride + column,
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
         .out = out.data + run.begin * out.stride + column,
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
