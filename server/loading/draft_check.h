// --draft_model: how it is loaded, and what it must have in common with the model.
#ifndef TLM_SERVER_LOADING_DRAFT_CHECK_H_
#define TLM_SERVER_LOADING_DRAFT_CHECK_H_

#include "absl/status/status.h"
#include "model/config/model_config.h"
#include "model/tokenizer/tokenizer.h"
#include "server/config/options.h"

namespace tlm {

inline constexpr char kDraftModelFlag[] = "draft_model";

// Those of the model, for what --draft_model names. Without --calibration.
ServerOptions DraftOptions(const ServerOptions& options);

// All errors name the flag and both values.
// FAILED_PRECONDITION when the two differ in their vocab_size.
absl::Status CheckDraftConfig(const ServerOptions& options, const ModelConfig& model,
                              const ModelConfig& draft);
// Compares the tokens by id, those that both tokenizers have: one may leave out what only fills the
// vocabulary. FAILED_PRECONDITION when one differs. Where there are no two tokenizers to compare,
// it logs that. `model` may be null. Other errors as of LoadTokenizerAlone.
absl::Status CheckDraftTokenizer(const ServerOptions& options, const Tokenizer* model);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_DRAFT_CHECK_H_
