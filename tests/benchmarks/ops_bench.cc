// ops_bench: each operation of a model's layers by itself, on any backend. See README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "model/base/errors.h"
#include "model/ops/rope_table.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/cpu_ceilings.h"
#include "tests/benchmarks/engine/op_inputs.h"
#include "tests/benchmarks/engine/op_timer.h"

ABSL_FLAG(std::string, preset, "qwen3-0.6b", "whose shapes");
ABSL_FLAG(std::string, weights_dtype, "bfloat16", "float32, bfloat16 or float16");
ABSL_FLAG(std::string, kv_cache_dtype, "", "of keys and values; empty: the backend's choice");
ABSL_FLAG(std::vector<std::string>, rows, (std::vector<std::string>{"1", "16", "64", "512"}),
          "of activations: tokens of a step");
ABSL_FLAG(std::vector<std::string>, contexts, {"1024"}, "positions each decoding sequence sees");
ABSL_FLAG(std::vector<std::string>, prefixes, (std::vector<std::string>{"0", "7680"}),
          "positions before the rows of one sequence that attend together");
ABSL_FLAG(bool, head, true, "the LM head too: the largest matrix");
ABSL_FLAG(double, seconds, 0.3, "of measuring each, at least");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

// Calls rotate through weights, keys and values of this size, which no cache holds.
constexpr size_t kRotatedBytes = size_t{512} << 20;

struct OpsPlan {
  std::vector<int64_t> rows, contexts, prefixes;
};

// What matrices are given as, and how they are stored.
struct Weights {
  DType given = DType::kBF16;
  WeightFormat format = WeightFormat::kAsGiven;

  // Of a model that has them: see PackingPlan::matrix_type.
  DType type() const { return BlockTypeOf(format).has_value() ? DType::kI8 : given; }
  size_t BytesOf(MatrixPlace place, int64_t elements) const {
    const DType stored = BlockTypeOf(FormatIn(place, format)).value_or(given);
    return StoredBytes(stored, static_cast<size_t>(elements));
  }
};

class OpsBench {
 public:
  OpsBench(Ops& ops, const ModelConfig& config, const Weights& weights, DType kv,
           const CpuCeilings& ceilings, OpTimer::Save save)
      : ops_(ops),
        config_(config),
        weights_(weights),
        activations_(ops.ActivationType(weights.type())),
        kv_type_(kv),
        timer_(ops.device(), ceilings, absl::GetFlag(FLAGS_seconds), std::move(save)) {}

  absl::Status Run(const OpsPlan& plan) {
    const int64_t most = *std::max_element(plan.rows.begin(), plan.rows.end());
    int64_t context = *std::max_element(plan.contexts.begin(), plan.contexts.end());
    for (const int64_t prefix : plan.prefixes) context = std::max(context, prefix + most);
    const BatchLimits limits = {
        .max_tokens = most, .max_sequences = most, .max_logits_rows = most, .max_context = context};
    TLM_RETURN_IF_ERROR(ShowMatrices());
    TLM_RETURN_IF_ERROR(ops_.Reserve(limits, Shape(), activations_));
    const int64_t widest =
        std::max({config_.q_size() + 2 * config_.kv_size(), 2 * config_.d_ff, config_.d_model});
    const int64_t padded = ops_.PaddedRows(most);
    TLM_ASSIGN_OR_RETURN(input_, MakeRows(ops_, padded, widest, activations_));
    TLM_ASSIGN_OR_RETURN(output_, MakeRows(ops_, padded, widest, activations_));
    TLM_ASSIGN_OR_RETURN(residual_, MakeRows(ops_, padded, config_.d_model, DType::kF32));
    OpTimer::PrintHead();
    TLM_RETURN_IF_ERROR(Matrices(plan.rows));
    for (const int64_t count : plan.rows) TLM_RETURN_IF_ERROR(Norms(count));
    for (const int64_t positions : plan.contexts) {
      for (const int64_t count : plan.rows) {
        if (count * positions <= int64_t{1} << 19) {
          TLM_RETURN_IF_ERROR(DecodeAttention(count, positions));
        }
      }
    }
    for (const int64_t prefix : plan.prefixes) {
      if (most > 1) TLM_RETURN_IF_ERROR(PromptAttention(most, prefix));
    }
    ops_.Release();
    return absl::OkStatus();
  }

 private:
  ModelShape Shape() const {
    int64_t elements = 0;
    for (const MatrixKind& kind : Kinds()) {
      elements = std::max(elements, kind.n * ((kind.k + 7) / 8 * 8));
    }
    return {.vocab_size = config_.vocab_size,
            .num_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .head_dim = config_.head_dim,
            .gated_outputs = config_.gated_ffn() ? 2 * config_.d_ff : 0,
            .inputs = std::max({config_.d_model, config_.q_size(), config_.d_ff}),
            .matrix_elements = elements,
            .has_blocks = weights_.type() == DType::kI8,
            .fp8_cache = kv_type_ == DType::kF8E4M3};
  }

  struct MatrixKind {
    const char* name;
    int64_t n, k;
    MatrixPlace place;
    MatrixUse use = MatrixUse::kPlain;
  };

  // Of a layer, and the head where it is timed.
  std::vector<MatrixKind> Kinds() const {
    const bool gated = config_.gated_ffn();
    std::vector<MatrixKind> kinds = {
        {"qkv", config_.q_size() + 2 * config_.kv_size(), config_.d_model, MatrixPlace::kAttention},
        {"output", config_.d_model, config_.q_size(), MatrixPlace::kAttention},
        {gated ? "gate_up" : "up", (gated ? 2 : 1) * config_.d_ff, config_.d_model,
         MatrixPlace::kFeedForward, gated ? MatrixUse::kGated : MatrixUse::kPlain},
        {"down", config_.d_model, config_.d_ff, MatrixPlace::kFeedForward}};
    if (absl::GetFlag(FLAGS_head)) {
      kinds.push_back({"head", config_.vocab_size, config_.d_model, MatrixPlace::kTable});
    }
    return kinds;
  }

  // Packs a matrix of each kind, and drops it: Reserve chooses how products are computed by the
  // kinds of matrices that it has seen, as it does in a model, which is packed before.
  absl::Status ShowMatrices() {
    for (const MatrixKind& kind : Kinds()) {
      TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Matrix> matrix, NewMatrix(kind));
      TLM_RETURN_IF_ERROR(ops_.device().Synchronize());  // before it goes
    }
    return absl::OkStatus();
  }

  absl::Status Matrices(const std::vector<int64_t>& rows) {
    const std::vector<MatrixKind> kinds = Kinds();
    for (const MatrixKind& kind : kinds) {
      if (kind.place != MatrixPlace::kTable) TLM_RETURN_IF_ERROR(MatrixOf(kind, rows));
    }
    if (!absl::GetFlag(FLAGS_head)) return absl::OkStatus();
    const int64_t most = std::min<int64_t>(64, rows.back());
    TLM_ASSIGN_OR_RETURN(OwnedRows logits, MakeRows(ops_, most, config_.vocab_size, DType::kF32));
    std::swap(logits, output_);
    std::vector<int64_t> few;
    for (const int64_t count : rows) {
      if (count <= most) few.push_back(count);
    }
    const absl::Status status = MatrixOf(kinds.back(), few);
    std::swap(logits, output_);
    return status;
  }

  absl::StatusOr<std::unique_ptr<Matrix>> NewMatrix(const MatrixKind& kind) {
    return MakeMatrix(ops_, kind.n, kind.k, weights_.given, kind.use,
                      FormatIn(kind.place, weights_.format));
  }

  absl::StatusOr<std::vector<std::unique_ptr<Matrix>>> MakeMatrices(const MatrixKind& kind) {
    const size_t bytes = weights_.BytesOf(kind.place, kind.n * kind.k);
    const size_t copies = std::clamp<size_t>(kRotatedBytes / bytes, 1, OpTimer::kCalls);
    std::vector<std::unique_ptr<Matrix>> matrices;
    for (size_t i = 0; i < copies; ++i) {
      TLM_ASSIGN_OR_RETURN(std::unique_ptr<Matrix> matrix, NewMatrix(kind));
      matrices.push_back(std::move(matrix));
    }
    TLM_RETURN_IF_ERROR(ops_.device().Synchronize());  // no upload beside what is timed
    return matrices;
  }

  absl::Status MatrixOf(const MatrixKind& kind, const std::vector<int64_t>& rows) {
    const auto& [name, n, k, place, use] = kind;
    TLM_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Matrix>> matrices, MakeMatrices(kind));
    for (const int64_t m : rows) {
      const Rows x = input_.Part(m, k);
      const int64_t outputs = use == MatrixUse::kGated ? n / 2 : n;
      const Rows out = output_.Part(m, outputs);
      const double bytes =
          static_cast<double>(weights_.BytesOf(place, n * k)) +
          static_cast<double>(m * k) * static_cast<double>(DTypeBytes(x.dtype)) +
          static_cast<double>(m * outputs) * static_cast<double>(DTypeBytes(out.dtype));
      const double flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
      const auto product = [&, use = use](int i) {
        const Matrix& w = *matrices[static_cast<size_t>(i) % matrices.size()];
        return use == MatrixUse::kGated ? ops_.MatMulGated(x, w, nullptr, out)
                                        : ops_.MatMul(x, w, {}, out);
      };
      ops_.TakeProductMethods();
      TLM_RETURN_IF_ERROR(timer_.Time(fmt::format("{} {}x{} m={}", name, n, k, m),
                                      {.bytes = bytes, .matmul_flops = flops}, product,
                                      [this] { return ops_.TakeProductMethods(); }));
    }
    return absl::OkStatus();
  }

  absl::Status Norms(int64_t count) {
    const std::vector<float> ones(static_cast<size_t>(config_.d_model), 1.0f);
    const TensorView view{DType::kF32, tlm::Shape({config_.d_model}), ones.data()};
    TLM_ASSIGN_OR_RETURN(const Buffer gain, ops_.PackVector({&view, 1}));
    const Norm norm{.gain = gain.as<float>(), .eps = 1e-6f};
    const Rows x = residual_.rows.First(count);
    const Rows delta = input_.Part(count, config_.d_model);
    const Rows out = output_.Part(count, config_.d_model);
    const double values = static_cast<double>(count * config_.d_model);
    const double bytes = values * (8.0 + 2.0 * static_cast<double>(DTypeBytes(activations_)));
    return timer_.Time(fmt::format("add + norm {} m={}", config_.d_model, count),
                       {.bytes = bytes, .cached = true},
                       [&](int) { return ops_.AddNorm(x, delta, norm, out); });
  }

  // `count` sequences, each with one token that sees `positions`.
  absl::Status DecodeAttention(int64_t count, int64_t positions) {
    Batch batch;
    batch.sequences = count;
    batch.max_blocks = BlocksOf(positions);
    for (int64_t sequence = 0; sequence < count; ++sequence) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(static_cast<int32_t>(positions - 1));
      batch.sequence_of.push_back(static_cast<int32_t>(sequence));
    }
    const auto seen = static_cast<double>(count * positions);
    return AttentionOf(fmt::format("{} x {}", count, positions), batch, seen, seen);
  }

  // One sequence: `count` tokens, the first of which sees `prefix` positions beside itself.
  absl::Status PromptAttention(int64_t count, int64_t prefix) {
    Batch batch;
    batch.sequences = 1;
    batch.max_blocks = BlocksOf(prefix + count);
    for (int64_t token = 0; token < count; ++token) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(static_cast<int32_t>(prefix + token));
      batch.sequence_of.push_back(0);
    }
    const auto rows = static_cast<double>(count);
    return AttentionOf(fmt::format("of {} after {}", count, prefix), batch,
                       static_cast<double>(prefix + count),
                       rows * static_cast<double>(prefix) + rows * (rows + 1) / 2);
  }

  static int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  // Every sequence of `batch` gets blocks of its own. `positions` of the cache are read, `pairs` of
  // a token and a position it sees computed.
  absl::Status AttentionOf(const std::string& name, Batch& batch, double positions, double pairs) {
    const int64_t blocks = batch.sequences * batch.max_blocks;
    for (int64_t block = 0; block < blocks; ++block) {
      batch.block_tables.push_back(static_cast<int32_t>(block));
    }
    KvLayer cache{.dtype = kv_type_,
                  .num_blocks = blocks,
                  .num_kv_heads = config_.num_kv_heads,
                  .head_dim = config_.head_dim};
    const size_t bytes = static_cast<size_t>(blocks) * cache.block_bytes();
    const size_t copies = std::clamp<size_t>(kRotatedBytes / bytes, 1, OpTimer::kCalls);
    TLM_ASSIGN_OR_RETURN(
        const Buffer elements,
        MakeValues(ops_, static_cast<int64_t>(copies * bytes / DTypeBytes(kv_type_)), kv_type_));
    const auto cache_of = [&](int call) {
      KvLayer layer = cache;
      layer.data = elements.as<std::byte>() + static_cast<size_t>(call) % copies * bytes;
      return layer;
    };
    TLM_ASSIGN_OR_RETURN(const DeviceBatch on_device, ops_.BeginBatch(batch));
    TLM_RETURN_IF_ERROR(TimePrepare(name, on_device.layout, batch.max_blocks, cache_of));
    const int64_t tokens = on_device.layout.tokens;
    const Rows q = input_.Part(tokens, config_.q_size());
    const Rows out = output_.Part(tokens, config_.q_size());
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    const double kv_bytes = static_cast<double>(cache.block_bytes()) / kBlockTokens;
    const double flops = 4.0 * pairs * static_cast<double>(config_.q_size());
    const bool bf16 =
        (kv_type_ == DType::kBF16 || kv_type_ == DType::kF8E4M3) && activations_ == DType::kBF16;
    TLM_RETURN_IF_ERROR(timer_.Time("attention " + name,
                                    {.bytes = positions * kv_bytes,
                                     .matmul_flops = bf16 ? flops : 0,
                                     .float_flops = bf16 ? 0 : flops},
                                    [&](int call) {
                                      return ops_.Attention(q, scale, 0, on_device.layout,
                                                            cache_of(call), out);
                                    }));
    TLM_RETURN_IF_ERROR(ops_.EndBatch(Rows()));
    return ops_.AwaitBatch().status();
  }

  // The cosines and sines of positions 0 .. `positions` - 1; nothing for a model without any.
  absl::StatusOr<Buffer> RopeEntries(int64_t positions) {
    if (!config_.rope_theta.has_value()) return Buffer();
    const RopeTable table(config_.head_dim, *config_.rope_theta, config_.rope_scaling);
    const std::vector<float> entries = table.Entries(0, positions);
    const size_t bytes = entries.size() * sizeof(float);
    TLM_ASSIGN_OR_RETURN(Buffer buffer, ops_.device().Allocate(bytes, MemoryPurpose::kActivations));
    TLM_RETURN_IF_ERROR(ops_.device().CopyToDevice(buffer.data(), entries.data(), bytes));
    return buffer;
  }

  // What comes before attention: norms of heads, rotary positions, keys and values to their places.
  // Every call takes the rows that the one before has left. Rotations keep the length of every pair
  // of elements, so that no number of calls makes them subnormal.
  absl::Status TimePrepare(const std::string& name, const TokenLayout& layout, int64_t max_blocks,
                           const std::function<KvLayer(int)>& cache_of) {
    const std::vector<float> ones(static_cast<size_t>(config_.head_dim), 1.0f);
    const TensorView view{DType::kF32, tlm::Shape({config_.head_dim}), ones.data()};
    TLM_ASSIGN_OR_RETURN(const Buffer gain, ops_.PackVector({&view, 1}));
    TLM_ASSIGN_OR_RETURN(const Buffer entries, RopeEntries(max_blocks * kBlockTokens));
    const float* gains = config_.qk_norm ? gain.as<float>() : nullptr;
    const bool interleaved = config_.rope_layout == RopeLayout::kInterleaved;
    const HeadTransform transform{
        .q_gain = gains,
        .k_gain = gains,
        .eps = 1e-6f,
        .rope_table = entries.as<float>(),
        .pairing = interleaved ? RopePairing::kInterleaved : RopePairing::kHalf};
    const int64_t width = config_.q_size() + 2 * config_.kv_size();
    const Rows qkv = input_.Part(layout.tokens, width);
    const double bytes = 2.0 * static_cast<double>(layout.tokens * width) *
                         static_cast<double>(DTypeBytes(activations_));
    return timer_.Time("prepare " + name, {.bytes = bytes, .cached = true}, [&](int call) {
      return ops_.PrepareAttention(qkv, transform, layout, cache_of(call));
    });
  }

  Ops& ops_;
  const ModelConfig& config_;
  const Weights weights_;
  const DType activations_, kv_type_;
  OwnedRows input_, output_, residual_;
  OpTimer timer_;
};

absl::StatusOr<Weights> WeightsFromFlags() {
  TLM_ASSIGN_OR_RETURN(const std::optional<DType> given,
                       TypeFlag(absl::GetFlag(FLAGS_weights_dtype), "weights_dtype"));
  TLM_ASSIGN_OR_RETURN(const WeightFormat format, WeightFormatFromFlags());
  if (!given.has_value()) return InvalidArgument("--weights_dtype must not be empty");
  return Weights{.given = format == WeightFormat::kFloat32 ? DType::kF32 : *given,
                 .format = format};
}

absl::Status Main() {
  TLM_ASSIGN_OR_RETURN(const ModelConfig config,
                       ReadBenchConfig({.preset = absl::GetFlag(FLAGS_preset)}));
  TLM_ASSIGN_OR_RETURN(const Weights weights, WeightsFromFlags());
  OpsPlan plan;
  TLM_ASSIGN_OR_RETURN(plan.rows, NumbersFlag(absl::GetFlag(FLAGS_rows), "rows", 1, 65536));
  TLM_ASSIGN_OR_RETURN(plan.contexts,
                       NumbersFlag(absl::GetFlag(FLAGS_contexts), "contexts", 1, 1 << 20));
  TLM_ASSIGN_OR_RETURN(plan.prefixes,
                       NumbersFlag(absl::GetFlag(FLAGS_prefixes), "prefixes", 0, 1 << 20));
  if (plan.rows.empty() || plan.contexts.empty()) {
    return InvalidArgument("--rows and --contexts must not be empty");
  }
  TLM_ASSIGN_OR_RETURN(const Backend backend, BackendFromFlags());
  const DeviceInfo& device = backend.ops->device().info();
  TLM_ASSIGN_OR_RETURN(const std::optional<DType> asked,
                       KvTypeFlag(absl::GetFlag(FLAGS_kv_cache_dtype)));
  const DType kv = asked.value_or(backend.ops->DefaultKvType(weights.type()));
  if (!backend.ops->TakesKvType(weights.type(), kv)) {
    return InvalidArgument("--kv_cache_dtype={} does not go with weights of {} on {}",
                           KvDTypeName(kv), DTypeName(weights.type()), device.backend);
  }
  fmt::print("{}\n{} shapes, {}, keys and values in {}\n", backend.reason,
             absl::GetFlag(FLAGS_preset), DTypeName(weights.type()), KvDTypeName(kv));
  TLM_ASSIGN_OR_RETURN(const CpuCeilings ceilings, CeilingsFromFlags(device, weights.type()));
  fmt::print("\n");
  Json report = {{"preset", absl::GetFlag(FLAGS_preset)},
                 {"weights_dtype", DTypeName(weights.type())},
                 {"weights", WeightFormatName(weights.format)},
                 {"kv_cache_dtype", DTypeName(kv)},
                 {"backend", device.backend},
                 {"device", device.name},
                 {"arithmetic", device.arithmetic}};
  if (ceilings.read_bytes_per_second > 0) report["ceilings"] = ToJson(ceilings);
  // What has been measured stays, whatever the next operation does.
  const auto save = [&report](const Json& results) {
    report["operations"] = results;
    return WriteJson(report, absl::GetFlag(FLAGS_json));
  };
  return OpsBench(*backend.ops, config, weights, kv, ceilings, save).Run(plan);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times every operation of a model's layers for itself.\n"
      "  ops_bench --preset=qwen3-8b --rows=1,64,512 --contexts=1024");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = tlm::bench::Main();
  if (status.ok()) return 0;
  fmt::print(stderr, "ops_bench: {}\n", std::string(status.message()));
  return 1;
}
