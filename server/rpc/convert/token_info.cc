#include "server/rpc/convert/token_info.h"

#include <string>

namespace tlm {

void FillTokenInfo(const SampledToken& token, const Tokenizer* tokenizer, v1::TokenInfo& info) {
  info.set_id(static_cast<uint32_t>(token.id));
  if (tokenizer != nullptr) info.set_bytes(std::string(tokenizer->TokenBytes(token.id)));
  if (token.score.has_value()) {
    info.set_logprob(token.score->logprob);
    info.set_rank(token.score->rank);
  }
  for (const ScoredToken& alternative : token.top) {
    v1::TopToken* top = info.add_top();
    top->set_id(static_cast<uint32_t>(alternative.id));
    top->set_logprob(alternative.logprob);
    top->set_rank(alternative.rank);
  }
}

int64_t TokenInfoBytes(int32_t id, size_t top, const Tokenizer* tokenizer) {
  constexpr int64_t kInfoBytes = 32;
  constexpr int64_t kTopBytes = 24;
  const size_t text = tokenizer == nullptr ? 0 : tokenizer->TokenBytes(id).size();
  return kInfoBytes + static_cast<int64_t>(text) + kTopBytes * static_cast<int64_t>(top);
}

}  // namespace tlm
