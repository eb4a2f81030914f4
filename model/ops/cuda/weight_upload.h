// Brings weights from mapped files to the device, at the speed of the bus.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHT_UPLOAD_H_
#define TLM_MODEL_OPS_CUDA_WEIGHT_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "model/ops/cuda/block_layout.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/ops/cuda/weight_rows.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

class UploadPipeline;

// Where a stacked matrix goes: rows of `row_stride` elements, of which the first k are an output's
// weights and the others zero.
struct UploadTarget {
  void* data = nullptr;        // device memory, rows * row_stride elements
  DType dtype = DType::kBF16;  // as WeightRows stores them
  int64_t rows = 0;
  int64_t row_stride = 0;  // elements, >= k
  // The stacked output that row r holds, or -1: a row of zeros. Empty: output r, zeros past the
  // last one. Called from several threads.
  std::function<int64_t(int64_t row)> output_of_row;
};

// Threads copy, convert and transpose pieces of the parts into pinned memory while the device
// fetches those already there. Both, threads and memory, are taken with the first matrix and held
// until Finish. Same threading as Device.
class WeightUpload {
 public:
  // threads = 0: as many as the processors this process may use, 16 at the most. `device` must
  // outlive it.
  explicit WeightUpload(CudaDevice& device, int threads = 0);
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Stacks `parts` along the outputs (Ops::PackMatrix) and queues their way to the device; what is
  // put on the compute stream afterwards sees them there. The parts may go when it returns.
  // INVALID_ARGUMENT names the part and element of a value that is not finite as it is stored, or
  // a row that is too long to be staged. RESOURCE_EXHAUSTED: no pinned memory.
  absl::Status Matrix(std::span<const TensorView> parts, MatrixOrder order,
                      const UploadTarget& target);
  // The rows of `parts` to the strips of `layout` at `to`, in device memory; row r holds output
  // output_of_row(r). Otherwise as Matrix.
  absl::Status Blocks(const BlockRows& rows, const BlockLayout& layout, void* to,
                      const std::function<int64_t(int64_t row)>& output_of_row);
  // The same for vectors [n_i], laid end to end as float32.
  absl::Status Vector(std::span<const TensorView> parts, float* to);

  // Waits for all copies and gives threads and pinned memory back.
  absl::Status Finish();

  // Pinned memory comes in so many slots for each thread, of this size.
  static constexpr int kSlotsPerThread = 2;
  static constexpr size_t kSlotBytes = size_t{4} << 20;

 private:
  absl::Status OpenPipeline();

  CudaDevice& device_;
  const int threads_;
  std::unique_ptr<UploadPipeline> pipeline_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHT_UPLOAD_H_
