// Does a Generate call's work between its request and its end, for every protocol.
#ifndef TLM_SERVER_RPC_GENERATE_GENERATE_OUTPUTS_H_
#define TLM_SERVER_RPC_GENERATE_GENERATE_OUTPUTS_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/output_group.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Records the parameters of a call; `call` was made from `request`.
void NoteRequest(const v1::GenerateRequest& request, const GenerateCall& call, bool streaming,
                 CallRecord& record);

// The events of one call: started, prompt*, (tokens | finished)*, summary. Thread-compatible.
class GenerateOutputs {
 public:
  // `listener` is woken when there are results. `model` outlives this object.
  GenerateOutputs(const GenerateCall& call, const ServedModel& model,
                  const std::weak_ptr<StreamListener>& listener);

  // Returns the engine's request. Call once. INVALID_ARGUMENT for a resumed output that ends too
  // early.
  absl::StatusOr<Request> Begin(GenerateCall call, CallRecord& record);

  // Takes the engine's results and counts them in `record`.
  void Collect(CallRecord& record);
  // Returns the number of results not sent yet.
  int64_t backlog() const { return outputs_.backlog(); }
  // Set once the first output has started.
  const std::optional<StreamStart>& start() const { return outputs_.start(); }

  // Fills in the next event; leaves it unset when none is due. A returned status ends the call; it
  // is OK after the summary.
  std::optional<absl::Status> Next(CallRecord& record, v1::GenerateResponse& event);

  // The results are not needed any more. Idempotent.
  void Detach() { outputs_.Detach(); }

 private:
  void FillStarted(const CallRecord& record, v1::GenerateStarted& started);
  void FillSummary(CallRecord& record, v1::GenerateSummary& summary) const;

  const ServedModel& model_;
  const bool timing_;
  const bool resource_usage_;
  const bool regions_;
  const bool speculation_;        // tokens may be guessed
  v1::SamplingParams effective_;  // moved into `started`
  OutputGroup outputs_;
  bool started_sent_ = false;
  bool summary_sent_ = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_GENERATE_OUTPUTS_H_
