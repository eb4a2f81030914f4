#include "server/rpc/output/call_cost.h"

#include "model/accounting/flops.h"
#include "model/accounting/parameters.h"

namespace tlm {

uint64_t SequenceFlops(const ModelConfig& config, int64_t tokens, int64_t logits_rows) {
  if (tokens <= 0) return 0;
  const uint64_t count = static_cast<uint64_t>(tokens);
  const FlopsCount one = CountFlops(config, {.batch = 1, .prompt_tokens = 1});
  const uint64_t layers = one.per_token_linear - one.lm_head;
  const uint64_t attended = count * (count + 1) / 2;
  return count * layers + static_cast<uint64_t>(logits_rows) * one.lm_head +
         attended * one.attention_per_token_per_context;
}

uint64_t StepWeightBytes(const ServedModel& model) {
  uint64_t bytes = 0;
  for (const auto& [dtype, size] : model.memory.weights) bytes += size;
  if (model.config.tie_word_embeddings || model.memory.weights.empty()) return bytes;
  const uint64_t embedding =
      CountParameters(model.config).embedding * DTypeBytes(model.memory.weights.front().first);
  return bytes > embedding ? bytes - embedding : 0;
}

}  // namespace tlm
