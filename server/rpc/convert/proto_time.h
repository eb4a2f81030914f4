// Converts durations from and to their form on the wire.
#ifndef TLM_SERVER_RPC_CONVERT_PROTO_TIME_H_
#define TLM_SERVER_RPC_CONVERT_PROTO_TIME_H_

#include <google/protobuf/duration.pb.h>

#include <algorithm>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {

// Negative values become 0; larger ones are cut to 10,000 years, the most that the message may
// hold.
inline void SetDuration(absl::Duration from, google::protobuf::Duration* to) {
  from = std::clamp(from, absl::ZeroDuration(), absl::Seconds(315'576'000'000));
  absl::Duration rest;
  to->set_seconds(absl::IDivDuration(from, absl::Seconds(1), &rest));
  to->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

// Reads a duration of a request. INVALID_ARGUMENT naming `field` if it is negative or not a valid
// message.
inline absl::StatusOr<absl::Duration> ReadDuration(std::string_view field,
                                                   const google::protobuf::Duration& from) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;
  constexpr int32_t kMaxNanos = 999'999'999;
  if (from.seconds() < 0 || from.seconds() > kMaxSeconds || from.nanos() < 0 ||
      from.nanos() > kMaxNanos) {
    return BadField(field, "is {} s and {} ns, the ranges are [0, {}] and [0, {}]", from.seconds(),
                    from.nanos(), kMaxSeconds, kMaxNanos);
  }
  return absl::Seconds(from.seconds()) + absl::Nanoseconds(from.nanos());
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_PROTO_TIME_H_
