// Loads the tokenizer, chat template and sampling defaults of a model directory or a GGUF file.
#ifndef TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_
#define TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/chat_format.h"
#include "model/chat/chat_template.h"
#include "model/sampling/sampling_job.h"
#include "model/tokenizer/tokenizer.h"
#include "server/config/options.h"
#include "server/loading/model_source.h"
#include "server/serving/served_model.h"

namespace tlm {

// See ServedModel::tokenizer_files. Reads tokenizer.json, and every other existing file that
// loaders of Hugging Face models look for. `chat_sha256` is empty without a template.
absl::StatusOr<std::vector<ModelFile>> ReadTokenizerFiles(const std::string& model_dir,
                                                          const std::string& tokenizer_sha256,
                                                          const std::string& chat_sha256);

// See ServedModel::tokenizer_files. Makes a tokenizer.json from the metadata, and a
// tokenizer_config.json with special tokens and chat template. UNIMPLEMENTED as of
// GgufTokenizerJson.
absl::StatusOr<std::vector<ModelFile>> ReadGgufTokenizerFiles(const std::string& path,
                                                              const std::string& tokenizer_sha256,
                                                              const std::string& chat_sha256);

// The parts of a model other than configuration and weights.
struct TokenizerAssets {
  std::unique_ptr<Tokenizer> tokenizer;  // null: no tokenizer
  std::string tokenizer_sha256;
  std::unique_ptr<ChatTemplate> chat;  // null: no template
  std::string chat_sha256;
  ChatFormat chat_format;
  SamplingParams sampling;
};

// Logs missing parts, and a chat template that this program cannot run. Other errors name the file
// and the part at fault.
absl::StatusOr<TokenizerAssets> LoadTokenizerAssets(const ServerOptions& options,
                                                    const OpenedModel& model);

// Returns the tokenizer of a model; null: it has none. Errors as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerAlone(const ModelFiles& files);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_TOKENIZER_ASSETS_H_
