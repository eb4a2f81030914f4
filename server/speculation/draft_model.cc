#include "server/speculation/draft_model.h"

namespace tlm {

struct DraftModel::State {};

DraftModel::DraftModel(LanguageModel& model) : model_(model), pool_(model.num_kv_blocks()) {
  (void)model_;
}

DraftModel::~DraftModel() = default;

int64_t DraftModel::Behind(int64_t, std::span<const int32_t> tokens) const {
  return static_cast<int64_t>(tokens.size());
}

absl::Status DraftModel::Propose(std::span<Guess>) { return absl::OkStatus(); }

void DraftModel::Forget(int64_t) {}

}  // namespace tlm
