// Assembles the events of a Generate stream into a complete answer.
#ifndef TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_
#define TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tlm/v1/generate.pb.h"
#include "tlm/v1/verify.pb.h"

namespace tlm::client {

// A tool call in an output.
struct ToolCall {
  std::string id;    // names the call in the tool's answer; empty after a ResumePoint within it
  std::string name;  // the tool's name; empty after a ResumePoint within the call
  std::string arguments_json;  // if complete, a JSON object that the tool's schema allows
  bool complete = false;       // false: the output ended inside the call
};

// One output of a Generate call.
struct Output {
  // The text as the model wrote it, with markup.
  std::string text;
  // With output.regions, the parts of `text`, each kind of region joined. Otherwise `content` is
  // all of `text`.
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
  std::vector<v1::TokenInfo> tokens;  // if requested with output.token_ids or logprobs
  v1::GenerateFinished finished;
};

struct GenerateResult {
  v1::GenerateStarted started;
  std::vector<v1::TokenInfo> prompt;  // if requested with output.prompt_logprobs
  std::vector<Output> outputs;        // by output_index
  v1::GenerateSummary summary;
};

// Makes the request for Client::Verify that claims this output of `request`, which must have been
// generated with output.token_ids. The token that ended the output is claimed, too.
v1::VerifyRequest ClaimOf(const v1::GenerateRequest& request, const GenerateResult& result,
                          size_t output);

class GenerateCollector {
 public:
  // Adds the next event. INTERNAL for an output that `started` did not announce.
  absl::Status Add(v1::GenerateResponse event);

  // Returns the result so far.
  const GenerateResult& result() const { return result_; }
  GenerateResult&& TakeResult() { return std::move(result_); }

  // OK if the stream was complete: started, every output finished, summary; otherwise INTERNAL.
  absl::Status CheckComplete() const;

 private:
  using RegionEvents = google::protobuf::RepeatedPtrField<v1::RegionEvent>;
  // The regions of an output.
  struct Regions {
    bool known = false;            // an event had region events
    std::optional<uint32_t> call;  // the region index of the last of tool_calls
  };

  absl::Status CheckOutputIndex(uint32_t output_index) const;
  void AddRegions(uint32_t output_index, RegionEvents* events);
  void AddDelta(v1::RegionEvent::Delta* delta, Output* output, Regions* regions) const;
  ToolCall& CallOf(uint32_t region_index, Output* output, Regions* regions) const;

  GenerateResult result_;
  std::vector<Regions> regions_;  // by output_index
  bool has_summary_ = false;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_GENERATE_COLLECTOR_H_
