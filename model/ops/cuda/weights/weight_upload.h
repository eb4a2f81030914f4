// Uploads weights from memory-mapped files to the device, at the speed of the bus.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_UPLOAD_H_
#define TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/weights/block_layout.h"
#include "model/ops/cuda/weights/weight_rows.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

class UploadPipeline;

// The destination of a stacked matrix: rows of `row_stride` elements, the first k of which are an
// output's weights; the others are zero.
struct UploadTarget {
  void* data = nullptr;        // device memory, rows * row_stride elements
  DType dtype = DType::kBF16;  // as WeightRows stores them
  int64_t rows = 0;
  int64_t row_stride = 0;  // elements, >= k
  // The output that row r holds, or -1 for a row of zeros. Empty: output r, and zeros after the
  // last output. Called from several threads.
  std::function<int64_t(int64_t row)> output_of_row;
};

// Threads copy, convert and transpose pieces of the parts into pinned memory while the device
// copies earlier pieces. Threads and pinned memory are created with the first matrix and held until
// Finish. Threading is as for Device.
class WeightUpload {
 public:
  // threads = 0: one per processor that this process may use, at most 16. `device` must outlive
  // this object.
  explicit WeightUpload(CudaDevice& device, int threads = 0);
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Stacks `parts` along the outputs (Ops::PackMatrix) and queues the copies to the device. Later
  // work on the compute stream sees the matrix. The parts may be freed when this returns.
  // INVALID_ARGUMENT names the part and element of a value that is not finite in the stored type,
  // or a row that is too long for a slot. Returns RESOURCE_EXHAUSTED without pinned memory.
  absl::Status Matrix(std::span<const TensorView> parts, MatrixOrder order,
                      const UploadTarget& target);
  // Uploads `rows` as the strips of `layout` at `to`, in device memory; row r holds output
  // output_of_row(r). Otherwise like Matrix.
  absl::Status Blocks(const BlockRows& rows, const BlockLayout& layout, void* to,
                      const std::function<int64_t(int64_t row)>& output_of_row);
  // Uploads vectors [n_i], concatenated, as float32.
  absl::Status Vector(std::span<const TensorView> parts, float* to);

  // Waits for all copies and frees threads and pinned memory.
  absl::Status Finish();

  // Pinned memory has this many slots per thread, of this size.
  static constexpr int kSlotsPerThread = 2;
  static constexpr size_t kSlotBytes = size_t{4} << 20;

 private:
  absl::Status OpenPipeline();

  CudaDevice& device_;
  const int threads_;
  std::unique_ptr<UploadPipeline> pipeline_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_UPLOAD_H_
