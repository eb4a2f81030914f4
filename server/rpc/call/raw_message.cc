#include "server/rpc/call/raw_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "model/base/errors.h"
#include "tlm/v1/forward.pb.h"
#include "tlm/v1/generate.pb.h"
#include "tlm/v1/score.pb.h"
#include "tlm/v1/tokenize.pb.h"

namespace tlm {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr int kRequestIdField = 1;
static_assert(v1::GenerateRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::ForwardRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::ScoreRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::TokenizeRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::DetokenizeRequest::kRequestIdFieldNumber == kRequestIdField);

}  // namespace

std::string RequestIdIn(const grpc::ByteBuffer& request) {
  grpc::ByteBuffer shared(request);
  grpc::ProtoBufferReader reader(&shared);
  if (!reader.status().ok()) return "";
  google::protobuf::io::CodedInputStream input(&reader);
  constexpr uint32_t kTag =
      WireFormatLite::MakeTag(kRequestIdField, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  std::string id;
  while (const uint32_t tag = input.ReadTag()) {
    if (tag == kTag) return WireFormatLite::ReadString(&input, &id) ? id : "";
    if (!WireFormatLite::SkipField(&input, tag)) break;
  }
  return "";
}

void FreeMessage(const grpc::ByteBuffer& bytes) {
  // gRPC's object is not const, only what it hands out.
  const_cast<grpc::ByteBuffer&>(bytes).Clear();
}

absl::Status TakeMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer shared(bytes);
  FreeMessage(bytes);
  grpc::ProtoBufferReader reader(&shared);
  const bool parsed = reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
  if (parsed) return absl::OkStatus();
  return InvalidArgument("the request is no message of type {}", message.GetTypeName());
}

void PutMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes) {
  bytes.Clear();
  const auto size = static_cast<int>(message.ByteSizeLong());
  grpc::ProtoBufferWriter writer(&bytes, grpc::kProtoBufferWriterMaxBufferLength, size);
  TLM_CHECK(message.SerializeToZeroCopyStream(&writer));  // fails for 2 GiB and more alone
}

}  // namespace tlm
