// From tokens drawn to the `tokens` events of one output: text, stop strings, what may be sent
// when.
#ifndef TLM_SERVER_RPC_OUTPUT_ASSEMBLER_H_
#define TLM_SERVER_RPC_OUTPUT_ASSEMBLER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampling/sampler.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/token_stream.h"
#include "server/rpc/convert.h"
#include "server/rpc/stop_string_filter.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// How an output ended.
struct OutputEnd {
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;              // kEos, kStopToken
  std::optional<std::string> stop_string;  // set: it ended the output, whatever `reason` says
};

// What belongs to the output:
//
//   text     abc STOP xyz       of a stop string nothing, or with include_stop all of it;
//   tokens   [ab][c S][TOP][x]  the tokens that begin before the text's end: [ab][c S]
//
// A token's text begins where the text decoded before it ends, so the bytes of a character that
// several tokens share belong to the last of them. The eos or stop token that ends an output is
// part of it only with include_stop, but counts as generated in any case.
//
// Thread-compatible.
class OutputAssembler {
 public:
  // `tokenizer` may be null when the plan wants neither text nor stop strings; it outlives this.
  // `work` tells which ids can end the output.
  OutputAssembler(const OutputPlan& plan, const GenerateWork& work, const Tokenizer* tokenizer,
                  int64_t prompt_tokens);

  // Takes the next token drawn. Once ended() this does nothing: surplus tokens are dropped.
  void Append(SampledToken token);
  // The engine ended the sequence after the last token appended.
  void Close(FinishReason reason, int32_t matched_token);

  // By a stop string or by Close(); nothing is held back any more.
  bool ended() const { return end_.has_value(); }
  const OutputEnd& end() const { return *end_; }
  // Tokens generated so far, up to and including the one that ended the output.
  int64_t completion_tokens() const { return completion_tokens_; }

  // Fills the next event that is due, at most about kMaxChunkBytes of it; false when none is.
  bool NextEvent(v1::GenerateTokens& event);

 private:
  struct Item {
    SampledToken token;
    int64_t text_begin = 0;  // offset in the output's text
  };

  bool CanEnd(int32_t id) const;
  bool Searching() const { return processed_tokens_ > plan_.min_new_tokens; }
  void Process(SampledToken token);
  void AppendText(const std::string& text, bool search);
  void EndAt(int64_t text_end, OutputEnd end);
  int64_t SendableTokens() const;
  int64_t SendableTextEnd() const;
  void TakeText(int64_t end, std::string* text);

  const OutputPlan plan_;
  const std::vector<int32_t> ending_ids_;
  const Tokenizer* const tokenizer_;
  std::optional<StreamDecoder> decoder_;  // when text or stop strings are wanted
  StopStringFilter filter_;
  std::optional<int64_t> filter_begin_;  // text offset where the filter began to look

  // A token that may have ended the output: whether it did, the next token or Close() tells.
  std::optional<SampledToken> candidate_;
  std::deque<Item> items_;  // not yet sent
  std::string text_;        // not yet sent
  int64_t text_begin_ = 0;  // offset of text_
  int64_t next_position_;   // of items_.front()
  int64_t processed_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  std::optional<OutputEnd> end_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_ASSEMBLER_H_
