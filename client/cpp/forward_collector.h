// Assembles the messages of a Forward stream into one result.
#ifndef TLM_CLIENT_CPP_FORWARD_COLLECTOR_H_
#define TLM_CLIENT_CPP_FORWARD_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tlm/v1/forward.pb.h"

namespace tlm::client {

// The sequence and position of a row.
struct RowIndex {
  uint32_t sequence_index;
  uint32_t position;
  bool operator==(const RowIndex&) const = default;
};

struct ForwardResult {
  v1::ForwardHeader header;
  std::vector<RowIndex> rows;
  std::vector<float> values;       // [rows, header.row_width], row-major; empty with top_k
  std::vector<v1::TopValues> top;  // one per row with top_k, otherwise empty
  v1::ForwardSummary summary;

  std::span<const float> Row(size_t index) const {
    return std::span<const float>(values).subspan(index * header.row_width(), header.row_width());
  }
};

class ForwardCollector {
 public:
  // Refuses results of more than `max_values` floats.
  explicit ForwardCollector(size_t max_values) : max_values_(max_values) {}

  // Adds the next message. INTERNAL if it contradicts the header, RESOURCE_EXHAUSTED if the result
  // would exceed the limit.
  absl::Status Add(v1::ForwardResponse response);

  ForwardResult&& TakeResult() { return std::move(result_); }

  // OK if header, all announced rows and summary have arrived; otherwise INTERNAL.
  absl::Status CheckComplete() const;

 private:
  absl::Status AddRows(v1::ForwardRows rows);
  absl::Status AddData(const v1::ForwardRows& rows);

  const size_t max_values_;
  ForwardResult result_;
  bool has_header_ = false;
  bool has_summary_ = false;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_FORWARD_COLLECTOR_H_
