#include "client/cli/base/messages.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Converts ROPE_LAYOUT_HALF of enum RopeLayout to "half": removes the prefix that all names of the
// enum share. A number that the enum lacks stays.
std::string EnumName(const google::protobuf::EnumDescriptor& type, const std::string& name) {
  const size_t prefix = type.value(0)->name().size() - std::string_view("UNSPECIFIED").size();
  return name.size() > prefix ? absl::AsciiStrToLower(name.substr(prefix)) : name;
}

std::string MessageText(const Message& message);

// Returns the text of a field, or of the index-th element of a repeated one.
std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return Printable(repeated ? reflection.GetRepeatedString(message, &field, index)
                              : reflection.GetString(message, &field));
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return MessageText(repeated ? reflection.GetRepeatedMessage(message, &field, index)
                                : reflection.GetMessage(message, &field));
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, repeated ? index : -1,
                                                        &text);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return text == "true" ? "yes" : "no";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return EnumName(*field.enum_type(), text);
  uint64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? WithSeparators(number) : text;
}

// Writes a message within one cell: "theta 10000, layout half"; a duration as "30s".
std::string MessageText(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Duration::descriptor()) {
    google::protobuf::Duration duration;
    duration.CopyFrom(message);
    return RoundedTime(duration);
  }
  std::string text;
  for (const auto& [name, value] : FieldTexts(message, /*zeros=*/false)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
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

std::vector<std::pair<std::string, std::string>> FieldTexts(const Message& message, bool zeros) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const bool is_set = field.is_repeated() || message.GetReflection()->HasField(message, &field);
    if (!is_set && !zeros) continue;
    std::string text = FieldText(message, field);
    if (!text.empty()) texts.emplace_back(field.name(), std::move(text));
  }
  return texts;
}

}  // namespace tlm::cli
