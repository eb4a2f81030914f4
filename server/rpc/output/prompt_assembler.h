// The `prompt` events of a Generate call: every prompt token with its log-probability.
#ifndef TLM_SERVER_RPC_OUTPUT_PROMPT_ASSEMBLER_H_
#define TLM_SERVER_RPC_OUTPUT_PROMPT_ASSEMBLER_H_

#include <cstdint>
#include <deque>

#include "model/sampling/sampler.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/token_stream.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Thread-compatible.
class PromptAssembler {
 public:
  // Of a prompt of `prompt_tokens`, of which the first, `first_id`, has no score. `tokenizer` may
  // be null; it outlives this.
  PromptAssembler(int32_t first_id, int64_t prompt_tokens, const Tokenizer* tokenizer);

  // Takes the score of the next token.
  void Append(ScoredEntry entry);

  // No further score will come.
  void Close() { closed_ = true; }

  // Every token with a score has been in an event.
  bool complete() const { return sent_ == prompt_tokens_ || (closed_ && tokens_.empty()); }
  // Tokens that wait to be sent.
  int64_t backlog() const { return static_cast<int64_t>(tokens_.size()); }

  // Fills the next event, at most about kMaxChunkBytes of it; false when there is nothing to send.
  bool NextEvent(v1::GeneratePrompt& event);

 private:
  const int64_t prompt_tokens_;
  const Tokenizer* const tokenizer_;
  std::deque<SampledToken> tokens_;  // not yet sent, as far as known
  int64_t sent_ = 0;
  bool closed_ = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_PROMPT_ASSEMBLER_H_
