#include "model/ops/cuda/batch_pipeline.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/nvtx.h"

namespace tlm {
namespace {

constexpr int64_t kBlock = kBlockTokens;

}  // namespace

RingShape BatchPipeline::RingShapeFor(const BatchLimits& limits, const ModelShape& shape,
                                      size_t attention_bytes) {
  const SamplingTableBytes jobs = MaxSamplingTableBytes(limits, shape.vocab_size);
  return {.max_tokens = PaddedRowCount(limits.max_tokens),
          .max_rows = PaddedRowCount(limits.max_logits_rows),
          .max_sequences = limits.max_sequences,
          .max_blocks = (limits.max_context + kBlock - 1) / kBlock,
          .max_jobs = limits.max_jobs(),
          .max_host_rows = limits.max_logits_rows,
          .vocab_size = shape.vocab_size,
          .attention_bytes = attention_bytes,
          .job_bytes = jobs.table,
          .result_bytes = jobs.outcomes};
}

AttentionPlanner BatchPipeline::PlannerFor(const CudaDevice& device, const BatchLimits& limits,
                                           const ModelShape& shape, DType activations) {
  const CudaProperties& properties = device.properties();
  return AttentionPlanner(limits, shape,
                          ChooseAttentionGrid(shape, activations, properties.multiprocessors,
                                              properties.shared_bytes_per_block,
                                              properties.shared_bytes_per_multiprocessor));
}

size_t BatchPipeline::DeviceBytes(const CudaDevice& device, const BatchLimits& limits,
                                  const ModelShape& shape, DType activations) {
  const AttentionPlanner planner = PlannerFor(device, limits, shape, activations);
  return BatchRing::DeviceBytes(RingShapeFor(limits, shape, planner.work_bytes())) +
         planner.scratch_bytes() + SampleScratchBytes(limits.max_jobs(), shape.vocab_size);
}

absl::StatusOr<std::unique_ptr<BatchPipeline>> BatchPipeline::Create(CudaDevice& device,
                                                                     const BatchLimits& limits,
                                                                     const ModelShape& shape,
                                                                     DType activations) {
  std::unique_ptr<BatchPipeline> pipeline(new BatchPipeline(device, limits, shape, activations));
  TLM_RETURN_IF_ERROR(pipeline->Allocate());
  return pipeline;
}

BatchPipeline::BatchPipeline(CudaDevice& device, const BatchLimits& limits, const ModelShape& shape,
                             DType activations)
    : device_(device),
      limits_(limits),
      shape_(shape),
      planner_(PlannerFor(device, limits, shape, activations)),
      sampling_table_(shape.vocab_size) {}

absl::Status BatchPipeline::Allocate() {
  TLM_ASSIGN_OR_RETURN(
      ring_, BatchRing::Create(device_, RingShapeFor(limits_, shape_, planner_.work_bytes())));
  TLM_ASSIGN_OR_RETURN(attention_,
                       device_.Allocate(planner_.scratch_bytes(), MemoryPurpose::kActivations));
  const size_t sampling_bytes = SampleScratchBytes(limits_.max_jobs(), shape_.vocab_size);
  TLM_ASSIGN_OR_RETURN(sampling_, device_.Allocate(sampling_bytes, MemoryPurpose::kActivations));
  const cudaStream_t stream = device_.compute_stream();
  TLM_RETURN_IF_ERROR(device_.Check(
      cudaMemsetAsync(attention_.data(), 0, planner_.ticket_bytes(), stream), "cudaMemsetAsync"));
  return device_.Check(cudaMemsetAsync(sampling_.data(), 0, sampling_bytes, stream),
                       "cudaMemsetAsync");
}

absl::StatusOr<DeviceBatch> BatchPipeline::Begin(const Batch& batch) {
  const NvtxRange range("begin batch");
  running_.batch = &batch;
  running_.shape = ShapeOf(batch, limits_);
  const BatchShape& shape = running_.shape;
  TLM_RETURN_IF_ERROR(ring_->Begin());
  ring_->Stage(batch, shape.padded);
  TLM_ASSIGN_OR_RETURN(const size_t work_bytes,
                       planner_.Plan(batch, 0, ring_->host(RingSection::kAttentionWork)));
  running_.jobs = {};
  running_.host_jobs.clear();
  running_.host_rows = batch.host_rows;
  if (!batch.jobs.empty()) {
    sampling_table_.Pack(batch, ring_->host(RingSection::kJobs), &running_.jobs);
    NoteHostJobs(batch);
  }
  TLM_RETURN_IF_ERROR(ring_->Upload(work_bytes, running_.jobs.table_bytes));
  const SampleStages stages = StagesOf(running_.jobs);
  const uint64_t stage_bits = (uint64_t{stages.noise} << 62) | (uint64_t{stages.finish} << 63);
  return DeviceBatch{.layout = {.tokens = shape.padded.tokens,
                                .sequences = batch.sequences,
                                .max_blocks = 1,
                                .positions = ring_->device<int32_t>(RingSection::kPositions),
                                .sequence_of = ring_->device<int32_t>(RingSection::kTableOf),
                                .block_tables = ring_->device<int32_t>(RingSection::kBlockTables)},
                     .token_ids = ring_->device<int32_t>(RingSection::kTokenIds),
                     .rows = shape.padded.rows,
                     .logits_rows = ring_->device<int32_t>(RingSection::kLogitsRows),
                     .capture_key = shape.key == 0 ? 0 : shape.key | stage_bits};
}

// Truncated jobs and scores come with noise more often than not: one shape less to record.
SampleStages BatchPipeline::StagesOf(const PackedJobs& jobs) {
  return {.noise = jobs.noise || jobs.finish, .finish = jobs.finish};
}

void BatchPipeline::NoteHostJobs(const Batch& batch) {
  const TokenHistory* history = nullptr;
  std::shared_ptr<const TokenHistory> copy;
  for (const int32_t index : running_.jobs.host) {
    const SamplingJob& job = batch.jobs[static_cast<size_t>(index)];
    const int32_t token =
        batch.token_ids[static_cast<size_t>(batch.logits_rows[static_cast<size_t>(job.row)])];
    if (job.history != history) {
      history = job.history;
      copy = std::make_shared<TokenHistory>(*history);
    }
    std::optional<std::vector<uint64_t>> allowed;
    const auto mask = job.mask != nullptr ? job.mask->Await() : std::nullopt;
    if (mask.has_value()) allowed.emplace(mask->begin(), mask->end());
    running_.host_jobs.push_back({.index = static_cast<size_t>(index),
                                  .row = job.row,
                                  .params = *job.params,
                                  .history = copy,
                                  .draft = {job.draft.begin(), job.draft.end()},
                                  .key = job.key,
                                  .score = job.score,
                                  .banned = {job.banned.begin(), job.banned.end()},
                                  .allowed = std::move(allowed),
                                  .late = job.mask != nullptr && !mask.has_value(),
                                  .pending = token < 0 ? int64_t{-1} - token : -1});
    running_.host_rows.push_back(job.row);
  }
  if (running_.host_jobs.empty()) return;
  std::vector<int32_t>& rows = running_.host_rows;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
}

absl::Status BatchPipeline::Sample(const Rows& logits) {
  const BatchShape& shape = running_.shape;
  if (shape.jobs == 0) return absl::OkStatus();
  TLM_CHECK(logits.rows == shape.padded.rows && logits.cols == shape_.vocab_size);
  const NvtxRange range("sample");
  const SampleArgs args{.logits = logits.as<float>(),
                        .logits_stride = logits.stride,
                        .vocab_size = shape_.vocab_size,
                        .table = ring_->device<std::byte>(RingSection::kJobs),
                        .scratch = sampling_.data(),
                        .max_jobs = limits_.max_jobs(),
                        .jobs = shape.jobs,
                        .outcomes = ring_->job_results(),
                        .sampled = ring_->sampled_tokens()};
  return device_.Check(LaunchSample(args, StagesOf(running_.jobs), device_.compute_stream()),
                       "sample");
}

absl::Status BatchPipeline::End(const Rows& logits) {
  const NvtxRange range("end batch");
  const int64_t result_bytes =
      running_.batch->jobs.empty() ? -1 : static_cast<int64_t>(running_.jobs.outcome_bytes);
  TLM_RETURN_IF_ERROR(
      ring_->Download(result_bytes, logits.as<float>(), logits.stride, running_.host_rows));
  ended_.push_back(std::move(running_));
  running_ = Running();
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> BatchPipeline::Await() {
  TLM_CHECK(!ended_.empty());
  const NvtxRange range("await batch");
  Running done = std::move(ended_.front());
  ended_.pop_front();
  TLM_ASSIGN_OR_RETURN(const RingResult ring, ring_->Await());
  BatchResult result{.logits = ring.logits, .tokens = {}};
  const size_t jobs = done.batch->jobs.size();
  if (jobs > 0) result.tokens = UnpackJobs(*done.batch, done.jobs, shape_.vocab_size, ring.results);
  if (!done.host_jobs.empty()) FinishOnHost(done, ring, &result);
  sampled_before_.assign(ring.sampled_tokens.begin(),
                         ring.sampled_tokens.begin() + static_cast<ptrdiff_t>(jobs));
  return result;
}

void BatchPipeline::FinishOnHost(Running& done, const RingResult& ring, BatchResult* result) {
  const auto vocab = static_cast<size_t>(shape_.vocab_size);
  const auto row_of = [&](int32_t row) {
    const auto place = std::lower_bound(done.host_rows.begin(), done.host_rows.end(), row);
    return ring.logits.subspan(static_cast<size_t>(place - done.host_rows.begin()) * vocab, vocab);
  };
  for (HostJob& job : done.host_jobs) {
    result->tokens[job.index] = SampleOnHost(job, row_of(job.row));
  }
  host_logits_.clear();
  for (const int32_t row : done.batch->host_rows) {
    const std::span<const float> logits = row_of(row);
    host_logits_.insert(host_logits_.end(), logits.begin(), logits.end());
  }
  result->logits = host_logits_;
}

absl::StatusOr<SampledToken> BatchPipeline::SampleOnHost(HostJob& job,
                                                         std::span<const float> logits) {
  if (job.late) return MaskIsLate();
  if (job.pending >= 0) {
    job.draft.push_back(sampled_before_[static_cast<size_t>(job.pending)]);
  }
  return sampler_.Sample(logits,
                         {.params = &job.params,
                          .history = job.history.get(),
                          .key = job.key,
                          .score = job.score,
                          .draft = job.draft},
                         {.banned = job.banned, .allowed = job.allowed});
}

const void* BatchPipeline::attention_work() const {
  return ring_->device<std::byte>(RingSection::kAttentionWork);
}

}  // namespace tlm
