// The texts that speculation_bench measures with, cut from a corpus.
#ifndef TLM_TESTS_BENCHMARKS_SPECULATION_TASKS_H_
#define TLM_TESTS_BENCHMARKS_SPECULATION_TASKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/constraint.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm::bench {

// One stream's part of a task.
struct Piece {
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;  // what the model is made to say; empty: its own text
};

struct Task {
  std::string name;
  std::vector<Piece> pieces;
  std::shared_ptr<Constraint> constraint = nullptr;  // of every output
  float temperature = 0;                             // of the model's own text
  // The least ratio of tokens/s with and without speculation, by the number of streams; of prose
  // whatever drafts, of the others without a draft model.
  std::optional<double> bar_of_one = std::nullopt;
  std::optional<double> bar_of_16 = std::nullopt;
  bool is_prose = false;

  bool taught() const { return !pieces.front().output.empty(); }
  std::optional<double> Bar(int64_t streams, bool with_draft_model) const;
};

struct TaskOptions {
  int64_t pieces = 1;         // of each task
  int64_t prompt_tokens = 0;  // about
  int64_t output_tokens = 0;  // of each output that is given
  bool own_text = false;      // tasks in which the model writes its own text, too
};

// The tasks, all with different pieces of `corpus` (UTF-8):
//
//   edit     the prompt's passage once more, a tenth of its words replaced
//   extract  a JSON array of the records in the prompt: numbers, names and sentences
//   json     the same under its JSON schema
//   quote    words of another passage and quotations of the prompt's in turns, half each
//   prose    how the corpus goes on
//   greedy, sampled   the model's own text behind the corpus's, most likely or at temperature 0.8
//
// The outputs of json are written in the tokens that the constraint forces where it forces some.
// INVALID_ARGUMENT when the corpus has too few words.
absl::StatusOr<std::vector<Task>> MakeTasks(const Tokenizer& tokenizer, std::string_view corpus,
                                            const TaskOptions& options);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_SPECULATION_TASKS_H_
