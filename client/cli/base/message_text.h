// Messages whose fields speak for themselves, as text for people.
#ifndef TLM_CLIENT_CLI_BASE_MESSAGE_TEXT_H_
#define TLM_CLIENT_CLI_BASE_MESSAGE_TEXT_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace tlm::cli {

// The field's value: numbers with separators, enum values without what they all begin with
// ("half"), lists and messages with commas between. Empty for an unset field with presence and for
// an empty list. What the server wrote is made printable.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);
// The same by name, which the message must have.
std::string FieldText(const google::protobuf::Message& message, std::string_view field);

// Whether it is a single number that is 0.
bool IsZero(const google::protobuf::Message& message,
            const google::protobuf::FieldDescriptor& field);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_MESSAGE_TEXT_H_
