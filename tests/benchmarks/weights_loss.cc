// weights_loss: the loss from storing matrices in fewer bits. See README.md.
//
// Runs two models of the same files, one as stored and one in --weights, over the same windows of
// tokens. For a text: bits per byte of each, and how often the most probable token differs. For any
// tokens: the difference of the logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"

ABSL_FLAG(std::string, model, "", "model directory, with tokenizer.json where --text is given");
ABSL_FLAG(std::string, preset, "", "known shape with random weights, in place of --model");
ABSL_FLAG(std::string, kv_cache_dtype, "", "of keys and values; empty: the backend's choices");
ABSL_FLAG(std::string, text, "", "UTF-8 file; empty: random tokens, 4 windows of them");
ABSL_FLAG(int64_t, begin, 0, "first byte of the text that counts, on a character's border");
ABSL_FLAG(int64_t, bytes, 0, "how many count; 0: all from there");
ABSL_FLAG(int64_t, window, 1024, "tokens a model sees at once");
ABSL_FLAG(int64_t, stride, 256, "by which windows advance: only their new tokens count");
ABSL_FLAG(int32_t, first_token, 0, "stands before the text");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

// Tokens, the one before the first included, and the bytes they stand for.
struct Sample {
  std::vector<int32_t> tokens;
  int64_t bytes = 0;  // 0: of no text
};

absl::StatusOr<Sample> SampleText(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string all, ReadFile(path, kMaxFileBytes));
  const int64_t begin = absl::GetFlag(FLAGS_begin);
  const int64_t bytes = absl::GetFlag(FLAGS_bytes);
  if (begin < 0 || begin >= static_cast<int64_t>(all.size()) || bytes < 0) {
    return InvalidArgument("--begin is {} and --bytes {}, the text has {} bytes", begin, bytes,
                           all.size());
  }
  const std::string text = all.substr(static_cast<size_t>(begin),
                                      bytes == 0 ? std::string::npos : static_cast<size_t>(bytes));
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                       Tokenizer::Load(absl::GetFlag(FLAGS_model) + "/tokenizer.json"));
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(text, false));
  Sample sample{.tokens = {absl::GetFlag(FLAGS_first_token)},
                .bytes = static_cast<int64_t>(text.size())};
  sample.tokens.insert(sample.tokens.end(), ids.begin(), ids.end());
  return sample;
}

Sample RandomSample(int64_t vocab_size, int64_t window) {
  constexpr int64_t kWindows = 4;
  std::mt19937_64 random(1);
  Sample sample;
  for (int64_t i = 0; i <= kWindows * window; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
  return sample;
}

// Sums over positions, of both models.
struct Loss {
  double stored_bits = 0;
  double changed_bits = 0;
  double square_difference = 0;
  double square = 0;
  int64_t positions = 0;
  int64_t other_token = 0;  // the likeliest one
};

double BitsOf(std::span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return (std::log(sum) + largest - logits[static_cast<size_t>(token)]) / std::log(2.0);
}

void Compare(std::span<const float> stored, std::span<const float> changed, int32_t next,
             Loss& loss) {
  loss.stored_bits += BitsOf(stored, next);
  loss.changed_bits += BitsOf(changed, next);
  for (size_t i = 0; i < stored.size(); ++i) {
    const double difference = double{changed[i]} - stored[i];
    loss.square_difference += difference * difference;
    loss.square += double{stored[i]} * stored[i];
  }
  const auto likeliest = [](std::span<const float> logits) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  };
  loss.other_token += likeliest(stored) != likeliest(changed) ? 1 : 0;
  ++loss.positions;
}

// Tokens [start, start + count) of one sequence, with the logits of those from `counted` on.
Batch WindowBatch(const Sample& sample, int64_t start, int64_t count, int64_t counted) {
  Batch batch;
  batch.sequences = 1;
  batch.max_blocks = (count + kBlockTokens - 1) / kBlockTokens;
  for (int64_t block = 0; block < batch.max_blocks; ++block) {
    batch.block_tables.push_back(static_cast<int32_t>(block));
  }
  for (int64_t i = 0; i < count; ++i) {
    batch.token_ids.push_back(sample.tokens[static_cast<size_t>(start + i)]);
    batch.positions.push_back(static_cast<int32_t>(i));
    batch.sequence_of.push_back(0);
    if (start + i < counted) continue;
    batch.host_rows.push_back(static_cast<int32_t>(batch.logits_rows.size()));
    batch.logits_rows.push_back(static_cast<int32_t>(i));
  }
  return batch;
}

absl::StatusOr<Loss> Measure(const Sample& sample, LanguageModel& stored, LanguageModel& changed,
                             int64_t window, int64_t stride) {
  Loss loss;
  const int64_t predictions = static_cast<int64_t>(sample.tokens.size()) - 1;
  const auto vocab = static_cast<size_t>(stored.vocab_size());
  for (int64_t done = 0; done < predictions;) {
    const int64_t end = std::min(done == 0 ? window : done + stride, predictions);
    const int64_t start = std::max<int64_t>(0, end - window);
    const Batch batch = WindowBatch(sample, start, end - start, done);
    TLM_ASSIGN_OR_RETURN(const BatchResult a, stored.Forward(batch));
    TLM_ASSIGN_OR_RETURN(const BatchResult b, changed.Forward(batch));
    for (int64_t i = done; i < end; ++i) {
      const size_t at = static_cast<size_t>(i - done) * vocab;
      Compare(a.logits.subspan(at, vocab), b.logits.subspan(at, vocab),
              sample.tokens[static_cast<size_t>(i + 1)], loss);
    }
    done = end;
  }
  return loss;
}

absl::Status Report(const Sample& sample, const Loss& loss, const BenchModel& stored,
                    const BenchModel& changed) {
  const double positions = static_cast<double>(loss.positions);
  const double relative = std::sqrt(loss.square_difference / loss.square);
  nlohmann::ordered_json report = {{"model", stored.name},
                                   {"device", stored.backend.ops->device().info().name},
                                   {"weights", DTypeName(changed.weights_dtype)},
                                   {"weights_before", DTypeName(stored.weights_dtype)},
                                   {"kv", DTypeName(changed.kv_dtype)},
                                   {"kv_before", DTypeName(stored.kv_dtype)},
                                   {"positions", loss.positions},
                                   {"logits_relative_l2", relative},
                                   {"other_likeliest_token", loss.other_token / positions}};
  fmt::print("{}\n{}: {} with keys and values of {}, against {} with {}\n",
             stored.backend.ops->device().info().name, stored.name,
             DTypeName(changed.weights_dtype), DTypeName(changed.kv_dtype),
             DTypeName(stored.weights_dtype), DTypeName(stored.kv_dtype));
  if (sample.bytes > 0) {
    const double bytes = static_cast<double>(sample.bytes);
    report["bytes"] = sample.bytes;
    report["bits_per_byte"] = loss.changed_bits / bytes;
    report["bits_per_byte_before"] = loss.stored_bits / bytes;
    fmt::print("bits per byte: {:.5f}, before {:.5f}, difference {:+.5f} ({:+.3f} %)\n",
               loss.changed_bits / bytes, loss.stored_bits / bytes,
               (loss.changed_bits - loss.stored_bits) / bytes,
               100 * (loss.changed_bits / loss.stored_bits - 1));
  }
  fmt::print("another likeliest token at {} of {} positions ({:.2f} %)\n", loss.other_token,
             loss.positions, 100 * static_cast<double>(loss.other_token) / positions);
  fmt::print("logits: relative L2 difference {:.5f}\n", relative);
  return WriteJson(report, absl::GetFlag(FLAGS_json));
}

absl::Status Run() {
  ModelChoice choice;
  choice.model = absl::GetFlag(FLAGS_model);
  choice.preset = absl::GetFlag(FLAGS_preset);
  TLM_ASSIGN_OR_RETURN(choice.kv_dtype,
                       TypeFlag(absl::GetFlag(FLAGS_kv_cache_dtype), "kv_cache_dtype"));
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(choice));
  const int64_t window = std::min(absl::GetFlag(FLAGS_window), config.context_length);
  const int64_t stride = absl::GetFlag(FLAGS_stride);
  if (window < 1 || stride < 1 || stride > window) {
    return InvalidArgument("--window is {} and --stride {}, 1 <= stride <= window is wanted",
                           window, stride);
  }
  Sample sample;
  if (const std::string path = absl::GetFlag(FLAGS_text); path.empty()) {
    sample = RandomSample(config.vocab_size, window);
  } else {
    TLM_ASSIGN_OR_RETURN(sample, SampleText(path));
  }
  const BatchLimits limits{
      .max_tokens = window, .max_sequences = 1, .max_logits_rows = window, .max_context = window};
  const int64_t blocks = (window + kBlockTokens - 1) / kBlockTokens;
  TLM_ASSIGN_OR_RETURN(Backend backend, BackendFromFlags());
  TLM_ASSIGN_OR_RETURN(const auto stored,
                       LoadBenchModel(choice, std::move(backend), limits, blocks));
  TLM_ASSIGN_OR_RETURN(choice.format, WeightFormatFromFlags());
  TLM_ASSIGN_OR_RETURN(backend, BackendFromFlags());
  TLM_ASSIGN_OR_RETURN(const auto changed,
                       LoadBenchModel(choice, std::move(backend), limits, blocks));
  TLM_ASSIGN_OR_RETURN(const Loss loss,
                       Measure(sample, *stored->model, *changed->model, window, stride));
  return Report(sample, loss, *stored, *changed);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "weights_loss --weights=int8 (--model=DIR [--text=FILE] | --preset=NAME)");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = tlm::bench::Run();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return 1;
}
