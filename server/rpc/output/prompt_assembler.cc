#include "server/rpc/output/prompt_assembler.h"

#include <utility>

#include "server/rpc/convert/token_info.h"
#include "server/serving/request_limits.h"

namespace tlm {

PromptAssembler::PromptAssembler(int32_t first_id, int64_t prompt_tokens,
                                 const Tokenizer* tokenizer)
    : prompt_tokens_(prompt_tokens), tokenizer_(tokenizer) {
  SampledToken first;
  first.id = first_id;
  tokens_.push_back(std::move(first));
}

void PromptAssembler::Append(ScoredEntry entry) { tokens_.push_back(std::move(entry.token)); }

bool PromptAssembler::NextEvent(v1::GeneratePrompt& event) {
  if (tokens_.empty()) return false;
  event.set_offset(static_cast<uint32_t>(sent_));
  int64_t bytes = 0;
  while (!tokens_.empty() && bytes < kMaxChunkBytes) {
    const SampledToken& token = tokens_.front();
    bytes += TokenInfoBytes(token.id, token.top.size(), tokenizer_);
    FillTokenInfo(token, tokenizer_, *event.add_tokens());
    tokens_.pop_front();
    ++sent_;
  }
  return true;
}

}  // namespace tlm
