// Log-probabilities in the forms of /v1/chat/completions and /v1/completions.
#ifndef TLM_CLIENT_OPENAI_MAPPING_LOGPROBS_H_
#define TLM_CLIENT_OPENAI_MAPPING_LOGPROBS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "client/openai/mapping/answer.h"
#include "client/openai/mapping/json_body.h"
#include "tlm/v1/common.pb.h"

namespace tlm::openai {

using TokenInfos = google::protobuf::RepeatedPtrField<v1::TokenInfo>;

// Returns a token as a JSON string: its text, or "bytes:\xe2\x80" if the bytes are not UTF-8.
std::string TokenText(std::string_view bytes);

// JSON has no infinity: -infinity becomes -9999, as in vLLM.
double FiniteLogprob(float logprob);

// Returns the elements of `logprobs.content`: token, logprob, bytes, top_logprobs.
Json ChatLogprobs(const TokenInfos& tokens, const TokenBytes& token_bytes);

// The `logprobs` of /v1/completions: arrays over the tokens of a choice. Call Add in order.
class CompletionLogprobs {
 public:
  // `alternatives`: whether there are top_logprobs.
  CompletionLogprobs(bool alternatives, TokenBytes token_bytes);

  void Add(const TokenInfos& tokens);
  // Returns what was added since the last Take. text_offset counts characters from the first token.
  Json Take();

 private:
  void Clear();

  const bool alternatives_;
  const TokenBytes token_bytes_;
  uint64_t offset_ = 0;
  Json tokens_;
  Json logprobs_;
  Json top_;
  Json offsets_;
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_LOGPROBS_H_
