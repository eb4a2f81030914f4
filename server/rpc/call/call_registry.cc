#include "server/rpc/call/call_registry.h"

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

CallRegistry::Registration CallRegistry::Register(const std::string& tenant,
                                                  const std::string& request_id,
                                                  std::weak_ptr<AbortableCall> call) {
  MutexLock lock(&mutex_);
  const uint64_t number = ++registered_;
  calls_.emplace(request_id, Entry{tenant, std::move(call), number});
  return Registration(this, request_id, number);
}

int64_t CallRegistry::Abort(const std::string& request_id, const std::optional<std::string>& tenant,
                            const absl::Status& status) {
  std::vector<std::shared_ptr<AbortableCall>> calls;
  {
    MutexLock lock(&mutex_);
    const auto [begin, end] = calls_.equal_range(request_id);
    for (auto entry = begin; entry != end; ++entry) {
      if (tenant.value_or(entry->second.tenant) != entry->second.tenant) continue;
      calls.push_back(entry->second.call.lock());
    }
  }
  return std::count_if(calls.begin(), calls.end(), [&status](const auto& call) {
    return call != nullptr && call->Abort(status);
  });
}

CallRegistry::Ended CallRegistry::AbortAll(const std::optional<std::string>& tenant,
                                           const absl::Status& status) {
  Ended ended;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : calls_) {
      if (ended.request_ids.empty() || ended.request_ids.back() != id) {
        ended.request_ids.push_back(id);
      }
    }
  }
  std::erase_if(ended.request_ids, [&](const std::string& id) {
    const int64_t calls = Abort(id, tenant, status);
    ended.calls += calls;
    return calls == 0;
  });
  return ended;
}

void CallRegistry::Unregister(const std::string& request_id, uint64_t number) {
  MutexLock lock(&mutex_);
  const auto [begin, end] = calls_.equal_range(request_id);
  const auto found = std::find_if(
      begin, end, [number](const auto& entry) { return entry.second.number == number; });
  if (found != end) calls_.erase(found);
}

}  // namespace tlm
