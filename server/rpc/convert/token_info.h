// TokenInfo messages.
#ifndef TLM_SERVER_RPC_CONVERT_TOKEN_INFO_H_
#define TLM_SERVER_RPC_CONVERT_TOKEN_INFO_H_

#include <cstddef>
#include <cstdint>

#include "model/sampling/sampler.h"
#include "model/tokenizer/tokenizer.h"
#include "tlm/v1/common.pb.h"

namespace tlm {

// Fills an empty message. `tokenizer` may be null: then without bytes.
void FillTokenInfo(const SampledToken& token, const Tokenizer* tokenizer, v1::TokenInfo& info);

// Upper bound of the bytes of a TokenInfo with `top` alternatives in a list.
int64_t TokenInfoBytes(int32_t id, size_t top, const Tokenizer* tokenizer);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_TOKEN_INFO_H_
