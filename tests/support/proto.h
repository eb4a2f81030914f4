// Messages in the text format of Protobuf, to build them and to compare them with.
#ifndef TLM_TESTS_SUPPORT_PROTO_H_
#define TLM_TESTS_SUPPORT_PROTO_H_

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tlm {

// Sets the fields of `text`; repeated fields get further entries.
inline void Merge(const std::string& text, google::protobuf::Message& message) {
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &message)) << text;
}
template <typename Message>
Message Proto(const std::string& text) {
  Message message;
  Merge(text, message);
  return message;
}

inline bool Differs(const std::string& text, const google::protobuf::Message& message,
                    google::protobuf::util::MessageDifferencer::Scope scope,
                    std::string* differences) {
  const std::unique_ptr<google::protobuf::Message> expected(message.New());
  Merge(text, *expected);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_scope(scope);
  differencer.ReportDifferencesToString(differences);
  return !differencer.Compare(*expected, message);
}

// All fields of the message are those of the text.
MATCHER_P(IsProto, text, "has the fields: " + std::string(text)) {
  std::string differences;
  const bool equal =
      !Differs(text, arg, google::protobuf::util::MessageDifferencer::FULL, &differences);
  *result_listener << differences;
  return equal;
}
// The message has the fields of the text, repeated fields whole, and may have others. A zero of a
// field without presence in the text says nothing.
MATCHER_P(HasFields, text, "has among its fields: " + std::string(text)) {
  std::string differences;
  const bool equal =
      !Differs(text, arg, google::protobuf::util::MessageDifferencer::PARTIAL, &differences);
  *result_listener << differences;
  return equal;
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_PROTO_H_
