#include "server/loading/draft_check.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "server/loading/tokenizer_assets.h"

namespace tlm {

ServerOptions DraftOptions(const ServerOptions& options) {
  ServerOptions draft = options;
  draft.model_dir = options.draft_model;
  draft.preset.clear();
  draft.calibration.clear();
  return draft;
}

absl::Status CheckDraftConfig(const ServerOptions& options, const ModelConfig& model,
                              const ModelConfig& draft) {
  if (draft.vocab_size == model.vocab_size) return absl::OkStatus();
  return FailedPrecondition(
      "--draft_model={}: its vocab_size is {}, that of the model is {}; a draft model has the "
      "model's tokenizer",
      options.draft_model, draft.vocab_size, model.vocab_size);
}

absl::Status CheckDraftTokenizer(const ServerOptions& options, const Tokenizer* model,
                                 const ModelFiles& draft_files) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> draft, LoadTokenizerAlone(draft_files));
  if (model == nullptr || draft == nullptr) {
    spdlog::info("--draft_model: {} has no tokenizer: vocab_size alone was compared",
                 model == nullptr ? "the model" : "the draft model");
    return absl::OkStatus();
  }
  const int32_t both = std::min(model->vocab_size(), draft->vocab_size());
  for (int32_t id = 0; id < both; ++id) {
    if (!model->HasToken(id) || !draft->HasToken(id)) continue;
    if (model->TokenBytes(id) == draft->TokenBytes(id)) continue;
    return FailedPrecondition(
        "--draft_model={}: its token {} is {}, that of the model is {}; a draft model has the "
        "model's tokenizer",
        options.draft_model, id, Quoted(draft->TokenBytes(id)), Quoted(model->TokenBytes(id)));
  }
  return absl::OkStatus();
}

}  // namespace tlm
