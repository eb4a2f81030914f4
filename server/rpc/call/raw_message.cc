#include "server/rpc/call/raw_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "model/base/errors.h"

namespace tlm {
namespace {

using google::protobuf::internal::WireFormatLite;

}  // namespace

std::string TextIn(const grpc::ByteBuffer& request, int field) {
  grpc::ByteBuffer shared(request);
  grpc::ProtoBufferReader reader(&shared);
  if (!reader.status().ok()) return "";
  google::protobuf::io::CodedInputStream input(&reader);
  const uint32_t wanted = WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  std::string text;
  while (const uint32_t tag = input.ReadTag()) {
    if (tag == wanted) return WireFormatLite::ReadString(&input, &text) ? text : "";
    if (!WireFormatLite::SkipField(&input, tag)) break;
  }
  return "";
}

void FreeMessage(const grpc::ByteBuffer& bytes) {
  // gRPC's object is not const, only the reference it passes.
  const_cast<grpc::ByteBuffer&>(bytes).Clear();
}

absl::Status TakeMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer shared(bytes);
  FreeMessage(bytes);
  grpc::ProtoBufferReader reader(&shared);
  const bool parsed = reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
  if (parsed) return absl::OkStatus();
  return InvalidArgument("the request cannot be parsed as {}", message.GetTypeName());
}

void PutMessage(const google::protobuf::Message& message, grpc::ByteBuffer& bytes) {
  bytes.Clear();
  const auto size = static_cast<int>(message.ByteSizeLong());
  grpc::ProtoBufferWriter writer(&bytes, grpc::kProtoBufferWriterMaxBufferLength, size);
  TLM_CHECK(message.SerializeToZeroCopyStream(&writer));  // fails only from 2 GiB on
}

}  // namespace tlm
