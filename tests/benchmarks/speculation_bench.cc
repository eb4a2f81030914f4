// speculation_bench: what guessing tokens gains, and what it costs where it does not. See
// README.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/kv_cache/block_table.h"
#include "server/batching/engine.h"
#include "server/speculation/draft_model.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/model_flags.h"
#include "tests/benchmarks/engine/request_run.h"
#include "tests/benchmarks/engine/statistics.h"
#include "tests/benchmarks/speculation/tasks.h"
#include "tests/benchmarks/speculation/teacher.h"

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
using Outputs = std::vector<std::vector<int32_t>>;

// Of a step, as the server has them.
constexpr int64_t kStepTokens = 512;
constexpr int64_t kDraftRows = 128;
constexpr int64_t kHostLogitsBytes = int64_t{64} << 20;
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;
constexpr double kVerifyBar = 5;
constexpr size_t kVerifyPromptTokens = 32;

// A run of a task's requests on one engine.
struct Figures {
  double seconds = 0;            // from the first request to the last token
  double tokens_per_second = 0;  // once every output has a token
  int64_t forced = 0;
  SpeculationCounts speculation;
  Outputs outputs;
};

// Engines without and with speculation, in turns.
struct Comparison {
  std::array<std::vector<double>, 2> rates;  // by engine and round
  std::vector<double> ratios;                // by round
  std::array<Figures, 2> last;               // by engine
  Outputs outputs;                           // of every run
};

struct Verdict {
  double value = 0;
  double bar = 0;
  bool met() const { return value >= bar; }
};

// "1.02 NOT MET (>= 1.1)", as compare.py has it.
std::string Describe(const std::optional<Verdict>& verdict) {
  if (!verdict.has_value()) return "";
  return fmt::format("{} (>= {:g})", verdict->met() ? "met" : "NOT MET", verdict->bar);
}

void AddVerdict(const std::optional<Verdict>& verdict, Json& result) {
  result["bar"] = verdict.has_value() ? Json(verdict->bar) : Json();
  if (verdict.has_value()) result["met"] = verdict->met();
}

std::vector<Request> RequestsOf(const Task& task, int64_t streams, int64_t output_tokens) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < streams; ++i) {
    Request& request = requests.emplace_back();
    request.prompt = task.pieces[static_cast<size_t>(i)].prompt;
    GenerateWork& work = request.work.emplace<GenerateWork>();
    work.sampling.temperature = task.temperature;
    work.sampling.seed = static_cast<uint64_t>(i);
    work.stop.max_new_tokens = output_tokens;
    if (task.constraint != nullptr) {
      work.constraint = {.matcher = ConstraintMatcher(task.constraint), .end_ids = {}};
    }
  }
  return requests;
}

std::vector<Lesson> LessonsOf(const Task& task) {
  std::vector<Lesson> lessons;
  if (!task.taught()) return lessons;
  for (const Piece& piece : task.pieces) {
    lessons.push_back({.prompt_tokens = std::ssize(piece.prompt), .output = piece.output});
  }
  return lessons;
}

// The part of the outputs' tokens that stand behind the same two tokens as before in the same
// prompt and output: the most that any guess from these can give.
double Repeated(const Task& task, const Outputs& outputs) {
  int64_t repeated = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int32_t> ids = task.pieces[i].prompt;
    const size_t prompt = ids.size();
    ids.insert(ids.end(), outputs[i].begin(), outputs[i].end());
    std::set<std::array<int32_t, 3>> seen;
    for (size_t end = 2; end < ids.size(); ++end) {
      const bool is_new = seen.insert({ids[end - 2], ids[end - 1], ids[end]}).second;
      if (end >= prompt && !is_new) ++repeated;
    }
    tokens += std::ssize(outputs[i]);
  }
  return static_cast<double>(repeated) / static_cast<double>(tokens);
}

class SpeculationBench {
 public:
  // `draft` may be null. All outlive it.
  SpeculationBench(BenchModel& model, BenchModel* draft, const std::vector<Task>& tasks)
      : teacher_(*model.model), tasks_(tasks) {
    if (draft != nullptr) draft_teacher_.emplace(*draft->model);
  }

  // `agreement`: none, the draft model does not guess.
  absl::Status TimeTask(const Task& task, int64_t streams, std::optional<double> agreement);
  // Of the model's own text.
  absl::Status TimeVerify();

  const Json& results() const { return results_; }
  bool all_met() const { return all_met_; }

 private:
  absl::StatusOr<std::unique_ptr<Engine>> StartEngine(Speculation speculation,
                                                      DraftSource* draft_source = nullptr);
  absl::StatusOr<std::vector<RequestResult>> Run(Engine& engine, std::vector<Request> requests);
  absl::StatusOr<Figures> Measure(Engine& engine, const Task& task, int64_t streams);
  absl::StatusOr<Comparison> Compare(const std::array<Engine*, 2>& engines, const Task& task,
                                     int64_t streams);
  void Report(const Task& task, int64_t streams, std::optional<double> agreement,
              const Comparison& comparison);
  // Claims that differ from an output in one token: how many end with what is drawn in its place.
  absl::StatusOr<int64_t> CountFound(Engine& engine, const Task& task, const Outputs& outputs,
                                     int64_t changed);

  Teacher teacher_;
  std::optional<Teacher> draft_teacher_;
  const std::vector<Task>& tasks_;
  Json results_ = Json::array();
  bool all_met_ = true;
};

absl::StatusOr<Speculation> SpeculationFromFlags() {
  const std::string name = absl::GetFlag(FLAGS_speculation);
  if (name == "auto") return Speculation::kAuto;
  if (name == "always") return Speculation::kAlways;
  return InvalidArgument("--speculation is '{}', not auto or always", name);
}

absl::StatusOr<std::unique_ptr<Engine>> SpeculationBench::StartEngine(Speculation speculation,
                                                                      DraftSource* draft_source) {
  const BatchLimits& limits = teacher_.limits();
  const EngineOptions options{.max_batch_tokens = limits.max_tokens,
                              .max_prefill_tokens = limits.max_tokens,
                              .max_running_requests = limits.max_sequences,
                              .max_queued_requests = 1 << 20,
                              .max_queued_tokens = int64_t{1} << 40,
                              .prefix_cache = false,
                              .max_decode_stretch = 0,
                              .speculation = speculation};
  return Engine::Start(teacher_, options, *Clock::Monotonic(), nullptr, draft_source);
}

absl::StatusOr<std::vector<RequestResult>> SpeculationBench::Run(Engine& engine,
                                                                 std::vector<Request> requests) {
  TLM_ASSIGN_OR_RETURN(std::vector<RequestResult> results,
                       RunRequests(engine, std::move(requests)));
  // Another engine has the next turn.
  teacher_.WaitUntilIdle();
  return results;
}

absl::StatusOr<Figures> SpeculationBench::Measure(Engine& engine, const Task& task,
                                                  int64_t streams) {
  const absl::Time submitted = absl::Now();
  TLM_ASSIGN_OR_RETURN(const std::vector<RequestResult> results,
                       Run(engine, RequestsOf(task, streams, absl::GetFlag(FLAGS_output_tokens))));
  Figures figures;
  absl::Time begin = submitted;
  absl::Time end = submitted;
  for (const RequestResult& result : results) {
    begin = std::max(begin, result.first());
    end = std::max(end, result.last());
    figures.forced += result.end.forced_tokens;
    figures.speculation.drafted += result.end.speculation.drafted;
    figures.speculation.accepted += result.end.speculation.accepted;
    figures.speculation.steps_saved += result.end.speculation.steps_saved;
    figures.outputs.push_back(result.tokens);
  }
  int64_t tokens = 0;
  for (const RequestResult& result : results) {
    // All but the first one that came later.
    tokens += result.arrivals.end() -
              std::upper_bound(result.arrivals.begin() + 1, result.arrivals.end(), begin);
  }
  figures.seconds = absl::ToDoubleSeconds(end - submitted);
  figures.tokens_per_second = static_cast<double>(tokens) / absl::ToDoubleSeconds(end - begin);
  return figures;
}

absl::StatusOr<Comparison> SpeculationBench::Compare(const std::array<Engine*, 2>& engines,
                                                     const Task& task, int64_t streams) {
  Comparison comparison;
  for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t which = (turn + static_cast<size_t>(round)) % 2;
      TLM_ASSIGN_OR_RETURN(Figures figures, Measure(*engines[which], task, streams));
      if (round == 0 && turn == 0) comparison.outputs = figures.outputs;
      if (figures.outputs != comparison.outputs) {
        return Internal("{}: the outputs differ from those of the first run", task.name);
      }
      if (round > 0) comparison.rates[which].push_back(figures.tokens_per_second);
      comparison.last[which] = std::move(figures);
    }
    if (round == 0) continue;
    comparison.ratios.push_back(comparison.rates[1].back() / comparison.rates[0].back());
  }
  for (size_t i = 0; task.taught() && i < comparison.outputs.size(); ++i) {
    if (comparison.outputs[i] == task.pieces[i].output) continue;
    return Internal("{}: output {} is not the one that was taught", task.name, i);
  }
  return comparison;
}

absl::Status SpeculationBench::TimeTask(const Task& task, int64_t streams,
                                        std::optional<double> agreement) {
  TLM_ASSIGN_OR_RETURN(const Speculation speculation, SpeculationFromFlags());
  teacher_.Teach(LessonsOf(task));
  std::optional<DraftModel> draft;
  if (agreement.has_value()) {
    draft_teacher_->Teach(LessonsOf(task), *agreement);
    draft.emplace(*draft_teacher_);
  }
  TLM_ASSIGN_OR_RETURN(const auto off, StartEngine(Speculation::kOff));
  TLM_ASSIGN_OR_RETURN(const auto on, StartEngine(speculation, draft ? &*draft : nullptr));
  TLM_ASSIGN_OR_RETURN(const Comparison comparison, Compare({off.get(), on.get()}, task, streams));
  Report(task, streams, agreement, comparison);
  return absl::OkStatus();
}

void SpeculationBench::Report(const Task& task, int64_t streams, std::optional<double> agreement,
                              const Comparison& comparison) {
  const double ratio = Median(comparison.ratios);
  const auto [least, most] = std::ranges::minmax(comparison.ratios);
  std::optional<Verdict> verdict;
  if (const auto bar = task.Bar(streams, agreement.has_value()); bar.has_value()) {
    verdict = {.value = ratio, .bar = *bar};
    all_met_ = all_met_ && verdict->met();
  }
  const auto& [off, on] = comparison.rates;
  const double repeated = Repeated(task, comparison.outputs);
  const int64_t tokens = streams * absl::GetFlag(FLAGS_output_tokens);
  const SpeculationCounts& counts = comparison.last[1].speculation;
  const int64_t forced = comparison.last[1].forced;
  const std::string agrees = !agreement.has_value() ? "-"
                             : task.taught()        ? fmt::format("{:g}", *agreement)
                                                    : "own";
  fmt::print(
      "{:<8} {:>7} {:>6} {:>9.1f} {:>9.1f} {:>6.2f} {:>11} {:>7} {:>7.0f} {:>7} {:>7} {:>8}  {}\n",
      task.name, streams, agrees, Median(off), Median(on), ratio,
      fmt::format("{:.2f}-{:.2f}", least, most), tokens, 100 * repeated, forced, counts.drafted,
      counts.accepted, Describe(verdict));
  std::fflush(stdout);
  Json result = {{"task", task.name},
                 {"taught", task.taught()},
                 {"streams", streams},
                 {"draft_agreement", agreement.has_value() ? Json(*agreement) : Json()},
                 {"off_tokens_per_second", Median(off)},
                 {"on_tokens_per_second", Median(on)},
                 {"ratio", ratio},
                 {"samples", {{"off", off}, {"on", on}, {"ratio", comparison.ratios}}},
                 {"output_tokens", tokens},
                 {"repeated", repeated},
                 {"forced_tokens", {{"off", comparison.last[0].forced}, {"on", forced}}},
                 {"drafted_tokens", counts.drafted},
                 {"accepted_tokens", counts.accepted},
                 {"steps_saved", counts.steps_saved}};
  AddVerdict(verdict, result);
  results_.push_back(std::move(result));
}

absl::StatusOr<int64_t> SpeculationBench::CountFound(Engine& engine, const Task& task,
                                                     const Outputs& outputs, int64_t changed) {
  std::mt19937_64 random(3);
  std::vector<Request> requests;
  Outputs expected;
  for (int64_t i = 0; i < changed; ++i) {
    std::vector<Request> all =
        RequestsOf(task, std::ssize(outputs), absl::GetFlag(FLAGS_output_tokens));
    const size_t which = static_cast<size_t>(i) % outputs.size();
    GenerateWork& work = *all[which].generate();
    work.claimed = outputs[which];
    const size_t at = random() % work.claimed.size();
    const auto vocab = static_cast<uint64_t>(teacher_.vocab_size());
    work.claimed[at] = static_cast<int32_t>(
        (static_cast<uint64_t>(work.claimed[at]) + 1 + random() % (vocab - 1)) % vocab);
    expected.emplace_back(outputs[which].begin(),
                          outputs[which].begin() + static_cast<std::ptrdiff_t>(at) + 1);
    requests.push_back(std::move(all[which]));
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<RequestResult> results, Run(engine, std::move(requests)));
  int64_t found = 0;
  for (size_t i = 0; i < results.size(); ++i) found += results[i].tokens == expected[i] ? 1 : 0;
  return found;
}

absl::Status SpeculationBench::TimeVerify() {
  Task task{.name = "verify", .pieces = tasks_.front().pieces, .temperature = 0.8f};
  // Both compute the prompt: a short one leaves the claims' own time.
  for (Piece& piece : task.pieces) {
    piece.prompt.resize(std::min(piece.prompt.size(), kVerifyPromptTokens));
  }
  const int64_t tokens = absl::GetFlag(FLAGS_output_tokens);
  teacher_.Teach({});
  TLM_ASSIGN_OR_RETURN(const auto engine, StartEngine(Speculation::kOff));
  TLM_ASSIGN_OR_RETURN(const Figures all, Measure(*engine, task, std::ssize(task.pieces)));
  std::vector<double> generated, verified, ratios;
  for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    TLM_ASSIGN_OR_RETURN(const Figures made, Measure(*engine, task, 1));
    std::vector<Request> claims = RequestsOf(task, 1, tokens);
    claims.front().generate()->claimed = made.outputs.front();
    const absl::Time begin = absl::Now();
    TLM_ASSIGN_OR_RETURN(const std::vector<RequestResult> results, Run(*engine, std::move(claims)));
    const double seconds = absl::ToDoubleSeconds(results.front().last() - begin);
    if (made.outputs.front() != all.outputs.front() ||
        results.front().tokens != all.outputs.front()) {
      return Internal("a claimed output is not the one that was generated");
    }
    if (round == 0) continue;
    generated.push_back(made.seconds);
    verified.push_back(seconds);
    ratios.push_back(made.seconds / seconds);
  }
  const int64_t changed = absl::GetFlag(FLAGS_changed);
  TLM_ASSIGN_OR_RETURN(const int64_t found, CountFound(*engine, task, all.outputs, changed));
  const Verdict faster{.value = Median(ratios), .bar = kVerifyBar};
  const Verdict complete{.value = static_cast<double>(found), .bar = static_cast<double>(changed)};
  all_met_ = all_met_ && faster.met() && complete.met();
  const auto [least, most] = std::ranges::minmax(ratios);
  fmt::print("\nverifying {:.4f} s, generating {:.4f} s, ratio {:.1f} ({:.1f}-{:.1f}): {}\n",
             Median(verified), Median(generated), faster.value, least, most, Describe(faster));
  fmt::print("changed tokens found: {} of {}: {}\n", found, changed, Describe(complete));
  Json result = {{"task", task.name},
                 {"output_tokens", tokens},
                 {"verify_seconds", Median(verified)},
                 {"generate_seconds", Median(generated)},
                 {"ratio", faster.value},
                 {"samples", {{"verify", verified}, {"generate", generated}, {"ratio", ratios}}},
                 {"changed", changed},
                 {"found", found}};
  AddVerdict(faster, result);
  results_.push_back(std::move(result));
  return absl::OkStatus();
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
  SpeculationBench bench(*models.model, models.draft.get(), tasks);
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
