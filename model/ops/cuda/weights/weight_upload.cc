#include "model/ops/cuda/weights/weight_upload.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/device/upload_pipeline.h"
#include "model/ops/cuda/kernels/ceil_div.h"

namespace tlm {
namespace {

constexpr int kMaxThreads = 16;
// Smaller pieces cost more in calls than parallel filling gains.
constexpr size_t kMinPieceBytes = size_t{256} << 10;

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Returns the rows per piece: a slot's worth of a large matrix; for a small one, so few rows that
// every thread gets two pieces.
int64_t RowsOfPiece(int64_t rows, size_t row_bytes, const UploadPipeline& pipeline) {
  const int64_t fair = CeilDiv(rows, 2 * int64_t{pipeline.threads()});
  const int64_t least =
      CeilDiv(static_cast<int64_t>(kMinPieceBytes), static_cast<int64_t>(row_bytes));
  const int64_t most = static_cast<int64_t>(pipeline.slot_bytes() / row_bytes);
  return std::clamp<int64_t>(std::max(fair, least), 1, most);
}

}  // namespace

WeightUpload::WeightUpload(CudaDevice& device, int threads)
    : device_(device),
      threads_(threads > 0 ? threads : std::min(kMaxThreads, UsableProcessors())) {}

WeightUpload::~WeightUpload() = default;

absl::Status WeightUpload::OpenPipeline() {
  if (pipeline_ != nullptr) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(
      pipeline_, UploadPipeline::Create(device_, threads_, kSlotsPerThread * threads_, kSlotBytes));
  return absl::OkStatus();
}

absl::Status WeightUpload::Matrix(std::span<const TensorView> parts, MatrixOrder order,
                                  const UploadTarget& target) {
  const WeightRows rows(parts, order, target.dtype);
  TLM_CHECK(target.row_stride >= rows.k());
  const size_t row_bytes = static_cast<size_t>(target.row_stride) * DTypeBytes(target.dtype);
  if (target.rows == 0 || row_bytes == 0) return absl::OkStatus();
  if (row_bytes > kSlotBytes) {
    return InvalidArgument("a weight matrix has rows of {} bytes, the limit is {}", row_bytes,
                           kSlotBytes);
  }
  TLM_RETURN_IF_ERROR(OpenPipeline());
  const int64_t piece_rows = RowsOfPiece(target.rows, row_bytes, *pipeline_);
  const auto rows_of = [&](int64_t piece) {
    return std::min(piece_rows, target.rows - piece * piece_rows);
  };
  const auto place = [&](int64_t piece) -> UploadPiece {
    return {.to = static_cast<std::byte*>(target.data) +
                  static_cast<size_t>(piece * piece_rows) * row_bytes,
            .bytes = static_cast<size_t>(rows_of(piece)) * row_bytes};
  };
  const auto fill = [&](int64_t piece, void* slot) -> absl::Status {
    std::vector<int64_t> outputs(static_cast<size_t>(rows_of(piece)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int64_t row = piece * piece_rows + static_cast<int64_t>(i);
      const int64_t output = target.output_of_row ? target.output_of_row(row) : row;
      outputs[i] = output < rows.n() ? output : -1;
    }
    const auto found = rows.Read(outputs, target.row_stride, slot);
    return found.has_value() ? NonFiniteError(*found, parts[found->part]) : absl::OkStatus();
  };
  return pipeline_->Run(CeilDiv(target.rows, piece_rows), place, fill);
}

absl::Status WeightUpload::Blocks(const BlockRows& rows, const BlockLayout& layout, void* to,
                                  const std::function<int64_t(int64_t row)>& output_of_row) {
  const size_t strip_bytes = layout.strip_bytes();
  const int64_t strips = layout.strips();
  if (strips == 0 || strip_bytes == 0) return absl::OkStatus();
  if (strip_bytes > kSlotBytes) {
    return InvalidArgument("{} rows of a weight matrix in blocks have {} bytes, the limit is {}",
                           kStripRows, strip_bytes, kSlotBytes);
  }
  TLM_RETURN_IF_ERROR(OpenPipeline());
  const int64_t piece_strips = RowsOfPiece(strips, strip_bytes, *pipeline_);
  const auto strips_of = [&](int64_t piece) {
    return std::min(piece_strips, strips - piece * piece_strips);
  };
  const auto place = [&](int64_t piece) -> UploadPiece {
    return {
        .to = static_cast<std::byte*>(to) + static_cast<size_t>(piece * piece_strips) * strip_bytes,
        .bytes = static_cast<size_t>(strips_of(piece)) * strip_bytes};
  };
  const auto fill = [&](int64_t piece, void* slot) -> absl::Status {
    auto* strip_at = static_cast<std::byte*>(slot);
    for (int64_t i = 0; i < strips_of(piece); ++i, strip_at += strip_bytes) {
      const int64_t first = (piece * piece_strips + i) * kStripRows;
      std::array<int64_t, kStripRows> outputs;
      for (int64_t r = 0; r < kStripRows; ++r) {
        outputs[static_cast<size_t>(r)] = first + r < layout.n() ? output_of_row(first + r) : -1;
      }
      TLM_RETURN_IF_ERROR(rows.ReadStrip(outputs, layout, strip_at));
    }
    return absl::OkStatus();
  };
  return pipeline_->Run(CeilDiv(strips, piece_strips), place, fill);
}

absl::Status WeightUpload::Vector(std::span<const TensorView> parts, float* to) {
  int64_t offset = 0;
  for (size_t index = 0; index < parts.size(); ++index) {
    const TensorView& part = parts[index];
    TLM_CHECK(part.shape.rank() == 1);
    std::vector<float> values(static_cast<size_t>(part.elements()));
    std::optional<NonFinite> found = ReadFloats(part, values);
    if (found.has_value()) {
      found->part = index;
      return NonFiniteError(*found, part);
    }
    TLM_RETURN_IF_ERROR(
        device_.CopyToDevice(to + offset, values.data(), values.size() * sizeof(float)));
    offset += part.elements();
  }
  return absl::OkStatus();
}

absl::Status WeightUpload::Finish() {
  pipeline_ = nullptr;
  return device_.Synchronize();
}

}  // namespace tlm
