#include "server/rpc/facades/oip/oip_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "tests/support/proto.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Tensors of a request.
constexpr char kText[] = R"(
    inputs { name: "text_input" datatype: "BYTES" shape: 1 contents { bytes_contents: "ab" } })";
constexpr char kRawText[] = R"(inputs { name: "text_input" datatype: "BYTES" shape: [1, 1] })";
std::string Ids(const std::string& type, const std::string& shape, const std::string& contents) {
  return "inputs { name: 'input_ids' datatype: '" + type + "' shape: [" + shape + "] contents { " +
         contents + " } }";
}
std::string RawIds(const std::string& type, int count, const std::string& bytes) {
  return "inputs { name: 'input_ids' datatype: '" + type + "' shape: " + std::to_string(count) +
         " } raw_input_contents: '" + bytes + "'";
}
std::string Parameter(const std::string& name, const std::string& value) {
  return " parameters { key: \"" + name + "\" value { " + value + " } }";
}

class OipConvertTest : public ::testing::Test {
 protected:
  OipConvertTest() {
    model_.model_id = "served";
    model_.tokenizer = tokenizer_.get();
  }

  absl::StatusOr<OipCall> Convert(const std::string& request) const {
    return ConvertOip(Proto<inference::ModelInferRequest>("model_name: 'served' " + request),
                      model_);
  }
  void ExpectPrompt(const std::string& request, const std::string& prompt) const {
    const absl::StatusOr<OipCall> call = Convert(request);
    ASSERT_THAT(call, IsOk()) << request;
    EXPECT_THAT(call->request, HasFields(prompt)) << request;
  }
  void ExpectRefused(const std::string& request, const std::string& field) const {
    const absl::StatusOr<OipCall> call = Convert(request);
    EXPECT_THAT(call, StatusIs(kInvalid, _)) << request;
    EXPECT_EQ(FieldOf(call.status()), field) << request;
  }
  inference::ModelInferResponse Answer(const std::string& request, v1::FinishReason reason) const {
    const absl::StatusOr<OipCall> call = Convert(request);
    EXPECT_THAT(call, IsOk());
    inference::ModelInferResponse response;
    FillOipResponse(*call, {.text = "xy", .ids = {1, 258}, .reason = reason}, "id", model_,
                    response);
    return response;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  ServedModel model_;
};

TEST_F(OipConvertTest, TakesTextsAndIdsAsContentsOrRawBytes) {
  ExpectPrompt(kText, "prompt: 'ab'");
  ExpectPrompt(kRawText + std::string(R"(raw_input_contents: "\002\000\000\000ab")"),
               "prompt: 'ab'");
  ExpectPrompt(Ids("INT32", "2", "int_contents: [7, 9]"), "prompt_token_ids { ids: [7, 9] }");
  ExpectPrompt(Ids("INT64", "1, 1", "int64_contents: 7"), "prompt_token_ids { ids: 7 }");
  ExpectPrompt(Ids("UINT32", "1", "uint_contents: 7"), "prompt_token_ids { ids: 7 }");
  ExpectPrompt(RawIds("INT64", 2, R"(\1\2\0\0\0\0\0\0\3\0\0\0\0\0\0\0)"),
               "prompt_token_ids { ids: [0x201, 3] }");
}

TEST_F(OipConvertTest, RefusesTensorsThatAreNoPrompt) {
  // Raw texts that do not follow their length.
  for (const char* const raw :
       {R"()", R"(\2\0\0)", R"(\3\0\0\0ab)", R"(\1\0\0\0ab)", R"(\377\377\377\377)"}) {
    ExpectRefused(kRawText + (" raw_input_contents: '" + std::string(raw) + "'"), "inputs[0]");
  }
  ExpectRefused(R"(inputs { name: "text_input" datatype: "BYTES" shape: 1
                            contents { bytes_contents: "\377" } })",
                "inputs[0]");
  // Ids that no vocabulary has, and bytes that are no whole ids.
  ExpectRefused(Ids("INT64", "1", "int64_contents: -1"), "inputs[0]");
  ExpectRefused(Ids("INT64", "1", "int64_contents: 1099511627776"), "inputs[0]");
  ExpectRefused(RawIds("INT32", 1, "12345"), "inputs[0]");
  // Shapes that are not the contents'; nothing is reserved for what a shape only claims.
  ExpectRefused(Ids("INT32", "3", "int_contents: 7"), "inputs[0]");
  ExpectRefused(Ids("INT32", "9223372036854775807", "int_contents: 7"), "inputs[0]");
  for (const char* shape : {"", "-1", "2, 1", "1, 1, 1", "-9223372036854775808"}) {
    ExpectRefused(Ids("INT32", shape, "int_contents: 7"), "inputs[0].shape");
  }
  ExpectRefused("", "inputs");
  ExpectRefused(kText + std::string(kText), "inputs");
  ExpectRefused("inputs { name: 'image' datatype: 'BYTES' shape: 1 }", "inputs[0].name");
  ExpectRefused("inputs { name: 'text_input' datatype: 'INT32' shape: 1 }", "inputs[0].datatype");
  ExpectRefused("inputs { name: 'input_ids' datatype: 'FP32' shape: 1 }", "inputs[0].datatype");
  // Contents twice, and more of them than tensors.
  const std::string twice = kText + std::string(R"(raw_input_contents: "\001\000\000\000a")");
  ExpectRefused(twice, "raw_input_contents");
  ExpectRefused(twice + "raw_input_contents: ''", "raw_input_contents");
}

TEST_F(OipConvertTest, ReadsParameters) {
  const absl::StatusOr<OipCall> call = Convert(
      kText + Parameter("max_tokens", "int64_param: 5") +
      Parameter("temperature", "double_param: 0.5") + Parameter("top_p", "int64_param: 1") +
      Parameter("top_k", "uint64_param: 3") +
      Parameter("seed", "uint64_param: 18446744073709551615") +
      Parameter("stop", "string_param: 'END'") + Parameter("ignore_eos", "bool_param: true") +
      Parameter("priority", "int64_param: -3"));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->request, HasFields(R"(
      sampling { temperature: 0.5 top_p: 1 top_k: 3 seed: 18446744073709551615 }
      stopping { max_new_tokens: 5 stop_strings: "END" ignore_eos: true }
      scheduling { priority: -3 })"));
}

TEST_F(OipConvertTest, RefusesParametersOfTheWrongKind) {
  for (const std::string name :
       {"max_tokens", "temperature", "seed", "stop", "ignore_eos", "priority"}) {
    ExpectRefused(kText + Parameter(name, ""), "parameters[" + name + "]");
  }
  ExpectRefused(kText + Parameter("max_tokens", "int64_param: 4294967296"),
                "parameters[max_tokens]");
  ExpectRefused(kText + Parameter("beam_width", "int64_param: 4"), "parameters['beam_width']");
  ExpectRefused(kText + Parameter("max_tokens", "int64_param: 4") +
                    Parameter("max_new_tokens", "int64_param: 4"),
                "parameters[max_tokens]");
}

TEST_F(OipConvertTest, AnswersWhatWasAskedForAsItWasAsked) {
  EXPECT_THAT(Convert(kText)->outputs,
              ElementsAre(OipOutput::kText, OipOutput::kTokenIds, OipOutput::kFinishReason));
  EXPECT_THAT(Answer(kText + std::string("outputs { name: 'finish_reason' } "
                                         "outputs { name: 'output_ids' }"),
                     v1::FINISH_REASON_LENGTH),
              HasFields(R"(model_name: "served" id: "id"
                  outputs { name: "finish_reason" datatype: "BYTES" shape: 1
                            contents { bytes_contents: "length" } }
                  outputs { name: "output_ids" datatype: "INT32" shape: 2
                            contents { int_contents: [1, 258] } })"));
  EXPECT_THAT(Answer(kRawText + std::string(R"(raw_input_contents: "\001\000\000\000a")"),
                     v1::FINISH_REASON_EOS)
                  .raw_output_contents(),
              ElementsAre(std::string("\2\0\0\0xy", 6), std::string("\1\0\0\0\2\1\0\0", 8),
                          std::string("\3\0\0\0eos", 7)));
  ExpectRefused(kText + std::string("outputs { name: 'logits' }"), "outputs[0].name");
  ExpectRefused(
      kText + std::string("outputs { name: 'output_ids' } outputs { name: 'output_ids' }"),
      "outputs[1].name");
}

TEST_F(OipConvertTest, WithoutTokenizerThereAreIdsAlone) {
  model_.tokenizer = nullptr;
  EXPECT_THAT(Convert(kText),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("input_ids")));
  const absl::StatusOr<OipCall> call = Convert(Ids("INT32", "1", "int_contents: 7"));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->outputs, ElementsAre(OipOutput::kTokenIds, OipOutput::kFinishReason));
  inference::ModelMetadataResponse metadata;
  FillOipMetadata(model_, metadata);
  EXPECT_EQ(metadata.inputs_size(), 1);
  EXPECT_EQ(metadata.outputs_size(), 2);
}

TEST_F(OipConvertTest, RefusesOtherModelsAndVersions) {
  for (const char* const other : {" model_name: 'other'", " model_version: '2'"}) {
    EXPECT_THAT(Convert(kText + std::string(other)), StatusIs(absl::StatusCode::kNotFound, _));
  }
  EXPECT_THAT(Convert(kText + std::string(" model_version: '1'")), IsOk());
}

// A trailer has room for 8 KiB, and holds UTF-8.
TEST_F(OipConvertTest, RefusalsOfLongNamesAreShort) {
  std::string name;
  while (name.size() < 10000) name += "n\u00e4\u4e2d";
  std::string shape = "1";
  while (shape.size() < 20000) shape += ", 1";
  for (const std::string& request :
       {"inputs { name: '" + name + "' datatype: 'BYTES' shape: 1 }",
        "inputs { name: 'text_input' datatype: '" + name + "' shape: 1 }",
        "inputs { name: 'text_input' datatype: 'BYTES' shape: [" + shape + "] }",
        kText + ("outputs { name: '" + name + "' }"), kText + Parameter(name, "int64_param: 1")}) {
    const absl::StatusOr<OipCall> call = Convert(request);
    ASSERT_THAT(call, StatusIs(kInvalid, _));
    EXPECT_LT(call.status().message().size(), 1000u);
    EXPECT_TRUE(IsValidUtf8(FieldOf(call.status())));
    EXPECT_TRUE(IsValidUtf8(std::string(call.status().message())));
  }
}

}  // namespace
}  // namespace tlm
