// Converts durations and fields of Protobuf messages to text.
#ifndef TLM_CLIENT_CLI_BASE_MESSAGES_H_
#define TLM_CLIENT_CLI_BASE_MESSAGES_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tlm::cli {

google::protobuf::Duration ToProto(absl::Duration duration);
absl::Duration FromProto(const google::protobuf::Duration& proto);

// Parses Protobuf's JSON. INVALID_ARGUMENT with a short message in one line.
absl::Status ParseJsonMessage(const std::string& json, google::protobuf::Message* message);

// Returns "250ms" or "1h1m40s": rounded down to milliseconds, from a minute on to seconds.
std::string RoundedTime(const google::protobuf::Duration& duration);

// Returns the field's value: numbers with separators, enum values without their common prefix
// ("half"), lists and messages comma-separated. Empty for an unset field with presence and for an
// empty list. Strings are made printable.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);
// Finds the field by name; the message must have it.
std::string FieldText(const google::protobuf::Message& message, std::string_view field);

// Returns names and texts of the fields that are not empty; without `zeros` also none that is 0,
// false or the first value of its enum.
std::vector<std::pair<std::string, std::string>> FieldTexts(
    const google::protobuf::Message& message, bool zeros);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_MESSAGES_H_
