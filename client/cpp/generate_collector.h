// Puts the events of a Generate stream together, for callers who want the whole answer at once.
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
  std::vector<v1::TokenInfo> tokens;  // if asked for with output.token_ids or logprobs
  v1::GenerateFinished finished;
};

struct GenerateResult {
  v1::GenerateStarted started;
  std::vector<v1::TokenInfo> prompt;  // if asked for with output.prompt_logprobs
  std::vector<Output> outputs;        // by output_index
  v1::GenerateSummary summary;
};

class GenerateCollector {
 public:
  // Takes the next event. INTERNAL when it names an output beyond what `started` announced.
  absl::Status Add(v1::GenerateResponse event);

  // What has arrived so far.
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
