// Defines all limits of requests: convert checks them, ModelInfo reports them.
#ifndef TLM_SERVER_SERVING_REQUEST_LIMITS_H_
#define TLM_SERVER_SERVING_REQUEST_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "model/constraint/bytes/budget.h"
#include "server/batching/engine_options.h"

namespace tlm {

struct RequestLimits {
  // Limits of the served model and its memory; filled in at start.
  int64_t max_context_tokens = 0;  // prompt and output together
  EngineOptions engine;

  int64_t max_num_sequences = 16;  // at most engine.max_running_requests
  int64_t max_stop_strings = 16;
  int64_t max_stop_string_bytes = 1024;
  int64_t max_stop_token_ids = 256;
  int64_t max_logit_bias_entries = 4096;
  int64_t max_allowed_token_ids = 65536;
  int64_t max_banned_token_ids = 65536;
  int64_t max_top_logprobs = 20;
  int64_t max_request_id_bytes = 128;
  int64_t max_cache_salt_bytes = 256;
  int64_t max_text_bytes = int64_t{1} << 20;     // bytes of a prompt or of Tokenize's text
  int64_t max_request_bytes = int64_t{8} << 20;  // bytes of a message
  // The default limit of gRPC clients.
  int64_t max_response_bytes = int64_t{4} << 20;
  int64_t max_forward_sequences = 256;
  int64_t max_forward_tokens = int64_t{1} << 18;  // tokens of one call, all sequences together
  int64_t max_forward_rows = int64_t{1} << 18;
  int64_t max_forward_top_k = 1024;
  int64_t max_score_continuations = 256;  // together at most max_forward_tokens
  int64_t max_chat_messages = 4096;
  int64_t max_tools = 256;
  ConstraintLimits constraint;

  // A prompt must leave room for one generated token; a Forward sequence need not.
  int64_t max_prompt_tokens() const { return max_context_tokens - 1; }
};

// Parameter ranges, the same for every model.
inline constexpr absl::Duration kMaxSoftTimeLimit = absl::Hours(24 * 365);

// The target size of `rows` and `tokens` events: 1 MiB with the message around it. A larger row is
// sent alone.
inline constexpr int64_t kMaxChunkBytes = (int64_t{1} << 20) - 4096;

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_REQUEST_LIMITS_H_
