#include "client/cpp/forward_collector.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

namespace tlm::client {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are little-endian on the wire");

size_t ElementBytes(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
      return 4;
    case v1::DATA_TYPE_BFLOAT16:
    case v1::DATA_TYPE_FLOAT16:
      return 2;
    default:
      return 0;
  }
}

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Converts IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
float FromFloat16(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0x1f) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
}

void AppendFloats(const std::string& data, v1::DataType dtype, std::vector<float>* values) {
  const size_t count = data.size() / ElementBytes(dtype);
  const size_t begin = values->size();
  values->resize(begin + count);
  float* out = values->data() + begin;
  if (dtype == v1::DATA_TYPE_FLOAT32) {
    std::memcpy(out, data.data(), count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data.data() + i * sizeof(bits), sizeof(bits));
    out[i] = dtype == v1::DATA_TYPE_BFLOAT16 ? FromBfloat16(bits) : FromFloat16(bits);
  }
}

}  // namespace

absl::Status ForwardCollector::Add(v1::ForwardResponse response) {
  switch (response.event_case()) {
    case v1::ForwardResponse::kHeader:
      if (has_header_) return absl::InternalError("the server sent two headers");
      result_.header = std::move(*response.mutable_header());
      has_header_ = true;
      break;
    case v1::ForwardResponse::kRows:
      if (!has_header_) return absl::InternalError("the server sent rows before the header");
      return AddRows(std::move(*response.mutable_rows()));
    case v1::ForwardResponse::kSummary:
      result_.summary = std::move(*response.mutable_summary());
      has_summary_ = true;
      break;
    case v1::ForwardResponse::EVENT_NOT_SET:
      break;  // An event of a newer server: compatible by contract.
  }
  return absl::OkStatus();
}

absl::Status ForwardCollector::AddRows(v1::ForwardRows rows) {
  if (rows.row_count() == 0 ||
      rows.row_count() > result_.header.rows_total() - result_.rows.size()) {
    return absl::InternalError(fmt::format("the server sent {} rows after {} of {}",
                                           rows.row_count(), result_.rows.size(),
                                           result_.header.rows_total()));
  }
  if (rows.top_size() > 0) {
    if (static_cast<uint32_t>(rows.top_size()) != rows.row_count()) {
      return absl::InternalError(
          fmt::format("the server sent {} lists for {} rows", rows.top_size(), rows.row_count()));
    }
    result_.top.insert(result_.top.end(), std::make_move_iterator(rows.mutable_top()->begin()),
                       std::make_move_iterator(rows.mutable_top()->end()));
  } else if (absl::Status status = AddData(rows); !status.ok()) {
    return status;
  }
  for (uint32_t i = 0; i < rows.row_count(); ++i) {
    result_.rows.push_back({rows.sequence_index(), rows.first_position() + i});
  }
  return absl::OkStatus();
}

absl::Status ForwardCollector::AddData(const v1::ForwardRows& rows) {
  const v1::ForwardHeader& header = result_.header;
  // A product of two 32-bit numbers does not overflow.
  const uint64_t expected = uint64_t{rows.row_count()} * header.row_width();
  const size_t element_bytes = ElementBytes(header.dtype());
  if (element_bytes == 0 || expected == 0 || rows.data().size() / element_bytes != expected ||
      rows.data().size() % element_bytes != 0) {
    return absl::InternalError(fmt::format("the server sent {} bytes for {} rows of {} values",
                                           rows.data().size(), rows.row_count(),
                                           header.row_width()));
  }
  if (expected > max_values_ - result_.values.size()) {
    return absl::ResourceExhaustedError(
        fmt::format("the rows hold more than {} values, this client's limit", max_values_));
  }
  AppendFloats(rows.data(), header.dtype(), &result_.values);
  return absl::OkStatus();
}

absl::Status ForwardCollector::CheckComplete() const {
  if (has_header_ && has_summary_ && result_.rows.size() == result_.header.rows_total()) {
    return absl::OkStatus();
  }
  return absl::InternalError("the server ended the stream with OK before it was complete");
}

}  // namespace tlm::client
