#include "server/speculation/token_lookup.h"

#include <algorithm>
#include <bit>

namespace tlm {
namespace {

// The shortest match of each class of match lengths.
constexpr std::array<int64_t, 8> kClasses = {0, 3, 4, 6, 8, 12, 20, MatchRecord::kLongest};
// The initial chance of each class, before any judgement. Measured by predicting text: novels reach
// 0.2 and 0.33 in the first two classes and hardly have longer matches, source code reaches 0.55 to
// 0.9, edited copies of a prompt 0.6 to 0.97.
constexpr std::array<double, 8> kFirstChances = {0.25, 0.35, 0.5, 0.6, 0.75, 0.8, 0.85, 0.9};
// A prior counts like this many judgements. On the same texts, 4 to 16, with memories of 16 to 64
// and of 128 to 2048 judgements, are within 1 % of each other in log loss.
constexpr double kPriorWeight = 8;
constexpr size_t kMinBuckets = 64;
// A match this long that breaks off was a copy, and a copy with a changed word continues near
// there. Looking there first gives up to 25 % more tokens a step in edited copies, and costs other
// text nothing.
constexpr int64_t kCopy = 4;
constexpr int64_t kPlacesBefore = 4;
constexpr int64_t kPlacesAfter = 16;

size_t ClassOf(int64_t match_length) {
  const auto behind = std::upper_bound(kClasses.begin() + 1, kClasses.end(), match_length);
  return static_cast<size_t>(behind - kClasses.begin()) - 1;
}

// Returns the number of tokens up to and including `place` that equal those at the end; at most
// MatchRecord::kLongest.
int64_t MatchLength(std::span<const int32_t> tokens, int64_t place) {
  const int64_t most = std::min(place + 1, MatchRecord::kLongest);
  const int32_t* const last = &tokens.back();
  const int32_t* const there = &tokens[static_cast<size_t>(place)];
  int64_t length = 0;
  while (length < most && *(last - length) == *(there - length)) ++length;
  return length;
}

}  // namespace

void MatchRecord::Add(int64_t match_length, bool hit) {
  Count& count = counts_[ClassOf(match_length)];
  const double kept = 1 - 1 / memory_;
  count.hit = count.hit * kept + (hit ? 1 : 0);
  count.all = count.all * kept + 1;
}

double MatchRecord::Chance(int64_t match_length, const MatchRecord* prior) const {
  const size_t size = ClassOf(match_length);
  const double expected =
      prior != nullptr ? prior->Chance(match_length, nullptr) : kFirstChances[size];
  const Count& count = counts_[size];
  return (count.hit + kPriorWeight * expected) / (count.all + kPriorWeight);
}

TokenLookup::TokenLookup(int64_t prompt_tokens, MatchRecord& everyone)
    : prompt_tokens_(prompt_tokens), everyone_(everyone) {}

size_t TokenLookup::Bucket(std::span<const int32_t> tokens) const {
  uint64_t hash = 0;
  for (const int32_t token : tokens.last(kMinMatch)) {
    hash = (hash + static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  }
  // The upper bits depend on all tokens.
  return static_cast<size_t>(hash >> (64 - std::countr_zero(heads_.size())));
}

void TokenLookup::Note(std::span<const int32_t> tokens) {
  int32_t before = kNowhere;
  if (tokens.size() >= kMinMatch) {
    int32_t& head = heads_[Bucket(tokens)];
    before = head;
    head = static_cast<int32_t>(tokens.size()) - 1;
  }
  previous_.push_back(before);
}

void TokenLookup::Judge(std::span<const int32_t> tokens) {
  if (source_ == kNowhere) return;
  const bool hit = tokens[static_cast<size_t>(source_)] == tokens.back();
  own_.Add(match_length_, hit);
  everyone_.Add(match_length_, hit);
  if (!hit && match_length_ >= kCopy) broken_off_ = source_;
  source_ = hit ? source_ + 1 : kNowhere;
  match_length_ = hit ? std::min(match_length_ + 1, MatchRecord::kLongest) : 0;
}

void TokenLookup::TryMatch(std::span<const int32_t> tokens, int64_t place) {
  const int64_t length = MatchLength(tokens, place);
  if (length < kMinMatch || length <= match_length_) return;
  match_length_ = length;
  source_ = place + 1;
}

// A match that continues was the longest one a token ago and still is: all others have also grown
// by a token, or ended. A longer one is still looked for, because not all places of frequent tokens
// were compared; after a rarer token there are few. Of equally long matches the followed one stays.
void TokenLookup::FindLongerMatch(std::span<const int32_t> tokens) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  if (source_ == kNowhere && broken_off_ != kNowhere) {
    const int64_t first = std::max(broken_off_ - kPlacesBefore, int64_t{0});
    const int64_t behind = std::min(broken_off_ + kPlacesAfter, last);
    for (int64_t place = first; place < behind; ++place) TryMatch(tokens, place);
  }
  int32_t place = previous_[static_cast<size_t>(last)];
  // In the longest class no other match is better.
  for (int64_t i = 0; i < kMaxPlaces && place != kNowhere && match_length_ < MatchRecord::kLongest;
       ++i) {
    TryMatch(tokens, place);
    place = previous_[static_cast<size_t>(place)];
  }
}

void TokenLookup::Extend(std::span<const int32_t> tokens) {
  const size_t noted = previous_.size();
  if (tokens.size() > heads_.size()) {
    // Keeps at least one bucket per token; doubles the buckets and rebuilds the chains.
    heads_.assign(std::max(kMinBuckets, std::bit_ceil(tokens.size())), kNowhere);
    previous_.clear();
    previous_.reserve(heads_.size());
    for (size_t n = 1; n <= noted; ++n) Note(tokens.first(n));
  }
  for (size_t n = noted + 1; n <= tokens.size(); ++n) {
    const std::span<const int32_t> so_far = tokens.first(n);
    Judge(so_far);
    Note(so_far);
    // The first guess follows the last token of the prompt.
    if (static_cast<int64_t>(n) >= prompt_tokens_) FindLongerMatch(so_far);
  }
}

Draft TokenLookup::Propose(std::span<const int32_t> tokens, int64_t max_tokens) const {
  Draft draft;
  if (source_ == kNowhere) return draft;
  for (int64_t i = 0; i < max_tokens; ++i) {
    const size_t from = static_cast<size_t>(source_ + i);
    // The match may reach into its own continuation, as in repetitions: then the draft is copied.
    draft.tokens.push_back(from < tokens.size() ? tokens[from]
                                                : draft.tokens[from - tokens.size()]);
    draft.chances.push_back(own_.Chance(match_length_ + i, &everyone_));
  }
  return draft;
}

}  // namespace tlm
