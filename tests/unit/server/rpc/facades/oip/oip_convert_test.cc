#include "server/rpc/facades/oip/oip_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OipConvertTest : public ::testing::Test {
 protected:
  OipConvertTest() : tokenizer_(MakeByteTokenizer()) {
    model_.model_id = "served";
    model_.tokenizer = tokenizer_.get();
    request_.set_model_name("served");
  }

  inference::ModelInferRequest::InferInputTensor& AddInput(const char* name, const char* datatype,
                                                           std::vector<int64_t> shape) {
    auto& tensor = *request_.add_inputs();
    tensor.set_name(name);
    tensor.set_datatype(datatype);
    tensor.mutable_shape()->Assign(shape.begin(), shape.end());
    return tensor;
  }
  void AddText(const std::string& text) {
    AddInput("text_input", "BYTES", {1}).mutable_contents()->add_bytes_contents(text);
  }
  absl::StatusOr<OipCall> Convert() const { return ConvertOip(request_, model_); }
  // The field that the refusal of the request names.
  std::string RefusedField() const {
    const absl::StatusOr<OipCall> call = Convert();
    EXPECT_THAT(call, StatusIs(absl::StatusCode::kInvalidArgument, _));
    return FieldOf(call.status());
  }
  inference::InferParameter& Parameter(const std::string& name) {
    return (*request_.mutable_parameters())[name];
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  ServedModel model_;
  inference::ModelInferRequest request_;
};

TEST_F(OipConvertTest, TakesTextFromTheContents) {
  AddText("ab");
  const absl::StatusOr<OipCall> call = Convert();
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->request.prompt(), "ab");
  EXPECT_FALSE(call->raw);
  EXPECT_THAT(call->outputs,
              ElementsAre(OipOutput::kText, OipOutput::kTokenIds, OipOutput::kFinishReason));
}

TEST_F(OipConvertTest, TakesTextFromRawBytes) {
  AddInput("text_input", "BYTES", {1, 1});
  request_.add_raw_input_contents(std::string("\2\0\0\0ab", 6));
  const absl::StatusOr<OipCall> call = Convert();
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->request.prompt(), "ab");
  EXPECT_TRUE(call->raw);
}

TEST_F(OipConvertTest, RefusesRawTextThatIsNotBehindItsLength) {
  for (const std::string& raw :
       {std::string(), std::string("\2\0\0", 3), std::string("\3\0\0\0ab", 6),
        std::string("\1\0\0\0ab", 6), std::string("\xff\xff\xff\xff", 4)}) {
    request_.Clear();
    request_.set_model_name("served");
    AddInput("text_input", "BYTES", {1});
    request_.add_raw_input_contents(raw);
    EXPECT_EQ(RefusedField(), "inputs[0]") << raw.size();
  }
}

TEST_F(OipConvertTest, RefusesTextThatIsNotUtf8) {
  AddText("\xff");
  EXPECT_EQ(RefusedField(), "inputs[0]");
}

TEST_F(OipConvertTest, TakesIdsOfEachType) {
  AddInput("input_ids", "INT32", {2}).mutable_contents()->add_int_contents(7);
  request_.mutable_inputs(0)->mutable_contents()->add_int_contents(9);
  EXPECT_THAT(Convert()->request.prompt_token_ids().ids(), ElementsAre(7, 9));

  request_.clear_inputs();
  AddInput("input_ids", "INT64", {1, 1}).mutable_contents()->add_int64_contents(7);
  EXPECT_THAT(Convert()->request.prompt_token_ids().ids(), ElementsAre(7));

  request_.clear_inputs();
  AddInput("input_ids", "UINT32", {1}).mutable_contents()->add_uint_contents(7);
  EXPECT_THAT(Convert()->request.prompt_token_ids().ids(), ElementsAre(7));
}

TEST_F(OipConvertTest, TakesRawIdsLittleEndian) {
  AddInput("input_ids", "INT64", {2});
  request_.add_raw_input_contents(std::string("\1\2\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16));
  EXPECT_THAT(Convert()->request.prompt_token_ids().ids(), ElementsAre(0x201, 3));
}

TEST_F(OipConvertTest, RefusesIdsThatNoVocabularyHas) {
  AddInput("input_ids", "INT64", {1}).mutable_contents()->add_int64_contents(-1);
  EXPECT_EQ(RefusedField(), "inputs[0]");
  request_.mutable_inputs(0)->mutable_contents()->set_int64_contents(0, int64_t{1} << 40);
  EXPECT_EQ(RefusedField(), "inputs[0]");
}

TEST_F(OipConvertTest, RefusesShapesThatAreNotTheContents) {
  AddInput("input_ids", "INT32", {3}).mutable_contents()->add_int_contents(7);
  EXPECT_EQ(RefusedField(), "inputs[0]");
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {-1}, {2, 1}, {1, 1, 1}, {std::numeric_limits<int64_t>::min()}}) {
    request_.mutable_inputs(0)->mutable_shape()->Assign(shape.begin(), shape.end());
    EXPECT_EQ(RefusedField(), "inputs[0].shape") << ::testing::PrintToString(shape);
  }
  // Nothing is reserved for what a shape only claims.
  request_.mutable_inputs(0)->mutable_shape()->Clear();
  request_.mutable_inputs(0)->add_shape(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(RefusedField(), "inputs[0]");
}

TEST_F(OipConvertTest, RefusesRawBytesThatAreNoWholeIds) {
  AddInput("input_ids", "INT32", {1});
  request_.add_raw_input_contents("12345");
  EXPECT_EQ(RefusedField(), "inputs[0]");
}

TEST_F(OipConvertTest, RefusesOtherInputs) {
  EXPECT_EQ(RefusedField(), "inputs");
  AddInput("image", "BYTES", {1});
  EXPECT_EQ(RefusedField(), "inputs[0].name");
  request_.clear_inputs();
  AddInput("text_input", "INT32", {1});
  EXPECT_EQ(RefusedField(), "inputs[0].datatype");
  request_.clear_inputs();
  AddInput("input_ids", "FP32", {1});
  EXPECT_EQ(RefusedField(), "inputs[0].datatype");
  request_.clear_inputs();
  AddText("a");
  AddText("b");
  EXPECT_EQ(RefusedField(), "inputs");
}

TEST_F(OipConvertTest, RefusesContentsTwice) {
  AddText("a");
  request_.add_raw_input_contents(std::string("\1\0\0\0a", 5));
  EXPECT_EQ(RefusedField(), "raw_input_contents");
  request_.add_raw_input_contents("");
  EXPECT_EQ(RefusedField(), "raw_input_contents");
}

TEST_F(OipConvertTest, ReadsParameters) {
  AddText("a");
  Parameter("max_tokens").set_int64_param(5);
  Parameter("temperature").set_double_param(0.5);
  Parameter("top_p").set_int64_param(1);
  Parameter("top_k").set_uint64_param(3);
  Parameter("seed").set_uint64_param(std::numeric_limits<uint64_t>::max());
  Parameter("stop").set_string_param("END");
  Parameter("ignore_eos").set_bool_param(true);
  Parameter("priority").set_int64_param(-3);
  const absl::StatusOr<OipCall> call = Convert();
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->request.stopping().max_new_tokens(), 5u);
  EXPECT_FLOAT_EQ(call->request.sampling().temperature(), 0.5f);
  EXPECT_FLOAT_EQ(call->request.sampling().top_p(), 1);
  EXPECT_EQ(call->request.sampling().top_k(), 3u);
  EXPECT_EQ(call->request.sampling().seed(), std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(call->request.stopping().stop_strings(), ElementsAre("END"));
  EXPECT_TRUE(call->request.stopping().ignore_eos());
  EXPECT_EQ(call->request.scheduling().priority(), -3);
}

TEST_F(OipConvertTest, RefusesParametersOfTheWrongKind) {
  AddText("a");
  for (const char* name : {"max_tokens", "temperature", "seed", "stop", "ignore_eos", "priority"}) {
    request_.clear_parameters();
    Parameter(name);
    EXPECT_EQ(RefusedField(), std::string("parameters[") + name + "]");
  }
  request_.clear_parameters();
  Parameter("max_tokens").set_int64_param(int64_t{1} << 32);
  EXPECT_EQ(RefusedField(), "parameters[max_tokens]");
  request_.clear_parameters();
  Parameter("beam_width").set_int64_param(4);
  EXPECT_EQ(RefusedField(), "parameters['beam_width']");
  request_.clear_parameters();
  Parameter("max_tokens").set_int64_param(4);
  Parameter("max_new_tokens").set_int64_param(4);
  EXPECT_EQ(RefusedField(), "parameters[max_tokens]");
}

TEST_F(OipConvertTest, AnswersWhatWasAskedForInItsOrder) {
  AddText("a");
  request_.add_outputs()->set_name("finish_reason");
  request_.add_outputs()->set_name("output_ids");
  const absl::StatusOr<OipCall> call = Convert();
  ASSERT_THAT(call, IsOk());
  inference::ModelInferResponse response;
  FillOipResponse(*call, {.text = "xy", .ids = {1, 258}, .reason = v1::FINISH_REASON_LENGTH}, "id",
                  model_, response);
  EXPECT_EQ(response.model_name(), "served");
  EXPECT_EQ(response.id(), "id");
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_THAT(response.outputs(0).contents().bytes_contents(), ElementsAre("length"));
  EXPECT_THAT(response.outputs(1).contents().int_contents(), ElementsAre(1, 258));
  EXPECT_THAT(response.outputs(1).shape(), ElementsAre(2));
  EXPECT_EQ(response.raw_output_contents_size(), 0);
}

TEST_F(OipConvertTest, AnswersRawRequestsRaw) {
  AddInput("text_input", "BYTES", {1});
  request_.add_raw_input_contents(std::string("\1\0\0\0a", 5));
  const absl::StatusOr<OipCall> call = Convert();
  ASSERT_THAT(call, IsOk());
  inference::ModelInferResponse response;
  FillOipResponse(*call, {.text = "xy", .ids = {1, 258}, .reason = v1::FINISH_REASON_EOS}, "id",
                  model_, response);
  EXPECT_THAT(response.raw_output_contents(),
              ElementsAre(std::string("\2\0\0\0xy", 6), std::string("\1\0\0\0\2\1\0\0", 8),
                          std::string("\3\0\0\0eos", 7)));
}

TEST_F(OipConvertTest, RefusesUnknownOutputs) {
  AddText("a");
  request_.add_outputs()->set_name("logits");
  EXPECT_EQ(RefusedField(), "outputs[0].name");
  request_.mutable_outputs(0)->set_name("output_ids");
  request_.add_outputs()->set_name("output_ids");
  EXPECT_EQ(RefusedField(), "outputs[1].name");
}

TEST_F(OipConvertTest, WithoutTokenizerThereAreIdsAlone) {
  model_.tokenizer = nullptr;
  AddText("a");
  EXPECT_THAT(Convert(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("input_ids")));
  request_.clear_inputs();
  AddInput("input_ids", "INT32", {1}).mutable_contents()->add_int_contents(7);
  ASSERT_THAT(Convert(), IsOk());
  EXPECT_THAT(Convert()->outputs, ElementsAre(OipOutput::kTokenIds, OipOutput::kFinishReason));
  inference::ModelMetadataResponse metadata;
  FillOipMetadata(model_, metadata);
  EXPECT_EQ(metadata.inputs_size(), 1);
  EXPECT_EQ(metadata.outputs_size(), 2);
}

TEST_F(OipConvertTest, RefusesOtherModelsAndVersions) {
  AddText("a");
  request_.set_model_name("other");
  EXPECT_THAT(Convert(), StatusIs(absl::StatusCode::kNotFound, _));
  request_.set_model_name("served");
  request_.set_model_version("2");
  EXPECT_THAT(Convert(), StatusIs(absl::StatusCode::kNotFound, _));
  request_.set_model_version("1");
  EXPECT_THAT(Convert(), IsOk());
}

// A trailer has room for 8 KiB, and holds UTF-8.
TEST_F(OipConvertTest, RefusalsOfLongNamesAreShort) {
  std::string name;
  while (name.size() < 10000) name += "n\u00e4\u4e2d";
  const auto expect_short_refusal = [this] {
    const absl::StatusOr<OipCall> call = Convert();
    ASSERT_THAT(call, StatusIs(absl::StatusCode::kInvalidArgument, _));
    EXPECT_LT(call.status().message().size(), 1000u);
    EXPECT_TRUE(IsValidUtf8(FieldOf(call.status())));
    EXPECT_TRUE(IsValidUtf8(std::string(call.status().message())));
  };
  AddInput(name.c_str(), "BYTES", {1});
  expect_short_refusal();
  request_.mutable_inputs(0)->set_name("text_input");
  request_.mutable_inputs(0)->set_datatype(name);
  expect_short_refusal();
  request_.mutable_inputs(0)->set_datatype("BYTES");
  request_.mutable_inputs(0)->mutable_shape()->Resize(10000, 1);
  expect_short_refusal();
  request_.clear_inputs();
  AddText("ab");
  request_.add_outputs()->set_name(name);
  expect_short_refusal();
  request_.clear_outputs();
  Parameter(name).set_int64_param(1);
  expect_short_refusal();
}

}  // namespace
}  // namespace tlm
