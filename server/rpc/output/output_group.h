// Manages the outputs of one Generate call: their token streams, and the order of their events.
#ifndef TLM_SERVER_RPC_OUTPUT_OUTPUT_GROUP_H_
#define TLM_SERVER_RPC_OUTPUT_OUTPUT_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/config/model_config.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/output_assembler.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// The results that a Generate output's token stream holds before its sequence is parked: enough
// that a reader that keeps up never makes the engine wait.
inline constexpr int64_t kStreamCapacity = 256;

// The outputs take turns:
//
//   started, prompt*, (tokens of 0 | tokens of 1 | finished of 0 | tokens of 1 | ...)*
//
// An output that a stop string ended detaches its own token stream and waits for its end. If an
// output that had not ended fails, all fail. An output may end without a token; `started` then
// reports the time in the queue from its end. Thread-compatible.
class OutputGroup {
 public:
  // Makes the token streams, all with this `listener`. `tokenizer` as for OutputAssembler.
  OutputGroup(const GenerateCall& call, const Tokenizer* tokenizer,
              const std::weak_ptr<StreamListener>& listener);

  // Call at most once, before anything is collected: the only output begins with `ids`, see
  // OutputAssembler::Replay. If they end it, its token stream is detached at once.
  absl::Status Replay(std::span<const int32_t> ids);

  // Returns the engine's request for `call`, which arrived at `arrival`, with these token streams.
  // The caller adds the tenant, the id and the deadline.
  Request RequestFor(GenerateCall call, absl::Time arrival) const;

  // Takes the results from the token streams.
  void Collect();
  // Returns the number of results not sent yet.
  int64_t backlog() const;
  // Detaches all token streams. Idempotent.
  void Detach();

  // Set once the first output has started.
  const std::optional<StreamStart>& start() const { return start_; }
  // Fills the next `prompt`, `tokens` or `finished` that is due; false when none is due. Call only
  // after start() is set.
  bool NextEvent(v1::GenerateResponse& message);
  // Returns why the call fails; remaining events of NextEvent are sent first.
  const absl::Status& failure() const { return failure_; }
  // Returns true when all outputs have ended and their `finished` events were taken.
  bool complete() const;

  // Returns the number of tokens generated so far, over all outputs, replayed ones included.
  int64_t completion_tokens() const;
  size_t size() const { return outputs_.size(); }
  // For a complete group: what ended the output, as in CallSummary::finish.
  std::string_view FinishName(size_t output) const;
  // For a complete group: the regions of all outputs, replayed ones included.
  RegionCounts regions() const;
  // For a complete group: the times on this server; decoding lasts from the first token to the end
  // of the last output.
  absl::Duration prefill_time() const { return outputs_.front().stream_end->prefill_time; }
  absl::Duration decode_time() const;
  SpeculationCounts speculation() const;
  void FillTiming(v1::Timing& timing) const;
  void FillResources(const ModelConfig& config, uint64_t step_weight_bytes,
                     v1::ResourceUsage& resources) const;

 private:
  struct Output {
    std::shared_ptr<TokenStream> stream;
    OutputAssembler assembler;
    std::optional<StreamEnd> stream_end;
    bool finished_sent = false;
  };

  void CollectFrom(Output& output);
  bool NextOutputEvent(size_t index, v1::GenerateResponse& message);
  // Returns the number of tokens of an output that this server sampled.
  static int64_t SampledTokens(const Output& output);
  // Returns the number of sampled tokens after the first one, without forced ones.
  static int64_t Decodes(const Output& output);
  int64_t SampledTokens() const;
  uint64_t Flops(const ModelConfig& config) const;
  uint64_t PromptFlops(const ModelConfig& config) const;
  int64_t Steps() const;

  const int64_t prompt_tokens_;
  std::optional<PromptAssembler> prompt_;  // when requested
  std::vector<Output> outputs_;
  std::optional<StreamStart> start_;
  absl::Status failure_;
  size_t turn_ = 0;  // the output whose turn is next
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_OUTPUT_GROUP_H_
