// Messages as gRPC moves them. A request that has come is parsed once its call is let in, and a
// long one on a thread that has the time: gRPC's own parsing is before both, and takes milliseconds
// for a megabyte of text.
#ifndef TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_
#define TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace tlm {

// The request_id of a request of tlm.v1, which is field 1 of each of them; empty without one, and
// when the bytes are no message.
std::string RequestIdIn(const grpc::ByteBuffer& request);

// Parses a request and frees its bytes, which gRPC would keep until the end of the call: once.
// INVALID_ARGUMENT when they are no such message.
absl::Status TakeMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

// Frees the bytes of a request that will not be parsed. Idempotent.
void FreeMessage(const grpc::ByteBuffer& bytes);

// `bytes` hold the message from now on, and nothing else.
void PutMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_
