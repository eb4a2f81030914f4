#include "model/ops/cuda/batch/batch_pipeline.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/device/nvtx.h"

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
      common_steps_(CommonSteps(limits)),
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
  TLM_RETURN_IF_ERROR(ring_->Begin());
  running_.batch = &batch;
  running_.jobs = {};
  running_.host_jobs.clear();
  running_.host_rows = batch.host_rows;
  const BatchShape shape = ShapeOf(batch, limits_);
  const UploadPlaces places = PlacesOf(shape);
  const std::span<std::byte> upload = ring_->host();
  if (!batch.jobs.empty()) {
    sampling_table_.Pack(batch, upload.subspan(places.jobs), &running_.jobs);
    NoteHostJobs(batch);
  }
  const size_t tables = places.BlockTables(running_.jobs.table_bytes);
  TLM_RETURN_IF_ERROR(planner_
                          .Plan(batch, 0,
                                upload.subspan(places.attention, places.jobs - places.attention),
                                static_cast<int64_t>(tables / sizeof(int32_t)))
                          .status());
  TLM_RETURN_IF_ERROR(
      ring_->Upload(WritePadded(batch, shape.padded, places, running_.jobs.table_bytes, upload)));
  return Enter({.shape = shape, .stages = StagesOf(running_.jobs), .slot = ring_->slot()});
}

// Few sequences first: every load of the server begins and ends with them. Most requests sample
// from truncated distributions; greedy sampling comes next.
std::vector<BatchPipeline::Step> BatchPipeline::CommonSteps(const BatchLimits& limits) {
  constexpr SampleStages kStages[] = {
      {.noise = true, .finish = true}, {}, {.noise = true, .finish = false}};
  std::vector<Step> steps;
  for (const BatchShape& shape : CommonShapes(limits)) {
    for (const SampleStages& stages : kStages) {
      for (int slot = 0; slot < kBatches; ++slot) {
        steps.push_back({.shape = shape, .stages = stages, .slot = slot});
      }
    }
  }
  return steps;
}

UploadPlaces BatchPipeline::PlacesOf(const BatchShape& shape) const {
  return tlm::PlacesOf(shape.padded, planner_.work_bytes(shape.padded.tokens));
}

DeviceBatch BatchPipeline::Enter(const Step& step) {
  step_ = step;
  places_ = PlacesOf(step.shape);
  const auto array = [&](size_t place) { return ring_->uploaded<int32_t>(step.slot, place); };
  return DeviceBatch{.layout = {.tokens = step.shape.padded.tokens,
                                .max_blocks = 1,
                                .positions = array(places_.positions),
                                .sequence_of = array(places_.table_of),
                                .block_tables = array(0)},
                     .token_ids = array(places_.token_ids),
                     .rows = step.shape.padded.rows,
                     .logits_rows = array(places_.logits_rows),
                     .capture_key = KeyOf(step)};
}

uint64_t BatchPipeline::KeyOf(const Step& step) {
  if (step.shape.key == 0) return 0;
  return step.shape.key | static_cast<uint64_t>(step.slot) << 61 |
         uint64_t{step.stages.noise} << 62 | uint64_t{step.stages.finish} << 63;
}

// Jobs with truncation or scores mostly come together with noise, so `finish` implies `noise`: one
// shape less to capture.
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
  const BatchShape& shape = step_.shape;
  if (shape.jobs == 0) return absl::OkStatus();
  TLM_CHECK(logits.rows == shape.padded.rows && logits.cols == shape_.vocab_size);
  const NvtxRange range("sample");
  const SampleArgs args{.logits = logits.as<float>(),
                        .logits_stride = logits.stride,
                        .vocab_size = shape_.vocab_size,
                        .table = ring_->uploaded<std::byte>(step_.slot, places_.jobs),
                        .scratch = sampling_.data(),
                        .max_jobs = limits_.max_jobs(),
                        .jobs = shape.jobs,
                        .outcomes = ring_->job_results(step_.slot),
                        .sampled = ring_->sampled_tokens(step_.slot)};
  return device_.Check(LaunchSample(args, step_.stages, device_.compute_stream()), "sample");
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
  return ring_->uploaded<std::byte>(step_.slot, places_.attention);
}

const int32_t* BatchPipeline::sampled_before() const {
  return ring_->sampled_tokens((step_.slot + 1) % kBatches);
}

}  // namespace tlm
