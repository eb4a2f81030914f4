// speculation_bench: what guessing tokens gains, and what it costs where it does not. See
// README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/kv_cache/block_table.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/model_flags.h"
#include "tests/benchmarks/speculation/speculation_runs.h"
#include "tests/benchmarks/speculation/tasks.h"

ABSL_FLAG(std::string, corpus, "", "UTF-8 text that prompts and outputs are cut from");
ABSL_FLAG(int64_t, begin, 0, "first byte of it that counts, on a character's border");
ABSL_FLAG(std::string, tokenizer, "", "directory of tokenizer.json; empty: that of --model");
ABSL_FLAG(std::string, draft_model, "", "model directory or GGUF file that guesses; empty: none");
ABSL_FLAG(std::string, draft_preset, "", "its shape with random weights, in place of it");
ABSL_FLAG(std::vector<std::string>, draft_agreement, (std::vector<std::string>{"0.8", "0"}),
          "part of its guesses that are right, 0 to 1");
ABSL_FLAG(std::vector<std::string>, streams, (std::vector<std::string>{"1", "4", "16"}),
          "outputs at the same time");
ABSL_FLAG(std::vector<std::string>, tasks, {}, "names of those to run; empty: all");
ABSL_FLAG(int64_t, prompt_tokens, 384, "of a prompt, about");
ABSL_FLAG(int64_t, output_tokens, 384, "of an output");
ABSL_FLAG(int32_t, rounds, 5, "of each test, one more before them");
ABSL_FLAG(int64_t, changed, 64, "claimed outputs with one changed token");
ABSL_FLAG(std::string, speculation, "auto", "that is held against none: auto or always");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

// Of a step, as the server has them.
constexpr int64_t kStepTokens = 512;
constexpr int64_t kDraftRows = 128;
constexpr int64_t kHostLogitsBytes = int64_t{64} << 20;
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;

absl::StatusOr<Speculation> SpeculationFromFlags() {
  const std::string name = absl::GetFlag(FLAGS_speculation);
  if (name == "auto") return Speculation::kAuto;
  if (name == "always") return Speculation::kAlways;
  return InvalidArgument("--speculation is '{}', not auto or always", name);
}

struct Plan {
  ModelChoice model;
  std::optional<ModelChoice> draft;
  std::vector<int64_t> streams;
  std::vector<double> agreements;

  int64_t most_streams() const { return *std::ranges::max_element(streams); }
};

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromFlags(const Plan& plan) {
  std::string directory = absl::GetFlag(FLAGS_tokenizer);
  if (directory.empty()) directory = plan.model.model;
  if (directory.empty()) return InvalidArgument("with --preset, give a --tokenizer");
  return Tokenizer::Load(directory + "/tokenizer.json");
}

// `tokenizer` outlives the tasks' constraints.
absl::StatusOr<std::vector<Task>> TasksFromFlags(const Plan& plan, const Tokenizer& tokenizer) {
  constexpr size_t kMaxCorpusBytes = size_t{256} << 20;
  TLM_ASSIGN_OR_RETURN(const std::string corpus,
                       ReadFile(absl::GetFlag(FLAGS_corpus), kMaxCorpusBytes));
  const int64_t begin = absl::GetFlag(FLAGS_begin);
  if (begin < 0 || begin >= std::ssize(corpus)) {
    return InvalidArgument("--begin is {}, the corpus has {} bytes", begin, corpus.size());
  }
  TLM_ASSIGN_OR_RETURN(
      std::vector<Task> tasks,
      MakeTasks(tokenizer, std::string_view(corpus).substr(static_cast<size_t>(begin)),
                {.pieces = plan.most_streams(),
                 .prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens),
                 .output_tokens = absl::GetFlag(FLAGS_output_tokens),
                 .own_text = !plan.model.model.empty()}));
  const std::vector<std::string> names = absl::GetFlag(FLAGS_tasks);
  for (const std::string& name : names) {
    if (std::ranges::find(tasks, name, &Task::name) != tasks.end()) continue;
    return InvalidArgument("--tasks: there is no '{}'", name);
  }
  if (!names.empty()) {
    std::erase_if(tasks,
                  [&](const Task& task) { return std::ranges::count(names, task.name) == 0; });
  }
  return tasks;
}

absl::StatusOr<std::vector<double>> AgreementsFromFlags() {
  std::vector<double> agreements;
  for (const std::string& text : absl::GetFlag(FLAGS_draft_agreement)) {
    double number = -1;
    if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number <= 1)) {
      return InvalidArgument("--draft_agreement has '{}', not 0 to 1", text);
    }
    agreements.push_back(number);
  }
  return agreements;
}

absl::StatusOr<Plan> PlanFromFlags() {
  constexpr int64_t kMax = 1 << 20;
  Plan plan;
  TLM_ASSIGN_OR_RETURN(plan.model, ModelFromFlags());
  const std::string draft = absl::GetFlag(FLAGS_draft_model);
  const std::string draft_preset = absl::GetFlag(FLAGS_draft_preset);
  if (!draft.empty() || !draft_preset.empty()) {
    plan.draft = plan.model;
    plan.draft->model = draft;
    plan.draft->preset = draft_preset;
  }
  TLM_ASSIGN_OR_RETURN(plan.streams, NumbersFlag(absl::GetFlag(FLAGS_streams), "streams", 1, 4096));
  if (plan.streams.empty()) return InvalidArgument("--streams is empty");
  TLM_ASSIGN_OR_RETURN(plan.agreements, AgreementsFromFlags());
  for (const auto& [value, least, name] :
       {std::tuple(absl::GetFlag(FLAGS_prompt_tokens), 16, "prompt_tokens"),
        std::tuple(absl::GetFlag(FLAGS_output_tokens), 2, "output_tokens"),
        std::tuple(absl::GetFlag(FLAGS_changed), 0, "changed"),
        std::tuple(int64_t{absl::GetFlag(FLAGS_rounds)}, 1, "rounds")}) {
    if (value >= least && value <= kMax) continue;
    return InvalidArgument("--{} is {}, not {} to {}", name, value, least, kMax);
  }
  TLM_RETURN_IF_ERROR(SpeculationFromFlags().status());
  if (absl::GetFlag(FLAGS_corpus).empty()) return InvalidArgument("give a --corpus");
  return plan;
}

BatchLimits LimitsFor(const std::vector<Task>& tasks, int64_t streams, int64_t vocab_size,
                      Ops& ops) {
  BatchLimits limits{.max_tokens = std::max(kStepTokens, streams),
                     .max_sequences = streams,
                     .max_draft_rows = kDraftRows};
  for (const Task& task : tasks) {
    for (const Piece& piece : task.pieces) {
      limits.max_context = std::max(limits.max_context,
                                    std::ssize(piece.prompt) + absl::GetFlag(FLAGS_output_tokens));
    }
  }
  const int64_t bytes = ops.device().info().backend == "cpu" ? kHostLogitsBytes : kGpuLogitsBytes;
  const int64_t row_bytes = vocab_size * static_cast<int64_t>(sizeof(float));
  limits.max_logits_rows = std::clamp(bytes / row_bytes, streams, limits.max_tokens);
  return limits;
}

absl::Status CheckFits(const std::vector<Task>& tasks, int64_t context, const ModelConfig& config,
                       std::string_view name) {
  if (context > config.context_length) {
    return InvalidArgument("prompt and output have {} tokens, the context of {} is {}", context,
                           name, config.context_length);
  }
  for (const Task& task : tasks) {
    for (const Piece& piece : task.pieces) {
      for (const auto& ids : {piece.prompt, piece.output}) {
        if (ids.empty() || *std::ranges::max_element(ids) < config.vocab_size) continue;
        return InvalidArgument("the tokenizer has more tokens than {}, {}", name,
                               config.vocab_size);
      }
    }
  }
  return absl::OkStatus();
}

// The model, and the one that guesses, null without one, on its backend.
struct Models {
  std::unique_ptr<BenchModel> model;
  std::unique_ptr<BenchModel> draft;
};

absl::StatusOr<Models> LoadModels(const Plan& plan, const std::vector<Task>& tasks) {
  TLM_ASSIGN_OR_RETURN(Backend backend, BackendFromFlags());
  fmt::print("{}\n", backend.reason);
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(plan.model));
  const BatchLimits limits = LimitsFor(tasks, plan.most_streams(), config.vocab_size, *backend.ops);
  const int64_t blocks = limits.max_sequences * (BlocksFor(limits.max_context) + 1);
  TLM_RETURN_IF_ERROR(CheckFits(tasks, limits.max_context, config, "the model"));
  Models models;
  TLM_ASSIGN_OR_RETURN(models.model,
                       LoadBenchModel(plan.model, std::move(backend), limits, blocks));
  if (!plan.draft.has_value()) return models;
  TLM_ASSIGN_OR_RETURN(const ModelConfig draft, ReadBenchConfig(*plan.draft));
  TLM_RETURN_IF_ERROR(CheckFits(tasks, limits.max_context, draft, "the draft model"));
  if (draft.vocab_size != config.vocab_size) {
    return InvalidArgument("the draft model has {} tokens, the model {}", draft.vocab_size,
                           config.vocab_size);
  }
  TLM_ASSIGN_OR_RETURN(models.draft,
                       LoadBenchModel(*plan.draft, *models.model->backend.ops, limits, blocks));
  return models;
}

absl::Status RunAll(const Plan& plan, const std::vector<Task>& tasks, SpeculationBench& bench,
                    bool has_draft) {
  fmt::print("\n{:<8} {:>7} {:>6} {:>9} {:>9} {:>6} {:>11} {:>7} {:>7} {:>7} {:>7} {:>8}\n", "task",
             "streams", "agree", "off tok/s", "on tok/s", "ratio", "", "tokens", "again %",
             "forced", "drafted", "accepted");
  for (const int64_t streams : plan.streams) {
    for (const Task& task : tasks) {
      TLM_RETURN_IF_ERROR(bench.TimeTask(task, streams, std::nullopt));
      for (size_t i = 0; has_draft && i < plan.agreements.size(); ++i) {
        // The model's own text is guessed by the draft model itself.
        if (!task.taught() && i > 0) continue;
        TLM_RETURN_IF_ERROR(bench.TimeTask(task, streams, plan.agreements[i]));
      }
    }
  }
  return bench.TimeVerify();
}

absl::StatusOr<bool> Main() {
  TLM_ASSIGN_OR_RETURN(const Plan plan, PlanFromFlags());
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerFromFlags(plan));
  TLM_ASSIGN_OR_RETURN(const std::vector<Task> tasks, TasksFromFlags(plan, *tokenizer));
  TLM_ASSIGN_OR_RETURN(const Models models, LoadModels(plan, tasks));
  TLM_ASSIGN_OR_RETURN(const Speculation speculation, SpeculationFromFlags());
  SpeculationBench bench(*models.model, models.draft.get(), tasks,
                         {.output_tokens = absl::GetFlag(FLAGS_output_tokens),
                          .rounds = absl::GetFlag(FLAGS_rounds),
                          .changed = absl::GetFlag(FLAGS_changed),
                          .speculation = speculation});
  TLM_RETURN_IF_ERROR(RunAll(plan, tasks, bench, models.draft != nullptr));
  Json report = ToJson(*models.model);
  report["draft_model"] = models.draft == nullptr ? Json() : Json(models.draft->name);
  report["speculation"] = absl::GetFlag(FLAGS_speculation);
  report["prompt_tokens"] = absl::GetFlag(FLAGS_prompt_tokens);
  report["output_tokens"] = absl::GetFlag(FLAGS_output_tokens);
  report["rounds"] = absl::GetFlag(FLAGS_rounds);
  report["tests"] = bench.results();
  TLM_RETURN_IF_ERROR(WriteJson(report, absl::GetFlag(FLAGS_json)));
  return bench.all_met();
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Tokens/s with and without guessed tokens, in turns, and the time to verify an output.\n"
      "  speculation_bench --model=model/demo --corpus=TEXT\n"
      "  speculation_bench --preset=qwen3-0.6b --tokenizer=model/demo --corpus=TEXT");
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> all_met = tlm::bench::Main();
  if (all_met.ok()) return *all_met ? 0 : 1;
  fmt::print(stderr, "speculation_bench: {}\n", std::string(all_met.status().message()));
  return 1;
}
