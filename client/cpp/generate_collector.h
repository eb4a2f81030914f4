// Assembles the events of a Generate stream into the whole answer.
#ifndef TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_
#define TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// One output of a Generate call.
struct Output {
  std::string text;
  std::vector<v1::TokenInfo> tokens;  // if requested with output.token_ids or logprobs
  v1::GenerateFinished finished;
};

struct GenerateResult {
  v1::GenerateStarted started;
  std::vector<v1::TokenInfo> prompt;  // if requested with output.prompt_logprobs
  std::vector<Output> outputs;        // by output_index
  v1::GenerateSummary summary;
};

class GenerateCollector {
 public:
  // Adds the next event. INTERNAL for an output that `started` did not announce.
  absl::Status Add(v1::GenerateResponse event);

  // The result so far.
  const GenerateResult& result() const { return result_; }
  GenerateResult&& TakeResult() { return std::move(result_); }

  // OK if the stream was complete: started, every output finished, summary; else INTERNAL.
  absl::Status CheckComplete() const;

 private:
  absl::Status CheckOutputIndex(uint32_t output_index) const;

  GenerateResult result_;
  bool has_summary_ = false;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_
