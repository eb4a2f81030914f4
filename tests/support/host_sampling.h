// Samples on the host, for models without a device.
#ifndef TLM_TESTS_SUPPORT_HOST_SAMPLING_H_
#define TLM_TESTS_SUPPORT_HOST_SAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/sampling/sampler.h"

namespace tlm {

// A mask that is known at once or, without words, never.
class FixedMask : public TokenMask {
 public:
  explicit FixedMask(std::optional<std::vector<uint64_t>> words) : words_(std::move(words)) {}
  // Makes a mask with only as many words as the ids need.
  static FixedMask Of(std::span<const int32_t> ids) {
    std::vector<uint64_t> words;
    for (const int32_t id : ids) {
      const auto bit = static_cast<size_t>(id);
      if (words.size() <= bit / 64) words.resize(bit / 64 + 1);
      words[bit / 64] |= uint64_t{1} << bit % 64;
    }
    return FixedMask(std::move(words));
  }
  std::optional<std::span<const uint64_t>> Await() const override { return words_; }

 private:
  std::optional<std::vector<uint64_t>> words_;
};

// Runs `jobs` on `logits` [rows, vocab_size].
inline std::vector<absl::StatusOr<SampledToken>> SampleAll(std::span<const SamplingJob> jobs,
                                                           std::span<const float> logits,
                                                           int64_t vocab_size) {
  Sampler sampler;
  std::vector<absl::StatusOr<SampledToken>> tokens;
  for (const SamplingJob& job : jobs) {
    const auto row =
        logits.subspan(static_cast<size_t>(job.row * vocab_size), static_cast<size_t>(vocab_size));
    tokens.push_back(sampler.Sample(row, job));
  }
  return tokens;
}

// Returns the sampled ids; 0 for failed jobs.
inline std::vector<int32_t> SampledIds(std::span<const absl::StatusOr<SampledToken>> tokens) {
  std::vector<int32_t> ids;
  for (const auto& token : tokens) ids.push_back(token.ok() ? token->id : 0);
  return ids;
}

// Copies rows `rows` of `logits` [.., vocab_size].
inline std::vector<float> SelectRows(std::span<const float> logits, std::span<const int32_t> rows,
                                     int64_t vocab_size) {
  std::vector<float> selected;
  for (const int32_t row : rows) {
    const auto begin = logits.begin() + row * vocab_size;
    selected.insert(selected.end(), begin, begin + vocab_size);
  }
  return selected;
}

// Copies of jobs and of the objects that they point at.
class HeldJobs {
 public:
  explicit HeldJobs(std::span<const SamplingJob> jobs) {
    for (const SamplingJob& job : jobs) {
      const Held& held = held_.emplace_back(Held{*job.params,
                                                 *job.history,
                                                 {job.draft.begin(), job.draft.end()},
                                                 {job.banned.begin(), job.banned.end()},
                                                 MaskOf(job)});
      SamplingJob& copy = jobs_.emplace_back(job);
      if (held.mask.has_value()) copy.mask = &*held.mask;
      copy.params = &held.params;
      copy.history = &held.history;
      copy.draft = held.draft;
      copy.banned = held.banned;
    }
  }
  HeldJobs(const HeldJobs&) = delete;
  HeldJobs& operator=(const HeldJobs&) = delete;

  std::span<const SamplingJob> jobs() const { return jobs_; }

 private:
  struct Held {
    SamplingParams params;
    TokenHistory history;
    std::vector<int32_t> draft;
    std::vector<int32_t> banned;
    std::optional<FixedMask> mask;
  };
  static std::optional<FixedMask> MaskOf(const SamplingJob& job) {
    if (job.mask == nullptr) return std::nullopt;
    const auto words = job.mask->Await();
    if (!words.has_value()) return FixedMask(std::nullopt);
    return FixedMask(std::vector<uint64_t>(words->begin(), words->end()));
  }
  std::list<Held> held_;  // a list, because its elements keep their addresses
  std::vector<SamplingJob> jobs_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_HOST_SAMPLING_H_
