// The files of a model directory that texts are read and written with.
#ifndef TLM_SERVER_LOADING_TOKENIZER_FILES_H_
#define TLM_SERVER_LOADING_TOKENIZER_FILES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/serving/served_model.h"

namespace tlm {

inline constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;  // of one file

// SHA-256 over the files that a chat template and its special tokens may come from.
absl::StatusOr<std::string> HashOfChatFiles(const std::string& model_dir);

// As ServedModel::tokenizer_files says: tokenizer.json, and the others that exist of those that
// loaders of Hugging Face models look for. `chat_sha256` is empty without a template.
absl::StatusOr<std::vector<ModelFile>> ReadTokenizerFiles(const std::string& model_dir,
                                                          const std::string& tokenizer_sha256,
                                                          const std::string& chat_sha256);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_TOKENIZER_FILES_H_
