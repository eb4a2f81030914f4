#include "client/cli/base/messages.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Converts ROPE_LAYOUT_HALF of enum RopeLayout to "half": removes the prefix that all names of the
// enum share.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value) {
  const std::string unspecified = value.type()->value(0)->name();
  const size_t prefix = unspecified.size() - std::string_view("UNSPECIFIED").size();
  std::string name = std::string(value.name()).substr(std::min(prefix, value.name().size()));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::string MessageText(const Message& message);

// Returns the text of a field, or of the index-th element of a repeated one.
std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "yes" : "no";
    case FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", repeated ? reflection.GetRepeatedInt32(message, &field, index)
                                        : reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", repeated ? reflection.GetRepeatedInt64(message, &field, index)
                                        : reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return WithSeparators(repeated ? reflection.GetRepeatedUInt32(message, &field, index)
                                     : reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return WithSeparators(repeated ? reflection.GetRepeatedUInt64(message, &field, index)
                                     : reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return fmt::format("{}", reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*(repeated ? reflection.GetRepeatedEnum(message, &field, index)
                                 : reflection.GetEnum(message, &field)));
    case FieldDescriptor::CPPTYPE_STRING:
      return Printable(repeated ? reflection.GetRepeatedString(message, &field, index)
                                : reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageText(repeated ? reflection.GetRepeatedMessage(message, &field, index)
                                  : reflection.GetMessage(message, &field));
  }
  return "";
}

// Writes a message within one cell: "theta 10000, layout half"; a duration as "30s".
std::string MessageText(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Duration::descriptor()) {
    google::protobuf::Duration duration;
    duration.CopyFrom(message);
    return RoundedTime(duration);
  }
  std::string text;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string value = FieldText(message, field);
    if (value.empty()) continue;
    text += text.empty() ? "" : ", ";
    text += fmt::format("{} {}", field.name(), value);
  }
  return text;
}

}  // namespace

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int32_t>(duration / absl::Nanoseconds(1)));
  return proto;
}

absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

absl::Status ParseJsonMessage(const std::string& json, Message* message) {
  constexpr size_t kMaxShownColumns = 200;
  const auto status = google::protobuf::util::JsonStringToMessage(json, message);
  if (status.ok()) return absl::OkStatus();
  return InvalidArgument("{}", Shortened(OneLine(status.message().ToString()), kMaxShownColumns));
}

std::string RoundedTime(const google::protobuf::Duration& duration) {
  const absl::Duration time = FromProto(duration);
  return absl::FormatDuration(
      absl::Trunc(time, time < absl::Minutes(1) ? absl::Milliseconds(1) : absl::Seconds(1)));
}

std::string FieldText(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    if (field.has_presence() && !reflection.HasField(message, &field)) return "";
    return ValueText(message, field, 0);
  }
  std::string text;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    text += text.empty() ? "" : ", ";
    text += ValueText(message, field, i);
  }
  return text;
}

std::string FieldText(const Message& message, std::string_view field) {
  return FieldText(message, *message.GetDescriptor()->FindFieldByName(std::string(field)));
}

bool IsZero(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return false;
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, &field) == 0;
    default:
      return false;
  }
}

}  // namespace tlm::cli
