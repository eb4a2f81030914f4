#include "tests/benchmarks/speculation/teacher.h"

#include <random>
#include <utility>

namespace tlm::bench {

void Teacher::Teach(std::vector<Lesson> lessons, double agreement) {
  MutexLock lock(&mutex_);
  lessons_ = std::move(lessons);
  agreement_ = agreement;
}

void Teacher::WaitUntilIdle() {
  MutexLock lock(&mutex_);
  while (!launched_.empty()) changed_.Wait(&mutex_);
}

void Teacher::Launch(const Batch& batch) {
  {
    MutexLock lock(&mutex_);
    launched_.push_back(&batch);
  }
  model_.Launch(batch);
}

absl::StatusOr<BatchResult> Teacher::Wait() {
  absl::StatusOr<BatchResult> result = model_.Wait();
  MutexLock lock(&mutex_);
  const Batch& batch = *launched_.front();
  for (size_t i = 0; result.ok() && i < result->tokens.size(); ++i) {
    // A job without a result, as its mask is late or leaves no token, stays without.
    if (absl::StatusOr<SampledToken>& token = result->tokens[i]; token.ok()) {
      token->id = Say(batch.jobs[i], token->id);
    }
  }
  launched_.pop_front();
  changed_.NotifyAll();
  return result;
}

int32_t Teacher::Say(const SamplingJob& job, int32_t sampled) const {
  if (job.params->seed >= lessons_.size()) return sampled;
  const Lesson& lesson = lessons_[job.params->seed];
  const uint64_t index = job.key.position - static_cast<uint64_t>(lesson.prompt_tokens);
  if (index >= lesson.output.size()) return sampled;
  const int32_t said = lesson.output[index];
  std::seed_seq seed{job.params->seed, job.key.position};
  std::mt19937 random(seed);
  const bool agrees = static_cast<double>(random()) < agreement_ * 4294967296.0;
  return agrees ? said : static_cast<int32_t>((said + 1) % model_.vocab_size());
}

}  // namespace tlm::bench
