// What every façade's mapping of Generate must keep to.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_FACADES_MAPPING_FIXTURE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_FACADES_MAPPING_FIXTURE_H_

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "model/base/errors.h"
#include "server/rpc/generate/generate_mapping.h"
#include "tests/support/proto.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {

// A field of a request, by its path ("sampling.top_k"), and the request's text in which it is set.
using FieldTexts = std::map<std::string, std::string>;

// Returns the paths in `text`, which spaces separate.
inline std::set<std::string> Paths(std::string_view text) {
  return absl::StrSplit(std::string(text), ' ', absl::SkipEmpty());
}

// 1, 0.5, true or "x".
inline std::string SomeValue(const google::protobuf::FieldDescriptor& field) {
  using google::protobuf::FieldDescriptor;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true";
    case FieldDescriptor::CPPTYPE_STRING:
      return "\"x\"";
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "0.5";
    default:
      return "1";
  }
}

// Adds the fields of `type` and of the messages in it. Messages of google.protobuf and empty ones
// count as fields.
inline void AddFields(const google::protobuf::Descriptor& type, const std::string& prefix,
                      const std::string& begin, const std::string& end, FieldTexts& fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const google::protobuf::Descriptor* const message = field.message_type();
    std::string& text = fields[prefix + field.name()];
    text = begin + field.name();
    if (message == nullptr) {
      text += ": " + SomeValue(field) + end;
    } else if (field.is_map()) {
      text += " { key: " + SomeValue(*message->map_key()) +
              " value: " + SomeValue(*message->map_value()) + " }" + end;
    } else if (message->field_count() == 0 ||
               message->full_name().starts_with("google.protobuf.")) {
      text += " {}" + end;
    } else {
      AddFields(*message, prefix + field.name() + ".", text + " { ", " }" + end, fields);
      fields.erase(prefix + field.name());
    }
  }
}

template <typename Request, typename Response>
class MappingTest : public ::testing::Test {
 protected:
  // `valid`: the text of a request that is taken.
  explicit MappingTest(const std::string& valid) : valid_(valid) {}

  virtual std::unique_ptr<GenerateMapping<Request, Response>> Make() const = 0;

  // What becomes of the request with these further fields.
  absl::StatusOr<v1::GenerateRequest> Read(const std::string& more = "") {
    return Read(Proto<Request>(valid_ + " " + more));
  }
  absl::StatusOr<v1::GenerateRequest> Read(Request request) {
    mapping_ = Make();
    v1::GenerateRequest generate;
    const absl::Status status = mapping_->Read(request, model_, generate);
    if (!status.ok()) return status;
    return generate;
  }
  void ExpectRefused(const std::string& more, const std::string& field,
                     absl::StatusCode code = absl::StatusCode::kInvalidArgument,
                     const std::string& message = "") {
    const absl::StatusOr<v1::GenerateRequest> generate = Read(more);
    EXPECT_THAT(generate, StatusIs(code, ::testing::HasSubstr(message))) << more;
    EXPECT_EQ(FieldOf(generate.status()), field) << more;
  }
  // The messages that these events make, after Read.
  std::vector<Response> Write(const std::vector<std::string>& events) {
    std::vector<Response> messages;
    for (const std::string& text : events) {
      auto event = Proto<v1::GenerateResponse>(text);
      Response message;
      if (mapping_->Write(event, message)) messages.push_back(message);
    }
    return messages;
  }

  // Every field changes the request of tlm.v1, is refused by name as not implemented, or is one of
  // `without_effect`: it changes the answer alone, or says what is so anyway. `values`: texts for
  // fields of which not every value can be taken. `context`: what a field needs beside it.
  void ExpectDecisionOnEveryField(
      const std::set<std::string>& refused, const std::set<std::string>& without_effect,
      const FieldTexts& values,
      const std::function<std::string(const std::string& path)>& context) {
    FieldTexts fields;
    AddFields(*Request::descriptor(), "", "", "", fields);
    for (const auto& [path, text] : fields) {
      SCOPED_TRACE(path);
      const absl::StatusOr<v1::GenerateRequest> before = Read(context(path));
      ASSERT_THAT(before, IsOk());
      const absl::StatusOr<v1::GenerateRequest> after =
          Read(context(path) + " " + (values.contains(path) ? values.at(path) : text));
      if (refused.contains(path)) {
        EXPECT_THAT(after, StatusIs(absl::StatusCode::kUnimplemented, ::testing::_));
        EXPECT_THAT(path, ::testing::StartsWith(FieldOf(after.status())));
        continue;
      }
      ASSERT_THAT(after, IsOk());
      EXPECT_EQ(google::protobuf::util::MessageDifferencer::Equals(*before, *after),
                without_effect.contains(path));
    }
    for (const std::string& path : refused) EXPECT_TRUE(fields.contains(path)) << path;
  }
  // Fields of newer clients are unknown, in the request and in the message `part` of it.
  void ExpectUnknownFieldsAreRefused(const std::string& part) {
    for (const bool in_part : {false, true}) {
      auto request = Proto<Request>(valid_);
      google::protobuf::Message* message = &request;
      if (in_part) {
        message = message->GetReflection()->MutableMessage(
            message, Request::descriptor()->FindFieldByName(part));
      }
      message->GetReflection()->MutableUnknownFields(message)->AddVarint(77, 1);
      EXPECT_THAT(Read(request), IsInvalidArgument("77"));
    }
  }

  static constexpr char kTag[] =
      R"('{"triggers": ["<"], "structures": [{"begin": "<", "schema": {}, "end": ">"}]}')";

  const std::string valid_;
  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  ServedModel model_ = MakeServedModel(tokenizer_.get());
  std::unique_ptr<GenerateMapping<Request, Response>> mapping_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_FACADES_MAPPING_FIXTURE_H_
