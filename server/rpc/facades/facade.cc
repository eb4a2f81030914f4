#include "server/rpc/facades/facade.h"

#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>

#include "model/base/errors.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr int64_t kMaxAbortedIds = 1024;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Check(const Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return BadField(fmt::format("{}{}", path, unknown.field(0).number()),
                    "is no field of {} that this server knows",
                    std::string(message.GetDescriptor()->full_name()));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = path + field->name();
    if (!field->is_repeated()) {
      TLM_RETURN_IF_ERROR(Check(reflection.GetMessage(message, field), name + "."));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      TLM_RETURN_IF_ERROR(
          Check(reflection.GetRepeatedMessage(message, field, i), fmt::format("{}[{}].", name, i)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AbortedByClient() {
  return WithReason(Aborted("the client ended the call"), "ABORTED_BY_CLIENT");
}

absl::StatusOr<int64_t> AbortOwnCalls(
    const RpcContext& rpc, const Principal& caller,
    const google::protobuf::RepeatedPtrField<std::string>& request_ids) {
  TLM_RETURN_IF_ERROR(CheckCount("request_ids", request_ids.size(), kMaxAbortedIds));
  const int64_t limit = rpc.model.limits.max_request_id_bytes;
  for (int i = 0; i < request_ids.size(); ++i) {
    const auto bytes = static_cast<int64_t>(request_ids[i].size());
    if (bytes > limit) {
      return BadField(fmt::format("request_ids[{}]", i), "has {} bytes, the limit is {}", bytes,
                      limit);
    }
  }
  int64_t calls = 0;
  for (const std::string& id : request_ids) {
    calls += rpc.calls.Abort(id, caller.tenant, AbortedByClient());
  }
  return calls;
}

absl::Status CheckFieldsKnown(const google::protobuf::Message& message) {
  return Check(message, "");
}

absl::Status HeldAgainstRequest(absl::Status status) {
  if (!absl::IsUnimplemented(status)) return status;
  absl::Status held = absl::InvalidArgumentError(status.message());
  status.ForEachPayload([&held](absl::string_view type, const absl::Cord& payload) {
    held.SetPayload(type, payload);
  });
  return held;
}

}  // namespace tlm
