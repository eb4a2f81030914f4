// Times on the wire.
#ifndef TLM_SERVER_RPC_PROTO_TIME_H_
#define TLM_SERVER_RPC_PROTO_TIME_H_

#include <google/protobuf/duration.pb.h>

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace tlm {

// Negative values become 0, as clocks may step back; at most 10,000 years, the largest the message
// may hold.
inline void SetDuration(absl::Duration from, google::protobuf::Duration* to) {
  from = std::clamp(from, absl::ZeroDuration(), absl::Seconds(315'576'000'000));
  absl::Duration rest;
  to->set_seconds(absl::IDivDuration(from, absl::Seconds(1), &rest));
  to->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

// The deadline of a call; InfiniteFuture when the client gave none.
inline absl::Time DeadlineFrom(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_PROTO_TIME_H_
