#include "client/cpp/target_picker.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "client/cpp/balance.h"

namespace tlm::client {
namespace {

// About one block of the prefix cache: shorter prefixes are not cached.
constexpr size_t kBytes = 256;
constexpr int kTokens = 64;

void AppendNumber(uint32_t value, std::string* text) {
  for (int shift = 0; shift < 32; shift += 8) text->push_back(static_cast<char>(value >> shift));
}

// Prefixes a field with its length, so that different fields never concatenate to the same text.
void AppendField(std::string_view field, std::string* text) {
  AppendNumber(static_cast<uint32_t>(field.size()), text);
  text->append(field);
}

void AppendChat(const v1::ChatInput& chat, std::string* text) {
  for (const v1::ChatInput::Message& message : chat.messages()) {
    AppendField(message.role(), text);
    AppendField(std::string_view(message.content()).substr(0, kBytes), text);
    if (message.role() != "system" && message.role() != "developer") return;
  }
}

void AppendIds(const v1::TokenIds& ids, std::string* text) {
  for (int i = 0; i < std::min(ids.ids_size(), kTokens); ++i) AppendNumber(ids.ids(i), text);
}

// The finalizer of SplitMix64: every bit of the input affects every bit of the result.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::vector<uint64_t> HashesOf(const std::vector<std::string>& targets) {
  std::vector<uint64_t> hashes;
  for (const std::string& target : targets) hashes.push_back(HashOf(target));
  return hashes;
}

}  // namespace

std::optional<uint64_t> AffinityOf(const v1::GenerateRequest& request, std::string_view key) {
  if (!key.empty()) return HashOf(key);
  if (request.cache().bypass_prefix_cache()) return std::nullopt;
  std::string text;
  AppendField(request.cache().cache_salt(), &text);
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt:
      text.append(std::string_view(request.prompt()).substr(0, kBytes));
      break;
    case v1::GenerateRequest::kPromptTokenIds:
      AppendIds(request.prompt_token_ids(), &text);
      break;
    case v1::GenerateRequest::kChat:
      AppendChat(request.chat(), &text);
      break;
    case v1::GenerateRequest::INPUT_NOT_SET:
      return std::nullopt;
  }
  return HashOf(text);
}

std::optional<Balance> BalanceFromName(std::string_view name) {
  if (name == "round_robin") return Balance::kRoundRobin;
  if (name == "prefix_affinity") return Balance::kPrefixAffinity;
  return std::nullopt;
}

uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) {
    hash ^= static_cast<uint8_t>(byte);
    hash *= 0x100000001b3u;
  }
  return hash;
}

uint64_t RendezvousScore(uint64_t affinity, uint64_t target) { return Mix(affinity ^ Mix(target)); }

TargetPicker::RunningCall::RunningCall(TargetPicker* picker, size_t target)
    : picker_(picker), target_(target) {
  std::lock_guard<std::mutex> lock(picker_->mutex_);
  ++picker_->running_[target_];
}

TargetPicker::RunningCall::~RunningCall() {
  std::lock_guard<std::mutex> lock(picker_->mutex_);
  --picker_->running_[target_];
}

TargetPicker::TargetPicker(const std::vector<std::string>& targets)
    : names_(targets),
      hashes_(HashesOf(targets)),
      failed_(targets.size(), absl::InfinitePast()),
      running_(targets.size(), 0) {}

std::optional<size_t> TargetPicker::Next(absl::Time now, const std::set<size_t>& excluded) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<size_t> candidates = Candidates(now, excluded);
  if (candidates.empty()) return std::nullopt;
  const auto found = std::lower_bound(candidates.begin(), candidates.end(), next_);
  const size_t choice = found == candidates.end() ? candidates.front() : *found;
  next_ = (choice + 1) % size();
  return choice;
}

std::optional<size_t> TargetPicker::NextFor(uint64_t affinity, absl::Time now,
                                            const std::set<size_t>& excluded) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<size_t> candidates = Candidates(now, excluded);
  if (candidates.empty()) return std::nullopt;
  std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    return RendezvousScore(affinity, hashes_[a]) > RendezvousScore(affinity, hashes_[b]);
  });
  // Counts the call that is to start, so that at least one candidate is below the bound.
  size_t calls = 1;
  for (const size_t target : candidates) calls += running_[target];
  const double share = static_cast<double>(calls) / static_cast<double>(candidates.size());
  const size_t bound = std::max(kFreeCalls, static_cast<size_t>(std::ceil(kMaxLoadFactor * share)));
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](size_t target) { return running_[target] < bound; });
}

void TargetPicker::MarkFailed(size_t target, absl::Time now) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = now;
}

void TargetPicker::MarkServing(size_t target) {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_[target] = absl::InfinitePast();
}

std::vector<size_t> TargetPicker::Candidates(absl::Time now,
                                             const std::set<size_t>& excluded) const {
  std::vector<size_t> left;
  std::vector<size_t> healthy;
  for (size_t target = 0; target < size(); ++target) {
    if (excluded.contains(target)) continue;
    left.push_back(target);
    if (now >= failed_[target] + kAvoidFor) healthy.push_back(target);
  }
  return healthy.empty() ? left : healthy;
}

}  // namespace tlm::client
