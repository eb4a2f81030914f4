// Makes the options for --draft_model and checks that it fits the model.
#ifndef TLM_SERVER_LOADING_DRAFT_CHECK_H_
#define TLM_SERVER_LOADING_DRAFT_CHECK_H_

#include "absl/status/status.h"
#include "model/config/model_config.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/model_files.h"
#include "server/config/options.h"

namespace tlm {

inline constexpr char kDraftModelFlag[] = "draft_model";

// Returns the options for loading --draft_model: the model's, without --calibration.
ServerOptions DraftOptions(const ServerOptions& options);

// FAILED_PRECONDITION when the two differ in their vocab_size. All errors of these functions name
// the flag and both values.
absl::Status CheckDraftConfig(const ServerOptions& options, const ModelConfig& model,
                              const ModelConfig& draft);
// Compares the tokens by id that both tokenizers have: one may leave out tokens that only pad the
// vocabulary. FAILED_PRECONDITION when a token differs. Logs when there are not two tokenizers to
// compare. `model` may be null. Other errors as of LoadTokenizerAlone.
absl::Status CheckDraftTokenizer(const ServerOptions& options, const Tokenizer* model,
                                 const ModelFiles& draft_files);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_DRAFT_CHECK_H_
