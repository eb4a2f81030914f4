// weights_loss: the loss from storing matrices, or keys and values, in fewer bits. See README.md.
//
// Runs a model as its files store it, and in each of --weights, and with each of --kv_cache_dtype,
// over the same windows of tokens.
// For a text: bits per byte of each, and how often the most probable token differs. For any tokens:
// the difference of the logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_gguf.h"
#include "model/weights/model_files.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"

ABSL_FLAG(std::string, model, "",
          "model directory, with tokenizer.json where --text is given, or GGUF file");
ABSL_FLAG(std::string, preset, "", "known shape with random weights, in place of --model");
ABSL_FLAG(std::string, reference, "", "model to compare with; empty: --model as it is stored");
ABSL_FLAG(std::vector<std::string>, kv_cache_dtype, {},
          "of keys and values: of all rows the first; each other in a row with the weights as they "
          "are stored; none: the backend's choices");
ABSL_FLAG(std::string, text, "", "UTF-8 file; empty: random tokens, 4 windows of them");
ABSL_FLAG(int64_t, begin, 0, "first byte of the text that counts, on a character's border");
ABSL_FLAG(int64_t, bytes, 0, "how many count; 0: all from there");
ABSL_FLAG(int64_t, window, 1024, "tokens a model sees at once");
ABSL_FLAG(int64_t, stride, 256, "by which windows advance: only their new tokens count");
ABSL_FLAG(int32_t, first_token, 0, "stands before the text");
ABSL_FLAG(std::string, calibration, "",
          "text by which weights of 4 bits are quantised; empty: none");
ABSL_FLAG(int64_t, calibration_bytes, 0, "how many of them count; 0: all");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

// Tokens, the one before the first included, and the bytes they stand for.
struct Sample {
  std::vector<int32_t> tokens;
  int64_t bytes = 0;  // 0: of no text
};

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model) {
  TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(model));
  if (!files.is_gguf()) return Tokenizer::Load(model + "/tokenizer.json");
  TLM_ASSIGN_OR_RETURN(const TokenizerDescription description, ReadGgufTokenizer(files.metadata()));
  return Tokenizer::Create(description);
}

absl::StatusOr<std::vector<int32_t>> EncodeText(const std::string& text) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                       LoadTokenizer(absl::GetFlag(FLAGS_model)));
  return tokenizer->Encode(text, false);
}

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
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodeText(text));
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

// Sums over positions.
struct Loss {
  double bits = 0;
  double square_difference = 0;  // of logits, to the reference
  int64_t other_token = 0;       // the likeliest one is not the reference's
};
struct Losses {
  double reference_bits = 0;
  double reference_square = 0;
  int64_t positions = 0;
  std::vector<Loss> changed;
};

double BitsOf(std::span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return (std::log(sum) + largest - logits[static_cast<size_t>(token)]) / std::log(2.0);
}

int64_t LikeliestOf(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

void Compare(std::span<const float> reference, std::span<const float> changed, int32_t next,
             Loss& loss) {
  loss.bits += BitsOf(changed, next);
  for (size_t i = 0; i < reference.size(); ++i) {
    const double difference = double{changed[i]} - reference[i];
    loss.square_difference += difference * difference;
  }
  loss.other_token += LikeliestOf(reference) != LikeliestOf(changed) ? 1 : 0;
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

using Models = std::vector<std::unique_ptr<BenchModel>>;

// Of the models behind the first one, which is the reference.
absl::StatusOr<Losses> Measure(const Sample& sample, const Models& models, int64_t window,
                               int64_t stride) {
  Losses losses;
  losses.changed.resize(models.size() - 1);
  const int64_t predictions = static_cast<int64_t>(sample.tokens.size()) - 1;
  const auto vocab = static_cast<size_t>(models.front()->model->vocab_size());
  for (int64_t done = 0; done < predictions;) {
    const int64_t end = std::min(done == 0 ? window : done + stride, predictions);
    const int64_t start = std::max<int64_t>(0, end - window);
    const Batch batch = WindowBatch(sample, start, end - start, done);
    TLM_ASSIGN_OR_RETURN(const BatchResult reference, models.front()->model->Forward(batch));
    for (size_t m = 1; m < models.size(); ++m) {
      TLM_ASSIGN_OR_RETURN(const BatchResult changed, models[m]->model->Forward(batch));
      for (int64_t i = done; i < end; ++i) {
        const size_t at = static_cast<size_t>(i - done) * vocab;
        Compare(reference.logits.subspan(at, vocab), changed.logits.subspan(at, vocab),
                sample.tokens[static_cast<size_t>(i + 1)], losses.changed[m - 1]);
      }
    }
    for (int64_t i = done; i < end; ++i) {
      const size_t at = static_cast<size_t>(i - done) * vocab;
      const std::span<const float> logits = reference.logits.subspan(at, vocab);
      losses.reference_bits += BitsOf(logits, sample.tokens[static_cast<size_t>(i + 1)]);
      for (const float logit : logits) losses.reference_square += double{logit} * logit;
    }
    losses.positions += end - done;
    done = end;
  }
  return losses;
}

uint64_t StoredBytesOf(const BenchModel& model) {
  uint64_t stored = 0;
  for (const auto& [dtype, bytes] : model.model->WeightBytes()) stored += bytes;
  return stored;
}

nlohmann::ordered_json Row(const Sample& sample, const Losses& losses, const Loss& loss,
                           const BenchModel& model) {
  const double relative = std::sqrt(loss.square_difference / losses.reference_square);
  nlohmann::ordered_json row = {
      {"model", model.name},
      {"weights", model.format_name},
      {"kv", DTypeName(model.kv_dtype)},
      {"stored_bytes", StoredBytesOf(model)},
      {"other_likeliest_token",
       static_cast<double>(loss.other_token) / static_cast<double>(losses.positions)},
      {"logits_relative_l2", relative}};
  if (sample.bytes > 0) row["bits_per_byte"] = loss.bits / static_cast<double>(sample.bytes);
  if (sample.bytes > 0) row["ratio"] = loss.bits / losses.reference_bits;
  return row;
}

void Print(const nlohmann::ordered_json& row) {
  const auto number = [&row](const char* key, const char* format) {
    return row.contains(key) ? fmt::format(fmt::runtime(format), row[key].get<double>()) : "-";
  };
  fmt::print("{:10} {:8} {:>9.1f} {:>10} {:>9} {:>8.2f} {:>9.5f}\n",
             row["weights"].get<std::string>(), row["kv"].get<std::string>(),
             row["stored_bytes"].get<double>() / (1 << 20), number("bits_per_byte", "{:.5f}"),
             number("ratio", "{:.5f}"), 100 * row["other_likeliest_token"].get<double>(),
             row["logits_relative_l2"].get<double>());
}

absl::Status Report(const Sample& sample, const Losses& losses, const Models& models) {
  fmt::print("{}\n{} positions; the reference is {}\n",
             models[0]->backend.ops->device().info().name, losses.positions, models[0]->name);
  fmt::print("{:10} {:8} {:>9} {:>10} {:>9} {:>8} {:>9}\n", "weights", "kv", "MiB", "bits/byte",
             "ratio", "other %", "logits L2");
  nlohmann::ordered_json report = {{"device", models[0]->backend.ops->device().info().name},
                                   {"positions", losses.positions},
                                   {"bytes", sample.bytes},
                                   {"rows", nlohmann::ordered_json::array()}};
  for (size_t m = 0; m < models.size(); ++m) {
    const Loss loss = m > 0 ? losses.changed[m - 1] : Loss{.bits = losses.reference_bits};
    report["rows"].push_back(Row(sample, losses, loss, *models[m]));
    Print(report["rows"].back());
  }
  return WriteJson(report, absl::GetFlag(FLAGS_json));
}

struct Window {
  int64_t tokens = 0;
  int64_t stride = 0;
};

absl::StatusOr<Window> WindowFromFlags(const ModelConfig& config) {
  const Window window{std::min(absl::GetFlag(FLAGS_window), config.context_length),
                      absl::GetFlag(FLAGS_stride)};
  if (window.tokens < 1 || window.stride < 1 || window.stride > window.tokens) {
    return InvalidArgument("--window is {} and --stride {}, 1 <= stride <= window is wanted",
                           window.tokens, window.stride);
  }
  return window;
}

absl::StatusOr<Sample> SampleFromFlags(const ModelConfig& config, int64_t window) {
  if (absl::GetFlag(FLAGS_text).empty()) return RandomSample(config.vocab_size, window);
  return SampleText(absl::GetFlag(FLAGS_text));
}

absl::StatusOr<std::optional<InputImportance>> ImportanceFromFlags(const ModelChoice& choice) {
  const std::string path = absl::GetFlag(FLAGS_calibration);
  if (path.empty()) return std::optional<InputImportance>();
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  const int64_t bytes = absl::GetFlag(FLAGS_calibration_bytes);
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                       EncodeText(bytes == 0 ? text : text.substr(0, static_cast<size_t>(bytes))));
  TLM_ASSIGN_OR_RETURN(const Backend backend, BackendFromFlags());
  TLM_ASSIGN_OR_RETURN(InputImportance importance,
                       MeasureBenchImportance(choice, *backend.ops, tokens));
  return importance;
}

absl::StatusOr<std::vector<DType>> KvTypesFromFlags() {
  std::vector<DType> types;
  for (const std::string& name : absl::GetFlag(FLAGS_kv_cache_dtype)) {
    TLM_ASSIGN_OR_RETURN(const std::optional<DType> type, KvTypeFlag(name));
    if (type.has_value()) types.push_back(*type);
  }
  return types;
}

absl::Status Run() {
  ModelChoice choice;
  choice.model = absl::GetFlag(FLAGS_model);
  choice.preset = absl::GetFlag(FLAGS_preset);
  TLM_ASSIGN_OR_RETURN(const std::vector<DType> kv_types, KvTypesFromFlags());
  if (!kv_types.empty()) choice.kv_dtype = kv_types.front();
  TLM_ASSIGN_OR_RETURN(const std::vector<WeightFormat> formats, WeightFormatsFromFlags());
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(choice));
  TLM_ASSIGN_OR_RETURN(const Window window, WindowFromFlags(config));
  TLM_ASSIGN_OR_RETURN(const Sample sample, SampleFromFlags(config, window.tokens));
  TLM_ASSIGN_OR_RETURN(const auto importance, ImportanceFromFlags(choice));
  const BatchLimits limits{.max_tokens = window.tokens,
                           .max_sequences = 1,
                           .max_logits_rows = window.tokens,
                           .max_context = window.tokens};
  const int64_t blocks = (window.tokens + kBlockTokens - 1) / kBlockTokens;
  Models models;
  const auto load = [&](const ModelChoice& of) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(Backend backend, BackendFromFlags());
    TLM_ASSIGN_OR_RETURN(auto model, LoadBenchModel(of, std::move(backend), limits, blocks));
    models.push_back(std::move(model));
    return absl::OkStatus();
  };
  ModelChoice reference = choice;
  if (const std::string path = absl::GetFlag(FLAGS_reference); !path.empty()) {
    reference.model = path;
    reference.preset.clear();
  }
  TLM_RETURN_IF_ERROR(load(reference));
  for (size_t i = 1; i < kv_types.size(); ++i) {
    reference.kv_dtype = kv_types[i];
    TLM_RETURN_IF_ERROR(load(reference));
  }
  choice.importance = importance.has_value() ? &*importance : nullptr;
  for (const WeightFormat format : formats) {
    // That is the reference itself.
    if (format == WeightFormat::kAsGiven && absl::GetFlag(FLAGS_reference).empty()) continue;
    choice.format = format;
    TLM_RETURN_IF_ERROR(load(choice));
  }
  for (const auto& model : models) {
    if (model->model->vocab_size() != models.front()->model->vocab_size()) {
      return InvalidArgument("--reference={} has another vocabulary", reference.model);
    }
  }
  TLM_ASSIGN_OR_RETURN(const Losses losses, Measure(sample, models, window.tokens, window.stride));
  return Report(sample, losses, models);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "weights_loss --weights=int8,int4 (--model=DIR [--text=FILE] | --preset=NAME)");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = tlm::bench::Run();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", std::string(status.message()));
  return 1;
}
