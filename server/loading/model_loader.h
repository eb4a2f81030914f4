// From a model directory to a model that can be served.
#ifndef TLM_SERVER_LOADING_MODEL_LOADER_H_
#define TLM_SERVER_LOADING_MODEL_LOADER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "model/ops/ops.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/config/options.h"
#include "server/loading/weights_sha256.h"
#include "server/serving/served_model.h"

namespace tlm {

// Members in the order they need each other. May be moved from, not assigned to: that would end
// them in the order of their making.
struct LoadedModel {
  LoadedModel() = default;
  LoadedModel(LoadedModel&&) = default;
  LoadedModel& operator=(LoadedModel&&) = delete;

  std::string backend_reason;  // one line for people: see Backend
  std::unique_ptr<Ops> ops;
  std::unique_ptr<TransformerLM> model;
  std::unique_ptr<Tokenizer> tokenizer;  // null: there is none
  std::unique_ptr<ChatTemplate> chat;    // null: there is none
  std::unique_ptr<WeightsSha256> hash;   // null: the weights do not come from files
  ServedModel served;                    // refers to those above
};

// Reads the directory, or generates the preset's weights, checks everything, and takes all memory the
// model will use; what cannot fit is refused before any is taken. Every error is one line that
// names the file, the flag or the number at fault.
absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MODEL_LOADER_H_
