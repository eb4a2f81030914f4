#include "tests/benchmarks/speculation/speculation_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "server/speculation/draft_model.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kVerifyBar = 5;
constexpr size_t kVerifyPromptTokens = 32;

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

}  // namespace

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
                       Run(engine, RequestsOf(task, streams, options_.output_tokens)));
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
  for (int round = 0; round <= options_.rounds; ++round) {
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
  teacher_.Teach(LessonsOf(task));
  std::optional<DraftModel> draft;
  if (agreement.has_value()) {
    draft_teacher_->Teach(LessonsOf(task), *agreement);
    draft.emplace(*draft_teacher_);
  }
  TLM_ASSIGN_OR_RETURN(const auto off, StartEngine(Speculation::kOff));
  TLM_ASSIGN_OR_RETURN(const auto on, StartEngine(options_.speculation, draft ? &*draft : nullptr));
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
  const int64_t tokens = streams * options_.output_tokens;
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
    std::vector<Request> all = RequestsOf(task, std::ssize(outputs), options_.output_tokens);
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
  const int64_t tokens = options_.output_tokens;
  teacher_.Teach({});
  TLM_ASSIGN_OR_RETURN(const auto engine, StartEngine(Speculation::kOff));
  TLM_ASSIGN_OR_RETURN(const Figures all, Measure(*engine, task, std::ssize(task.pieces)));
  std::vector<double> generated, verified, ratios;
  for (int round = 0; round <= options_.rounds; ++round) {
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
  const int64_t changed = options_.changed;
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

}  // namespace tlm::bench
