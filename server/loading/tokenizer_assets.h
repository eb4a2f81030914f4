// What texts are read and written with, from a model directory or a GGUF file.
#ifndef TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_
#define TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_format.h"
#include "model/chat/chat_template.h"
#include "model/config/model_config.h"
#include "model/sampling/sampling_params.h"
#include "model/tokenizer/tokenizer.h"
#include "server/config/options.h"

namespace tlm {

// What there is besides configuration and weights.
struct TokenizerAssets {
  std::unique_ptr<Tokenizer> tokenizer;  // null: there is none
  std::string tokenizer_sha256;
  std::unique_ptr<ChatTemplate> chat;  // null: there is none
  std::string chat_sha256;
  ChatFormat chat_format;
  SamplingParams sampling;
};

// Logs what is missing, and a chat template that this program cannot run. Other errors name the
// file and what of it is at fault.
absl::StatusOr<TokenizerAssets> LoadTokenizerAssets(const ServerOptions& options,
                                                    const ModelConfig& config);

// The tokenizer of a model directory or a GGUF file; null: there is none. Errors as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerAlone(const std::string& model);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_
