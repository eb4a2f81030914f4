// Turns the sampled tokens of one output into `tokens` events: text, stop strings, event borders.
#ifndef TLM_SERVER_RPC_OUTPUT_OUTPUT_ASSEMBLER_H_
#define TLM_SERVER_RPC_OUTPUT_OUTPUT_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/sampling/sampler.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/region_writer.h"
#include "server/rpc/output/stop_string_filter.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Makes the `prompt` events of a Generate call: every prompt token with its log-probability.
// Thread-compatible.
class PromptAssembler {
 public:
  // The prompt has `prompt_tokens` tokens; the first, `first_id`, has no score. `tokenizer` may be
  // null; it outlives this object.
  PromptAssembler(int32_t first_id, int64_t prompt_tokens, const Tokenizer* tokenizer);

  // Takes the score of the next token.
  void Append(ScoredEntry entry);

  // No further score will come.
  void Close() { closed_ = true; }

  // Returns true when every token with a score has been in an event.
  bool complete() const { return sent_ == prompt_tokens_ || (closed_ && tokens_.empty()); }
  // Returns the number of tokens not sent yet.
  int64_t backlog() const { return static_cast<int64_t>(tokens_.size()); }

  // Fills the next event, of at most about kMaxChunkBytes; false when there is nothing to send.
  bool NextEvent(v1::GeneratePrompt& event);

 private:
  const int64_t prompt_tokens_;
  const Tokenizer* const tokenizer_;
  std::deque<SampledToken> tokens_;  // known tokens not sent yet
  int64_t sent_ = 0;
  bool closed_ = false;
};

// How an output ended.
struct OutputEnd {
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;              // the token of kEos and kStopToken
  std::optional<std::string> stop_string;  // if set, it ended the output instead of `reason`
};

// Returns kStopToken for an output that a stop string ended.
v1::FinishReason ToProto(FinishReason reason);

// The extent of the output:
//
//   text     abc STOP xyz       up to the stop string, or with include_stop including it
//   tokens   [ab][c S][TOP][x]  the tokens that begin before the text's end: [ab][c S]; with
//                               stop_string_tokens all up to the stop string's end: [TOP] too
//
// A token's text begins where the text of the previous tokens ends, so the bytes of a character
// that several tokens share belong to the last of them. The eos or stop token that ends an output
// is part of it only with include_stop, but always counts as generated.
//
// An event has tokens, all the text up to the end of its last token, and the changes of regions
// within that text. It ends with the output, or after a settled token, whose text is final (whole
// characters, no part of which may begin a stop string):
//
//   tokens   [ab][\xe2\x82][\xac ][S][he said]        stop string STOP
//   settled   x             x        x
//
// The number of received tokens alone determines the received text, so another replica can continue
// a stream from the ids (Replay). An event that would become too large before a token is settled
// ends after an unsettled token, with the text that is final by then; this also depends on the
// tokens alone.
//
// Thread-compatible.
class OutputAssembler {
 public:
  // `tokenizer` may be null when the plan wants no text, regions or stop strings; it outlives this
  // object. `work` has the ids that can end the output. `call_seed`: see RegionWriter.
  OutputAssembler(const OutputPlan& plan, const GenerateWork& work, const Tokenizer* tokenizer,
                  int64_t prompt_tokens, uint64_t call_seed = 0);

  // Call at most once, before all other calls: the output begins with these tokens, which the
  // client already has with their text. They count as generated and are in no event.
  // INVALID_ARGUMENT when a stop string ends the output before the last of them; the last one may
  // end it.
  absl::Status Replay(std::span<const int32_t> ids);

  // Takes the next sampled token. Once ended() this does nothing: surplus tokens are dropped.
  void Append(SampledToken token);
  // Call when the engine has ended the sequence after the last token appended.
  void Close(FinishReason reason, int32_t matched_token);

  // Returns true after a stop string or Close(); no token is held back any more.
  bool ended() const { return end_.has_value(); }
  const OutputEnd& end() const { return *end_; }
  // Returns the number of tokens generated so far, up to and including the one that ended the
  // output.
  int64_t completion_tokens() const { return completion_tokens_; }
  // Replayed tokens among them.
  int64_t replayed_tokens() const { return replayed_tokens_; }
  // Returns the number of tokens not sent yet.
  int64_t backlog() const { return static_cast<int64_t>(items_.size()); }

  // Fills the next event, of at most about kMaxChunkBytes; false when none is due.
  bool NextEvent(v1::GenerateTokens& event);
  // Call once, after the last event: fills in the remaining regions.
  void EndRegions(v1::GenerateFinished& finished);
  // Counts of the regions whose events were taken; 0 unless regions are reported.
  RegionCounts regions() const {
    return regions_.has_value() ? regions_->counts() : RegionCounts();
  }

 private:
  struct Item {
    SampledToken token;
    int64_t text_begin = 0;  // offset in the output's text
    int64_t text_end = 0;    // end of an event's text after this token
    bool settled = false;
  };

  bool Searching() const { return processed_tokens_ > min_new_tokens_; }
  int64_t DecodedEnd() const { return text_begin_ + static_cast<int64_t>(text_.size()); }
  int64_t CertainEnd() const;
  void Process(SampledToken token);
  void AppendText(const std::string& text, bool search);
  void Settle(Item& item);
  // Ends the text at `text_end` and drops the tokens that begin at or after `tokens_end`.
  void EndAt(int64_t text_end, int64_t tokens_end, OutputEnd end);
  void End(OutputEnd end);
  bool IsEventDue() const;
  int64_t TextFactor() const;
  size_t EventTokens() const;
  void TakeItems(size_t count, v1::GenerateTokens* event);

  const OutputPlan plan_;
  const int64_t min_new_tokens_;  // no stop string is searched for before
  const EndingIds ending_ids_;
  const Tokenizer* const tokenizer_;
  std::optional<StreamDecoder> decoder_;  // set when text, regions or stop strings are wanted
  std::optional<RegionWriter> regions_;   // set when wanted; has the text of the events taken
  StopStringFilter filter_;
  std::optional<int64_t> filter_begin_;  // text offset where the filter began to look

  // A token that may have ended the output: the next token or Close() decides.
  std::optional<SampledToken> candidate_;
  std::deque<Item> items_;  // not yet sent
  size_t sendable_ = 0;     // tokens of items_, from the front, up to the last settled one
  std::string text_;        // not yet sent
  int64_t text_begin_ = 0;  // offset of text_
  int64_t next_position_;   // position of items_.front()
  int64_t event_position_;  // first position that no event covers
  int64_t replayed_tokens_ = 0;
  int64_t processed_tokens_ = 0;
  int64_t dropped_tokens_ = 0;  // processed tokens after a stop string
  int64_t completion_tokens_ = 0;
  std::optional<OutputEnd> end_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_OUTPUT_ASSEMBLER_H_
