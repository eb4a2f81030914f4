#include "server/rpc/call_registry.h"

#include <algorithm>

namespace tlm {

CallRegistry::Registration::Registration(Registration&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)),
      request_id_(std::move(other.request_id_)),
      number_(other.number_) {}

CallRegistry::Registration& CallRegistry::Registration::operator=(Registration&& other) noexcept {
  std::swap(registry_, other.registry_);
  std::swap(request_id_, other.request_id_);
  std::swap(number_, other.number_);
  return *this;
}

CallRegistry::Registration::~Registration() {
  if (registry_ != nullptr) registry_->Unregister(request_id_, number_);
}

CallRegistry::Registration CallRegistry::Register(const std::string& request_id,
                                                  std::weak_ptr<AbortableCall> call) {
  MutexLock lock(&mutex_);
  const uint64_t number = ++registered_;
  calls_.emplace(request_id, Entry{std::move(call), number});
  return Registration(this, request_id, number);
}

bool CallRegistry::Abort(const std::string& request_id, const absl::Status& status) {
  std::vector<std::shared_ptr<AbortableCall>> calls;
  {
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(request_id);
    for (auto entry = begin; entry != end; ++entry) calls.push_back(entry->second.call.lock());
  }
  bool ended = false;
  for (const std::shared_ptr<AbortableCall>& call : calls) {
    if (call != nullptr && call->Abort(status)) ended = true;
  }
  return ended;
}

std::vector<std::string> CallRegistry::AbortAll(const absl::Status& status) {
  std::vector<std::string> ids;
  {
    MutexLock lock(&mutex_);
    ids.reserve(calls_.size());
    for (const auto& [id, entry] : calls_) {
      if (ids.empty() || ids.back() != id) ids.push_back(id);
    }
  }
  std::erase_if(ids, [&](const std::string& id) { return !Abort(id, status); });
  return ids;
}

void CallRegistry::Unregister(const std::string& request_id, uint64_t number) {
  MutexLock lock(&mutex_);
  const auto [begin, end] = calls_.equal_range(request_id);
  const auto found = std::find_if(
      begin, end, [number](const auto& entry) { return entry.second.number == number; });
  if (found != end) calls_.erase(found);
}

}  // namespace tlm
