#include "client/openai/routes/backend.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace tlm::openai {

absl::StatusOr<std::unique_ptr<Backend>> Backend::Connect(const std::string& name,
                                                          const std::vector<std::string>& targets,
                                                          const client::ClientOptions& options) {
  auto client = client::Client::Connect(targets, options);
  if (!client.ok()) return client.status();
  std::unique_ptr<Backend> backend(new Backend(name, *std::move(client)));
  for (const std::string& target : targets) {
    auto load = ReplicaLoad::Connect(target, options);
    if (!load.ok()) return load.status();
    backend->loads_.push_back(*std::move(load));
  }
  return backend;
}

bool Backend::is_local() const {
  const auto& targets = client_->targets();
  return std::all_of(targets.begin(), targets.end(), [](const std::string& target) {
    return client::IsLocalTarget(client::WithDefaultPort(target));
  });
}

absl::StatusOr<ModelTraits> Backend::Traits(const client::CallOptions& options) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (traits_ && absl::Now() - traits_at_ < kFresh) return *traits_;
  }
  const auto info = client_->ModelInfo({}, options);
  if (!info.ok()) return info.status();
  const v1::ChatFormatInfo& format = info->capabilities().chat_format();
  ModelTraits traits;
  traits.model_id = name_.empty() ? info->identity().model_id() : name_;
  traits.reasoning = !format.reasoning_format().empty();
  traits.regions = traits.reasoning || !format.tool_format().empty();
  std::lock_guard<std::mutex> lock(mutex_);
  if (traits_ && traits_->model_id != traits.model_id) token_bytes_.clear();
  traits_ = traits;
  traits_at_ = absl::Now();
  return traits;
}

void Backend::ForgetTraits() {
  std::lock_guard<std::mutex> lock(mutex_);
  traits_.reset();
}

std::string Backend::TokenBytesOf(uint32_t id, const client::CallOptions& options) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto known = token_bytes_.find(id); known != token_bytes_.end()) {
      return known->second;
    }
  }
  // Decoders of the SentencePiece kind drop a space at the start of a text: of two equal tokens the
  // second is complete.
  v1::DetokenizeRequest request;
  request.add_token_ids(id);
  request.add_token_ids(id);
  request.set_skip_special_tokens(false);
  const auto response = client_->Detokenize(request, options);
  if (!response.ok()) return "";
  const std::string& both = response->bytes();
  std::string bytes = both.substr(both.size() / 2);
  std::lock_guard<std::mutex> lock(mutex_);
  return token_bytes_.emplace(id, std::move(bytes)).first->second;
}

}  // namespace tlm::openai
