#include "model/accounting/flops.h"

#include <initializer_list>
#include <limits>

namespace tlm {
namespace {

uint64_t Saturate(unsigned __int128 value) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return value > kMax ? kMax : static_cast<uint64_t>(value);
}

// Returns 2 * the product of the factors, saturated to 64 bits.
uint64_t MultiplyAdds(std::initializer_list<uint64_t> factors) {
  uint64_t product = 2;
  for (const uint64_t factor : factors) {
    product = Saturate(static_cast<unsigned __int128>(product) * factor);
  }
  return product;
}

}  // namespace

FlopsCount CountFlops(const ModelConfig& config, const FlopsQuery& query) {
  const uint64_t layers = static_cast<uint64_t>(config.num_layers);
  const uint64_t d_model = static_cast<uint64_t>(config.d_model);
  const uint64_t d_ff = static_cast<uint64_t>(config.d_ff);
  const uint64_t q_size = static_cast<uint64_t>(config.q_size());
  const uint64_t qkv_size = q_size + 2 * static_cast<uint64_t>(config.kv_size());
  const uint64_t vocab = static_cast<uint64_t>(config.vocab_size);

  const unsigned __int128 prompt = query.prompt_tokens;
  const unsigned __int128 added = query.new_tokens;
  const uint64_t tokens = Saturate(query.batch * (prompt + added));
  // Counts (token, attended position) pairs: the prompt's square, then prompt + 1 .. prompt +
  // added.
  const uint64_t pairs =
      Saturate(query.batch * (prompt * prompt + added * prompt + added * (added + 1) / 2));

  FlopsCount count;
  count.qkv = MultiplyAdds({layers, d_model, qkv_size, tokens});
  count.scores = MultiplyAdds({layers, q_size, pairs});
  count.weighted_sum = count.scores;
  count.output_projection = MultiplyAdds({layers, q_size, d_model, tokens});
  count.ffn_up = MultiplyAdds({layers, d_model, d_ff, tokens});
  count.ffn_gate = config.gated_ffn() ? count.ffn_up : 0;
  count.ffn_down = count.ffn_up;
  count.lm_head = MultiplyAdds({vocab, d_model, tokens});
  unsigned __int128 total = 0;
  for (const uint64_t part : {count.qkv, count.scores, count.weighted_sum, count.output_projection,
                              count.ffn_up, count.ffn_gate, count.ffn_down, count.lm_head}) {
    total += part;
  }
  count.total = Saturate(total);
  count.per_token_linear =
      Saturate(static_cast<unsigned __int128>(MultiplyAdds({layers, d_model, qkv_size + q_size})) +
               MultiplyAdds({layers, d_model, d_ff, config.gated_ffn() ? 3u : 2u}) +
               MultiplyAdds({vocab, d_model}));
  count.attention_per_token_per_context = MultiplyAdds({layers, q_size, 2});
  return count;
}

}  // namespace tlm
