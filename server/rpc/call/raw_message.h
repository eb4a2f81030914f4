// Reads and writes serialized messages. A request is parsed only after admission, and a long one on
// a pool thread: gRPC's own parsing would come before both, and takes milliseconds per megabyte of
// text.
#ifndef TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_
#define TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace tlm {

// The number of the request id's field in every request of tlm.v1 that has one.
inline constexpr int kRequestIdField = 1;

// Returns the text field `field` of a request; empty when it is absent or the bytes are invalid.
std::string TextIn(const grpc::ByteBuffer& request, int field);

// Parses a request and frees its bytes, which gRPC would keep until the end of the call. Call once.
// INVALID_ARGUMENT for invalid bytes.
absl::Status TakeMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

// Frees the bytes of a request that will not be parsed. Idempotent.
void FreeMessage(const grpc::ByteBuffer& bytes);

// Replaces the contents of `bytes` by the serialized message.
void PutMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_RAW_MESSAGE_H_
