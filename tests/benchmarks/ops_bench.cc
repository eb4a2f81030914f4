// ops_bench: every operation of a model's layers for itself, on any backend. See README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "model/base/float16.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"

ABSL_FLAG(std::string, preset, "qwen3-0.6b", "whose shapes");
ABSL_FLAG(std::string, weights_dtype, "bfloat16", "float32, bfloat16 or float16");
ABSL_FLAG(std::vector<std::string>, rows, (std::vector<std::string>{"1", "16", "64", "512"}),
          "of activations: tokens of a step");
ABSL_FLAG(std::vector<std::string>, contexts, {"1024"}, "positions each decoding sequence sees");
ABSL_FLAG(bool, head, true, "the LM head too: the largest matrix");
ABSL_FLAG(double, seconds, 0.3, "of measuring each, at least");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

// Calls recorded together, so that what it costs to start one is not what is measured.
constexpr int kCalls = 20;
// Weights of the calls are different ones until they fill so much: no cache holds them.
constexpr size_t kRotatedBytes = size_t{512} << 20;

// Random elements of a type, on the host.
std::vector<uint16_t> RandomHalves(size_t count, DType dtype) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(4096 + 1);  // repeats, at shifting places
  for (float& value : values) value = normal(random);
  std::vector<uint16_t> halves(count);
  for (size_t i = 0; i < count; ++i) {
    const float value = values[(i * 7 + i / 4096) % values.size()];
    halves[i] = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }
  return halves;
}

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(4096 + 1);
  for (float& value : values) value = normal(random);
  std::vector<float> floats(count);
  for (size_t i = 0; i < count; ++i) floats[i] = values[(i * 7 + i / 4096) % values.size()];
  return floats;
}

class OpsBench {
 public:
  OpsBench(Ops& ops, const ModelConfig& config, DType weights)
      : ops_(ops),
        config_(config),
        weights_(weights),
        activations_(ops.ActivationType(weights)),
        kv_type_(ops.DefaultKvType(weights)) {}

  absl::Status Run(const std::vector<int64_t>& rows, const std::vector<int64_t>& contexts) {
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    const int64_t context = *std::max_element(contexts.begin(), contexts.end());
    limits_ = {.max_tokens = most,
               .max_sequences = most,
               .max_logits_rows = most,
               .max_context = context + 1};
    TLM_RETURN_IF_ERROR(ops_.Reserve(limits_, Shape(), activations_));
    const int64_t widest =
        std::max({config_.q_size() + 2 * config_.kv_size(), 2 * config_.d_ff, config_.d_model});
    TLM_RETURN_IF_ERROR(
        MakeRows(ops_.PaddedRows(most), widest, activations_, &input_memory_, &input_));
    TLM_RETURN_IF_ERROR(
        MakeRows(ops_.PaddedRows(most), widest, activations_, &output_memory_, &output_));
    TLM_RETURN_IF_ERROR(MakeRows(ops_.PaddedRows(most), config_.d_model, DType::kF32,
                                 &residual_memory_, &residual_));
    fmt::print("{:<34} {:>10} {:>10} {:>10}\n", "operation", "us", "GB/s", "GFLOP/s");
    TLM_RETURN_IF_ERROR(Matrices(rows));
    for (const int64_t count : rows) TLM_RETURN_IF_ERROR(Norms(count));
    for (const int64_t positions : contexts) {
      for (const int64_t count : rows) {
        if (count * positions <= int64_t{1} << 19) {
          TLM_RETURN_IF_ERROR(Attention(count, positions));
        }
      }
    }
    ops_.Release();
    return absl::OkStatus();
  }
  const Json& results() const { return results_; }

 private:
  ModelShape Shape() const {
    return {.vocab_size = config_.vocab_size,
            .num_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .head_dim = config_.head_dim,
            .gated_outputs = config_.gated_ffn() ? 2 * config_.d_ff : 0};
  }

  absl::Status MakeRows(int64_t rows, int64_t cols, DType dtype, Buffer* memory, Rows* result) {
    const auto count = static_cast<size_t>(rows * cols);
    TLM_ASSIGN_OR_RETURN(
        *memory, ops_.device().Allocate(count * DTypeBytes(dtype), MemoryPurpose::kActivations));
    *result = {memory->data(), rows, cols, cols, dtype};
    if (dtype == DType::kF32) {
      const std::vector<float> values = RandomFloats(count);
      return ops_.device().CopyToDevice(memory->data(), values.data(), count * sizeof(float));
    }
    const std::vector<uint16_t> values = RandomHalves(count, dtype);
    return ops_.device().CopyToDevice(memory->data(), values.data(), count * sizeof(uint16_t));
  }

  static Rows Part(const Rows& rows, int64_t count, int64_t cols) {
    Rows part = rows.First(count).Columns(0, cols);
    part.stride = cols;
    return part;
  }

  // The median seconds of one of `calls`; the i-th gets i.
  absl::StatusOr<double> Time(const std::function<absl::Status(int)>& call) {
    const uint64_t key = ++keys_ << 32;  // no key of a batch
    const auto all = [&call]() -> absl::Status {
      for (int i = 0; i < kCalls; ++i) TLM_RETURN_IF_ERROR(call(i));
      return absl::OkStatus();
    };
    std::vector<double> seconds;
    double total = 0;
    for (int run = 0; run < 3 || total < absl::GetFlag(FLAGS_seconds); ++run) {
      const absl::Time begin = absl::Now();
      TLM_RETURN_IF_ERROR(ops_.device().RunCaptured(key, all));
      TLM_RETURN_IF_ERROR(ops_.device().Synchronize());
      const double taken = absl::ToDoubleSeconds(absl::Now() - begin);
      if (run > 0) seconds.push_back(taken / kCalls);  // the first one warms up
      total += taken;
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  void Add(const std::string& name, double seconds, double bytes, double flops) {
    fmt::print("{:<34} {:>10.2f} {:>10.1f} {:>10.1f}\n", name, 1e6 * seconds, bytes / seconds / 1e9,
               flops / seconds / 1e9);
    std::fflush(stdout);
    results_.push_back(
        {{"operation", name}, {"seconds", seconds}, {"bytes", bytes}, {"flops", flops}});
  }

  absl::Status Matrices(const std::vector<int64_t>& rows) {
    const int64_t qkv = config_.q_size() + 2 * config_.kv_size();
    const bool gated = config_.gated_ffn();
    TLM_RETURN_IF_ERROR(MatrixOf("qkv", qkv, config_.d_model, MatrixUse::kPlain, rows));
    TLM_RETURN_IF_ERROR(
        MatrixOf("output", config_.d_model, config_.q_size(), MatrixUse::kPlain, rows));
    TLM_RETURN_IF_ERROR(MatrixOf(gated ? "gate_up" : "up", (gated ? 2 : 1) * config_.d_ff,
                                 config_.d_model, gated ? MatrixUse::kGated : MatrixUse::kPlain,
                                 rows));
    TLM_RETURN_IF_ERROR(MatrixOf("down", config_.d_model, config_.d_ff, MatrixUse::kPlain, rows));
    if (!absl::GetFlag(FLAGS_head)) return absl::OkStatus();
    Buffer memory;
    Rows logits;
    const int64_t most = std::min<int64_t>(64, rows.back());
    TLM_RETURN_IF_ERROR(MakeRows(most, config_.vocab_size, DType::kF32, &memory, &logits));
    std::swap(logits, output_);
    std::vector<int64_t> few;
    for (const int64_t count : rows) {
      if (count <= most) few.push_back(count);
    }
    const absl::Status status =
        MatrixOf("head", config_.vocab_size, config_.d_model, MatrixUse::kPlain, few);
    std::swap(logits, output_);
    return status;
  }

  absl::StatusOr<std::vector<std::unique_ptr<Matrix>>> MakeMatrices(int64_t n, int64_t k,
                                                                    MatrixUse use) {
    const auto count = static_cast<size_t>(n * k);
    const size_t bytes = count * DTypeBytes(weights_);
    const std::vector<float> floats =
        weights_ == DType::kF32 ? RandomFloats(count) : std::vector<float>();
    const std::vector<uint16_t> halves =
        weights_ == DType::kF32 ? std::vector<uint16_t>() : RandomHalves(count, weights_);
    const TensorView view{weights_, tlm::Shape({n, k}),
                          floats.empty() ? static_cast<const void*>(halves.data())
                                         : static_cast<const void*>(floats.data())};
    std::vector<std::unique_ptr<Matrix>> matrices;
    const size_t copies = std::clamp<size_t>(kRotatedBytes / bytes, 1, kCalls);
    for (size_t i = 0; i < copies; ++i) {
      TLM_ASSIGN_OR_RETURN(std::unique_ptr<Matrix> matrix,
                           ops_.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use));
      matrices.push_back(std::move(matrix));
    }
    return matrices;
  }

  absl::Status MatrixOf(const std::string& name, int64_t n, int64_t k, MatrixUse use,
                        const std::vector<int64_t>& rows) {
    TLM_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Matrix>> matrices,
                         MakeMatrices(n, k, use));
    for (const int64_t m : rows) {
      const Rows x = Part(input_, m, k);
      const int64_t outputs = use == MatrixUse::kGated ? n / 2 : n;
      const Rows out = Part(output_, m, outputs);
      TLM_ASSIGN_OR_RETURN(const double seconds, Time([&](int i) {
                             const Matrix& w = *matrices[static_cast<size_t>(i) % matrices.size()];
                             return use == MatrixUse::kGated ? ops_.MatMulGated(x, w, nullptr, out)
                                                             : ops_.MatMul(x, w, {}, out);
                           }));
      const double bytes =
          static_cast<double>(n * k) * static_cast<double>(DTypeBytes(weights_)) +
          static_cast<double>(m * k) * static_cast<double>(DTypeBytes(x.dtype)) +
          static_cast<double>(m * outputs) * static_cast<double>(DTypeBytes(out.dtype));
      Add(fmt::format("{} {}x{} m={}", name, n, k, m), seconds, bytes,
          2.0 * static_cast<double>(m * n) * static_cast<double>(k));
    }
    return absl::OkStatus();
  }

  absl::Status Norms(int64_t count) {
    const std::vector<float> ones(static_cast<size_t>(config_.d_model), 1.0f);
    const TensorView view{DType::kF32, tlm::Shape({config_.d_model}), ones.data()};
    TLM_ASSIGN_OR_RETURN(const Buffer gain, ops_.PackVector({&view, 1}));
    const Norm norm{.gain = gain.as<float>(), .eps = 1e-6f};
    const Rows x = residual_.First(count);
    const Rows delta = Part(input_, count, config_.d_model);
    const Rows out = Part(output_, count, config_.d_model);
    TLM_ASSIGN_OR_RETURN(const double seconds,
                         Time([&](int) { return ops_.AddNorm(x, delta, norm, out); }));
    const double values = static_cast<double>(count * config_.d_model);
    Add(fmt::format("add + norm {} m={}", config_.d_model, count), seconds,
        values * (8.0 + 2.0 * static_cast<double>(DTypeBytes(activations_))), 0);
    return absl::OkStatus();
  }

  // `count` sequences, each with one token that sees `positions`.
  absl::Status Attention(int64_t count, int64_t positions) {
    const int64_t max_blocks = (positions + kBlockTokens - 1) / kBlockTokens;
    KvLayer cache{.dtype = kv_type_,
                  .num_blocks = count * max_blocks,
                  .num_kv_heads = config_.num_kv_heads,
                  .head_dim = config_.head_dim};
    Buffer memory;
    Rows elements;
    TLM_RETURN_IF_ERROR(MakeRows(cache.num_blocks,
                                 static_cast<int64_t>(cache.block_bytes() / DTypeBytes(kv_type_)),
                                 kv_type_, &memory, &elements));
    cache.data = memory.data();
    Batch batch;
    batch.sequences = count;
    batch.max_blocks = max_blocks;
    for (int64_t sequence = 0; sequence < count; ++sequence) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(static_cast<int32_t>(positions - 1));
      batch.sequence_of.push_back(static_cast<int32_t>(sequence));
      for (int64_t block = 0; block < max_blocks; ++block) {
        batch.block_tables.push_back(static_cast<int32_t>(sequence * max_blocks + block));
      }
    }
    TLM_ASSIGN_OR_RETURN(const DeviceBatch on_device, ops_.BeginBatch(batch));
    const int64_t tokens = on_device.layout.tokens;
    const Rows q = Part(input_, tokens, config_.q_size());
    const Rows out = Part(output_, tokens, config_.q_size());
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    TLM_ASSIGN_OR_RETURN(const double seconds, Time([&](int) {
                           return ops_.Attention(q, scale, 0, on_device.layout, cache, out);
                         }));
    TLM_RETURN_IF_ERROR(ops_.EndBatch(Rows()));
    TLM_RETURN_IF_ERROR(ops_.AwaitBatch().status());
    const double seen = static_cast<double>(count * positions);
    const double kv_bytes = static_cast<double>(cache.block_bytes()) / kBlockTokens;
    Add(fmt::format("attention {} x {}", count, positions), seconds, seen * kv_bytes,
        4.0 * seen * static_cast<double>(config_.q_size()));
    return absl::OkStatus();
  }

  Ops& ops_;
  const ModelConfig& config_;
  const DType weights_, activations_, kv_type_;
  BatchLimits limits_;
  Buffer input_memory_, output_memory_, residual_memory_;
  Rows input_, output_, residual_;
  uint64_t keys_ = 0;
  Json results_ = Json::array();
};

absl::Status Main() {
  TLM_ASSIGN_OR_RETURN(const ModelConfig config,
                       ReadBenchConfig({.preset = absl::GetFlag(FLAGS_preset)}));
  TLM_ASSIGN_OR_RETURN(const std::optional<DType> weights,
                       TypeFlag(absl::GetFlag(FLAGS_weights_dtype), "weights_dtype"));
  TLM_ASSIGN_OR_RETURN(const std::vector<int64_t> rows,
                       NumbersFlag(absl::GetFlag(FLAGS_rows), "rows", 1, 65536));
  TLM_ASSIGN_OR_RETURN(const std::vector<int64_t> contexts,
                       NumbersFlag(absl::GetFlag(FLAGS_contexts), "contexts", 1, 1 << 20));
  if (!weights.has_value() || rows.empty() || contexts.empty()) {
    return InvalidArgument("--weights_dtype, --rows and --contexts must not be empty");
  }
  TLM_ASSIGN_OR_RETURN(const Backend backend, BackendFromFlags());
  fmt::print("{}\n{} shapes, {}\n\n", backend.reason, absl::GetFlag(FLAGS_preset),
             DTypeName(*weights));
  OpsBench bench(*backend.ops, config, *weights);
  TLM_RETURN_IF_ERROR(bench.Run(rows, contexts));
  const DeviceInfo& device = backend.ops->device().info();
  return WriteJson({{"preset", absl::GetFlag(FLAGS_preset)},
                    {"weights_dtype", DTypeName(*weights)},
                    {"backend", device.backend},
                    {"device", device.name},
                    {"arithmetic", device.arithmetic},
                    {"operations", bench.results()}},
                   absl::GetFlag(FLAGS_json));
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
