// Encodes one position's logits for Forward responses.
#ifndef TLM_SERVER_RPC_OUTPUT_ROW_ENCODER_H_
#define TLM_SERVER_RPC_OUTPUT_ROW_ENCODER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/convert/convert.h"
#include "tlm/v1/forward.pb.h"

namespace tlm {

// Thread-compatible: keeps scratch memory of one row.
class RowEncoder {
 public:
  explicit RowEncoder(const RowFormat& format) : format_(format) {}

  // Adds one row to rows.data, in the format's dtype (rounded to nearest even), or to rows.top.
  // `logits` cover the whole vocabulary. Probabilities are a softmax over the whole vocabulary:
  // sums in double, in the order of the ids; every value is rounded once. DATA_LOSS when a logit is
  // NaN or +infinity or all are -infinity.
  absl::Status Append(std::span<const float> logits, v1::ForwardRows& rows);

 private:
  absl::Status Transform(std::span<const float> logits);
  void AppendData(v1::ForwardRows& rows) const;
  void AppendTop(v1::ForwardRows& rows);

  const RowFormat format_;
  std::vector<float> values_;                      // [width]
  std::vector<std::pair<float, int32_t>> ranked_;  // scratch of AppendTop
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_ROW_ENCODER_H_
