// A tokenizer whose every byte is a token with the byte's value as its id.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_BYTE_TOKENIZER_H_
#define TLM_TESTS_UNIT_SERVER_RPC_BYTE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace tlm {

inline constexpr int32_t kEosId = 256;  // special
inline constexpr int32_t kBosId = 257;  // special, put before texts
inline constexpr int32_t kFirstWordId = 258;

// `words` become tokens from kFirstWordId on. Fails the test when the tokenizer cannot be made.
std::unique_ptr<Tokenizer> MakeByteTokenizer(const std::vector<std::string>& words = {});

// The ids of a text's bytes.
std::vector<int32_t> ByteIds(std::string_view text);

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_BYTE_TOKENIZER_H_
