// The tests of engine_bench.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_ENGINE_TESTS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_ENGINE_TESTS_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/batch.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/cpu_ceilings.h"
#include "tests/benchmarks/engine/request_run.h"

namespace tlm::bench {

// Sequences that decode together, each with `depth` tokens before.
struct DecodeTest {
  int64_t sequences = 0;
  int64_t depth = 0;
};

struct EnginePlan {
  std::vector<int64_t> prompts;  // tokens of each
  std::vector<DecodeTest> decodes;
  int64_t decode_tokens = 0;  // of each sequence
  RequestLoad load;           // without requests: none
  int64_t batch_tokens = 0;   // max. per step
  int repetitions = 0;

  // Removes the tests that need more positions than `context`; returns their names.
  std::vector<std::string> DropLongerThan(int64_t context);
  // For all tests.
  BatchLimits Limits() const;
  int64_t KvBlocks() const;

  // A test there are not enough KV blocks for.
  struct TooLarge {
    std::string name = {};
    int64_t needed_blocks = 0;
    int64_t affordable_blocks = 0;  // beside the workspace for the tests that were left then
  };
  // Removes tests, those with the most blocks first, until all blocks are affordable beside what
  // the limits of the tests left take; may leave none.
  std::vector<TooLarge> DropUntilFits(
      const std::function<int64_t(const BatchLimits&)>& affordable_blocks);
  bool empty() const;  // no test

 private:
  // Of a plan that is not empty.
  TooLarge DropLargest();
};

class EngineTests {
 public:
  // `loaded` has been loaded with the plan's limits and blocks.
  EngineTests(const EnginePlan& plan, BenchModel& loaded, const CpuCeilings& ceilings)
      : plan_(plan), loaded_(loaded), ceilings_(ceilings) {}

  // Prints a line per test, and calls `saved` after each. Errors of the model and of `saved`.
  absl::Status Run(const std::function<absl::Status()>& saved);
  const nlohmann::ordered_json& results() const { return results_; }

 private:
  using Json = nlohmann::ordered_json;

  // The work of a test and its times, a sample per repetition.
  struct Found {
    std::string name = {};
    double tokens = 0;                 // in one sample
    std::vector<double> seconds = {};  // of a sample
    double steps = 1;                  // passes through the weights in a sample
    double bytes = 0;                  // read in one step
    double linear_flops = 0;           // of products with weights in one step
    double attention_flops = 0;
  };

  absl::Status TimePrompt(int64_t tokens);
  absl::Status TimeDecode(const DecodeTest& test);
  absl::Status TimeRequests();
  void Add(const Found& found, Json more);
  // The lower bound of a step's time, from its bytes and operations, as a share of `seconds`.
  double Fraction(const Found& found, double seconds) const;

  const EnginePlan& plan_;
  BenchModel& loaded_;
  const CpuCeilings& ceilings_;
  Json results_ = Json::array();
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_ENGINE_TESTS_H_
