// What speculation gains and costs on one model, and whether claimed outputs are verified.
#ifndef TLM_TESTS_BENCHMARKS_SPECULATION_SPECULATION_RUNS_H_
#define TLM_TESTS_BENCHMARKS_SPECULATION_SPECULATION_RUNS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/batching/engine.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/request_run.h"
#include "tests/benchmarks/speculation/tasks.h"
#include "tests/benchmarks/speculation/teacher.h"

namespace tlm::bench {

struct SpeculationOptions {
  int64_t output_tokens = 0;                     // of an output
  int rounds = 0;                                // of each test, one more before them
  int64_t changed = 0;                           // claimed outputs with one changed token
  Speculation speculation = Speculation::kAuto;  // compared with none
};

using Outputs = std::vector<std::vector<int32_t>>;

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

// Prints a line for each test, and keeps its figures as JSON.
class SpeculationBench {
 public:
  // `draft` may be null. All outlive it.
  SpeculationBench(BenchModel& model, BenchModel* draft, const std::vector<Task>& tasks,
                   const SpeculationOptions& options)
      : teacher_(*model.model), tasks_(tasks), options_(options) {
    if (draft != nullptr) draft_teacher_.emplace(*draft->model);
  }

  // `agreement`: none, the draft model does not guess.
  absl::Status TimeTask(const Task& task, int64_t streams, std::optional<double> agreement);
  // Of the model's own text.
  absl::Status TimeVerify();

  const nlohmann::ordered_json& results() const { return results_; }
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
  const SpeculationOptions options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  bool all_met_ = true;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_SPECULATION_SPECULATION_RUNS_H_
