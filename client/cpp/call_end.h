// What the end of a call says about where else it could go on.
#ifndef TLM_CLIENT_CPP_CALL_END_H_
#define TLM_CLIENT_CPP_CALL_END_H_

#include "absl/status/status.h"

namespace tlm::client {

enum class CallEnd {
  kFinal,       // the server's answer: another replica would give the same
  kLost,        // the replica died, is not there, starts or drains
  kOverloaded,  // the replica refuses until later
  kOtherModel,  // the replica cannot do this, or cannot continue this stream
  kIdInUse,     // the replica has a call of this request_id
};

// What a call that nobody cancelled ended with, which is not OK. As gRPC 1.51 reports them:
//
//   kLost        UNAVAILABLE: nobody listens, the connection broke, STARTING, DRAINING;
//                CANCELLED: the server let go of the call when it shut down;
//                UNKNOWN "Stream removed", INTERNAL with "RST_STREAM": the connection broke, or a
//                proxy in between lost it. A tlm server sends neither: they come without details.
//   kOverloaded  RESOURCE_EXHAUSTED with a retry delay; without one (a message that is too large)
//   it
//                is final.
//   kOtherModel  FAILED_PRECONDITION
//   kIdInUse     ALREADY_EXISTS
//   kFinal       all else: INVALID_ARGUMENT, DEADLINE_EXCEEDED, DATA_LOSS, ABORTED, INTERNAL, ...
CallEnd ClassifyEnd(const absl::Status& status);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CALL_END_H_
