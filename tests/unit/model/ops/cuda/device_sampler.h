// The sampling kernels with their memory, and a comparison of their results with Sampler's.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_SAMPLER_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_SAMPLER_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/ops/cuda/batch/sampling_table.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/sampling/sample.h"
#include "model/sampling/sampler.h"
#include "tests/support/host_sampling.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/device_memory.h"

namespace tlm {

inline constexpr int64_t kMaxJobs = 8;

// Everything one job points at.
struct Request {
  SamplingParams params = {};
  TokenHistory history = {};
  const TokenHistory* shared_history = nullptr;  // instead of it
  std::vector<int32_t> draft = {};
  SampleKey key = {};
  LogprobOptions score = {};
  std::vector<int32_t> banned = {};
  std::optional<FixedMask> mask = {};
  std::vector<float> logits = {};

  SamplingJob Job() const {
    return {.params = &params,
            .history = shared_history != nullptr ? shared_history : &history,
            .key = key,
            .score = score,
            .draft = draft,
            .banned = banned,
            .mask = mask.has_value() ? &*mask : nullptr};
  }
};

// The sampling kernels of one vocabulary with all their memory.
class DeviceSampler {
 public:
  explicit DeviceSampler(int64_t vocab_size, int64_t stride = 0)
      : vocab_size_(vocab_size),
        stride_(std::max(stride, vocab_size)),
        bytes_(MaxSamplingTableBytes({.max_tokens = kMaxJobs,
                                      .max_sequences = kMaxJobs,
                                      .max_logits_rows = kMaxJobs,
                                      .max_context = 1 << 20},
                                     vocab_size)),
        logits_(static_cast<size_t>(kMaxJobs * stride_) * sizeof(float)),
        table_(bytes_.table),
        outcomes_(bytes_.outcomes),
        scratch_(SampleScratchBytes(kMaxJobs, vocab_size)),
        sampled_(kMaxJobs * sizeof(int32_t)),
        packer_(vocab_size) {
    SetKernelOverlap(DeviceOverlapsKernels());
    const size_t scratch_bytes = SampleScratchBytes(kMaxJobs, vocab_size);
    EXPECT_EQ(cudaMemsetAsync(scratch_.data(), 0, scratch_bytes, nullptr), cudaSuccess);
  }

  // `input_ids` of the rows' tokens: an id, or PendingToken of the call before. All stages run when
  // `all_stages`, else those that are needed.
  std::vector<absl::StatusOr<SampledToken>> Sample(const std::vector<Request>& requests,
                                                   bool all_stages = false,
                                                   std::vector<int32_t> input_ids = {}) {
    Batch batch;
    input_ids.resize(requests.size(), 1);
    batch.token_ids = input_ids;
    std::vector<float> rows(requests.size() * static_cast<size_t>(stride_), std::nanf(""));
    for (size_t i = 0; i < requests.size(); ++i) {
      // Rows in another order than jobs.
      const size_t row = requests.size() - 1 - i;
      batch.logits_rows.push_back(static_cast<int32_t>(i));
      batch.jobs.push_back(requests[i].Job());
      batch.jobs.back().row = static_cast<int32_t>(row);
      std::copy(requests[i].logits.begin(), requests[i].logits.end(),
                rows.begin() + static_cast<ptrdiff_t>(row * static_cast<size_t>(stride_)));
    }
    std::vector<std::byte> table(bytes_.table);
    packer_.Pack(batch, table, &packed_);
    EXPECT_LE(packed_.table_bytes, bytes_.table);
    EXPECT_LE(packed_.outcome_bytes, bytes_.outcomes);
    Copy(logits_.data(), rows.data(), rows.size() * sizeof(float), cudaMemcpyHostToDevice);
    Copy(table_.data(), table.data(), packed_.table_bytes, cudaMemcpyHostToDevice);
    const SampleArgs args = {.logits = static_cast<const float*>(logits_.data()),
                             .logits_stride = stride_,
                             .vocab_size = vocab_size_,
                             .table = table_.data(),
                             .scratch = scratch_.data(),
                             .max_jobs = kMaxJobs,
                             .jobs = all_stages ? kMaxJobs : std::ssize(requests),
                             .outcomes = outcomes_.data(),
                             .sampled = static_cast<int32_t*>(sampled_.data())};
    const SampleStages stages = {.noise = all_stages || packed_.noise,
                                 .finish = all_stages || packed_.finish};
    EXPECT_EQ(LaunchSample(args, stages, nullptr), cudaSuccess);
    std::vector<uint64_t> outcomes(packed_.outcome_bytes / 8);
    Copy(outcomes.data(), outcomes_.data(), packed_.outcome_bytes, cudaMemcpyDeviceToHost);
    sampled_ids_.resize(requests.size());
    Copy(sampled_ids_.data(), sampled_.data(), requests.size() * 4, cudaMemcpyDeviceToHost);
    return UnpackJobs(batch, packed_, vocab_size_, std::as_bytes(std::span(outcomes)));
  }
  const std::vector<int32_t>& sampled() const { return sampled_ids_; }
  const PackedJobs& packed() const { return packed_; }

 private:
  static void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, kind, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  int64_t vocab_size_;
  int64_t stride_;
  SamplingTableBytes bytes_;
  DeviceMemory logits_;
  DeviceMemory table_;
  DeviceMemory outcomes_;
  DeviceMemory scratch_;
  DeviceMemory sampled_;
  SamplingTable packer_;
  PackedJobs packed_;
  std::vector<int32_t> sampled_ids_;
};

inline bool SameScore(const ScoredToken& a, const ScoredToken& b) {
  return a.id == b.id && a.rank == b.rank &&
         std::bit_cast<uint32_t>(a.logprob) == std::bit_cast<uint32_t>(b.logprob);
}

inline void ExpectSame(const absl::StatusOr<SampledToken>& got,
                       const absl::StatusOr<SampledToken>& expected, const std::string& what) {
  ASSERT_EQ(got.status(), expected.status()) << what;
  if (!got.ok()) return;
  EXPECT_EQ(got->id, expected->id) << what;
  ASSERT_EQ(got->score.has_value(), expected->score.has_value()) << what;
  if (got->score.has_value()) {
    EXPECT_TRUE(SameScore(*got->score, *expected->score))
        << what << ": " << got->score->logprob << " at " << got->score->rank << ", not "
        << expected->score->logprob << " at " << expected->score->rank;
  }
  ASSERT_EQ(got->top.size(), expected->top.size()) << what;
  for (size_t i = 0; i < got->top.size(); ++i) {
    EXPECT_TRUE(SameScore(got->top[i], expected->top[i]))
        << what << ", place " << i << ": " << got->top[i].id << " of " << got->top[i].logprob
        << ", not " << expected->top[i].id << " of " << expected->top[i].logprob;
  }
}

// The requests on the device, and each with Sampler.
inline void ExpectSamplersTokens(DeviceSampler& device, const std::vector<Request>& requests,
                                 const std::string& what, bool all_stages = false) {
  const auto tokens = device.Sample(requests, all_stages);
  ASSERT_EQ(tokens.size(), requests.size());
  Sampler sampler;
  const std::vector<int32_t>& on_host = device.packed().host;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (std::count(on_host.begin(), on_host.end(), static_cast<int32_t>(i)) > 0) {
      EXPECT_EQ(device.sampled()[i], 0) << what;
      continue;
    }
    const Request& request = requests[i];
    const auto expected = sampler.Sample(request.logits, request.Job());
    ExpectSame(tokens[i], expected, what + ", job " + std::to_string(i));
    EXPECT_EQ(device.sampled()[i], expected.ok() ? expected->id : 0) << what;
  }
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_DEVICE_SAMPLER_H_
