// A small served model for tests of the rpc layer, without weights, only what the handlers look at;
// and a tokenizer whose every byte is a token with the byte's value as its id.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_TEST_MODEL_H_
#define TLM_TESTS_UNIT_SERVER_RPC_TEST_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "server/serving/served_model.h"

namespace tlm {

inline constexpr int32_t kEosId = 256;  // special
inline constexpr int32_t kBosId = 257;  // special, put before texts
inline constexpr int32_t kFirstWordId = 258;

// `words` become tokens from kFirstWordId on. Fails the test when the tokenizer cannot be made.
std::unique_ptr<Tokenizer> MakeByteTokenizer(const std::vector<std::string>& words = {});

// The ids of a text's bytes.
std::vector<int32_t> ByteIds(std::string_view text);

inline constexpr uint64_t kStepWeightBytes = 1024;
// FLOPs of a position in the only layer, of a position it attends to, and of a row of logits:
// d_model 8, q 8, k and v 4, d_ff 16, vocabulary 300.
inline constexpr uint64_t kLayerFlops = 2 * (8 * 16 + 8 * 8 + 3 * 8 * 16);
inline constexpr uint64_t kAttentionFlops = 2 * 2 * 8;
inline constexpr uint64_t kHeadFlops = 2 * 8 * 300;

inline ServedModel MakeServedModel(const Tokenizer* tokenizer) {
  ServedModel model;
  model.model_id = "tiny";
  model.tokenizer = tokenizer;
  model.config.model_type = "llama";
  model.config.architecture = "LlamaForCausalLM";
  model.config.vocab_size = 300;
  model.config.context_length = 64;
  model.config.d_model = 8;
  model.config.num_layers = 1;
  model.config.num_heads = 2;
  model.config.num_kv_heads = 1;
  model.config.head_dim = 4;
  model.config.d_ff = 16;
  model.config.rope_theta = 10000.0;
  model.config.eos_token_ids = {kEosId};
  model.limits.max_context_tokens = 64;
  model.limits.engine.max_running_requests = 4;
  model.limits.max_num_sequences = 4;
  model.limits.engine.max_batch_tokens = 16;
  model.limits.engine.max_queued_requests = 8;
  model.limits.engine.max_queued_tokens = 512;
  model.fingerprint = "f00d";
  // The embedding, 300 x 8 in bf16, is looked up and not read.
  model.memory.weights = {{DType::kBF16, 300 * 8 * 2 + 1000}, {DType::kF32, 24}};
  return model;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_TEST_MODEL_H_
