// Runs the parts of a step around the model: uploads, attention's work, sampling and results.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_BATCH_PIPELINE_H_
#define TLM_MODEL_OPS_CUDA_BATCH_BATCH_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/batch/attention_plan.h"
#include "model/ops/cuda/batch/batch_ring.h"
#include "model/ops/cuda/batch/batch_shape.h"
#include "model/ops/cuda/batch/sampling_table.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/kernels/sampling/sample.h"
#include "model/ops/ops.h"
#include "model/sampling/sampler.h"
#include "model/tensor/buffer.h"

namespace tlm {

// Belongs to one model and its limits. Begin, CommonStep, Sample, End and Await implement the
// functions of Ops. Threading is as for Device. Allocates its memory in Create.
class BatchPipeline {
 public:
  // Device memory that Create allocates, in bytes.
  static size_t DeviceBytes(const CudaDevice& device, const BatchLimits& limits,
                            const ModelShape& shape, DType activations);
  // Returns RESOURCE_EXHAUSTED like Allocate. `device` must outlive the pipeline.
  static absl::StatusOr<std::unique_ptr<BatchPipeline>> Create(CudaDevice& device,
                                                               const BatchLimits& limits,
                                                               const ModelShape& shape,
                                                               DType activations);

  static constexpr int kBatches = BatchRing::kSlots;

  absl::StatusOr<DeviceBatch> Begin(const Batch& batch);
  int64_t common_steps() const { return static_cast<int64_t>(common_steps_.size()); }
  DeviceBatch CommonStep(int64_t index) { return Enter(common_steps_[static_cast<size_t>(index)]); }
  // Does nothing for a batch without jobs.
  absl::Status Sample(const Rows& logits);
  absl::Status End(const Rows& logits);
  absl::StatusOr<BatchResult> Await();

  // Whether the device samples every job of the last ended batch.
  bool TakesPendingTokens() const { return ended_.empty() || ended_.back().host_jobs.empty(); }

  const ModelShape& shape() const { return shape_; }
  // Device memory for the kernels: attention's part of the running batch, and the tokens that the
  // previous batch sampled.
  const AttentionGrid& attention_grid() const { return planner_.grid(); }
  const void* attention_work() const;
  AttentionScratch attention_scratch() const { return planner_.Scratch(attention_.data()); }
  const int32_t* sampled_before() const;

 private:
  // A job that the host samples, with copies of everything that its batch may no longer have at
  // that time.
  struct HostJob {
    size_t index = 0;  // in Batch::jobs
    int32_t row = 0;
    SamplingParams params;
    // All jobs of one draft share it.
    std::shared_ptr<const TokenHistory> history;
    std::vector<int32_t> draft;
    SampleKey key;
    LogprobOptions score;
    std::vector<int32_t> banned;
    std::optional<std::vector<uint64_t>> allowed;  // as in Removals
    bool late = false;                             // the mask was not ready
    int64_t pending = -1;  // job of the previous batch whose token the history lacks; -1: no job
  };
  struct Running {
    const Batch* batch = nullptr;
    PackedJobs jobs;
    std::vector<HostJob> host_jobs;
    std::vector<int32_t> host_rows;  // rows of the batch, and rows of host_jobs
  };

  BatchPipeline(CudaDevice& device, const BatchLimits& limits, const ModelShape& shape,
                DType activations);
  absl::Status Allocate();
  static RingShape RingShapeFor(const BatchLimits& limits, const ModelShape& shape,
                                size_t attention_bytes);
  static AttentionPlanner PlannerFor(const CudaDevice& device, const BatchLimits& limits,
                                     const ModelShape& shape, DType activations);
  // The values that determine the launches of a step.
  struct Step {
    BatchShape shape;
    SampleStages stages;
    int slot = 0;  // slot of the ring
  };
  static std::vector<Step> CommonSteps(const BatchLimits& limits);
  UploadPlaces PlacesOf(const BatchShape& shape) const;
  static uint64_t KeyOf(const Step& step);
  // Makes `step` the current step, for which kernels are launched.
  DeviceBatch Enter(const Step& step);
  // Returns the sampling kernels to run.
  static SampleStages StagesOf(const PackedJobs& jobs);
  void NoteHostJobs(const Batch& batch);
  absl::StatusOr<SampledToken> SampleOnHost(HostJob& job, std::span<const float> logits);
  // Samples the host jobs, and gives `result` the batch's own rows.
  void FinishOnHost(Running& done, const RingResult& ring, BatchResult* result);

  CudaDevice& device_;
  const BatchLimits limits_;
  const ModelShape shape_;
  const std::vector<Step> common_steps_;
  AttentionPlanner planner_;
  SamplingTable sampling_table_;
  Sampler sampler_;
  std::unique_ptr<BatchRing> ring_;
  Buffer attention_;  // the planner's scratch
  Buffer sampling_;   // the sampling kernels' scratch
  Running running_;
  Step step_;
  UploadPlaces places_;                  // places of step_
  std::deque<Running> ended_;            // oldest first
  std::vector<int32_t> sampled_before_;  // tokens sampled by the last awaited batch
  std::vector<float> host_logits_;       // rows of the batch, without rows of host jobs
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_BATCH_PIPELINE_H_
