// Between values of the wire and of Abseil.
#ifndef TLM_CLIENT_CLI_BASE_PROTO_VALUES_H_
#define TLM_CLIENT_CLI_BASE_PROTO_VALUES_H_

#include <google/protobuf/duration.pb.h>

#include <cstdint>

#include "absl/time/time.h"

namespace tlm::cli {

inline google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int32_t>(duration / absl::Nanoseconds(1)));
  return proto;
}

inline absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_PROTO_VALUES_H_
