// Loads a model for serving.
#ifndef TLM_SERVER_LOADING_MODEL_LOADER_H_
#define TLM_SERVER_LOADING_MODEL_LOADER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "model/ops/ops.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/config/options.h"
#include "server/loading/fingerprint.h"
#include "server/loading/model_source.h"
#include "server/serving/served_model.h"

namespace tlm {

// Members are ordered by their dependencies. Move-constructible only: an assignment would destroy
// them in the wrong order.
struct LoadedModel {
  LoadedModel() = default;
  LoadedModel(LoadedModel&&) = default;
  LoadedModel& operator=(LoadedModel&&) = delete;

  std::string backend_reason;  // one line for people: see Backend
  std::unique_ptr<Ops> ops;
  std::unique_ptr<TransformerLM> model;
  std::unique_ptr<TransformerLM> draft_model;  // null: no draft model
  std::unique_ptr<Tokenizer> tokenizer;        // null: no tokenizer
  std::unique_ptr<ChatTemplate> chat;          // null: no chat template
  std::unique_ptr<WeightsSha256> hash;         // null: the weights do not come from files
  ServedModel served;                          // refers to the other members
};

// The models of --model or --preset and of --draft_model.
struct OpenedModels {
  OpenedModel model;
  std::optional<OpenedModel> draft;
};

// Opens the files and checks the configurations: makes every check that needs neither a backend nor
// the weights. Errors are as below.
absl::StatusOr<OpenedModels> OpenModels(const ServerOptions& options);

// Reads the weights, or generates the preset's; checks everything; and allocates all memory of the
// model and its draft model. A model that does not fit is refused before any
// allocation. Every error is one line that names the file, the flag or the number at fault.
absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options, OpenedModels opened);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MODEL_LOADER_H_
