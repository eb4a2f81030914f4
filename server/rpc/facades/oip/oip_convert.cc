#include "server/rpc/facades/oip/oip_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/oip/oip_parameters.h"

namespace tlm {
namespace {

constexpr char kTextInput[] = "text_input";
constexpr char kIdsInput[] = "input_ids";

struct NamedOutput {
  const char* name;
  const char* datatype;
  OipOutput output;
};
constexpr std::array<NamedOutput, 3> kOutputs = {
    {{"text_output", "BYTES", OipOutput::kText},
     {"output_ids", "INT32", OipOutput::kTokenIds},
     {"finish_reason", "BYTES", OipOutput::kFinishReason}}};

const NamedOutput& Named(OipOutput output) {
  return *std::find_if(kOutputs.begin(), kOutputs.end(),
                       [output](const NamedOutput& named) { return named.output == output; });
}

using Tensor = inference::ModelInferRequest::InferInputTensor;

// An input tensor, with its elements in either encoding.
struct Input {
  const Tensor& tensor;
  const std::string* raw;  // null: in tensor.contents()
  std::string field;       // for errors
};

// Reads the element count from the shape [n] or [1, n].
absl::StatusOr<int64_t> ElementCount(const Input& input) {
  const auto& shape = input.tensor.shape();
  const int dimensions = shape.size();
  if (dimensions < 1 || dimensions > 2 || (dimensions == 2 && shape[0] != 1) ||
      shape[dimensions - 1] < 0) {
    const std::string shown = dimensions <= 2 ? fmt::format("is [{}]", fmt::join(shape, ", "))
                                              : fmt::format("has {} dimensions", dimensions);
    return BadField(input.field + ".shape", "{}, it may be [n] or [1, n]", shown);
  }
  return shape[dimensions - 1];
}

template <typename T>
T LittleEndian(const char* bytes) {
  std::make_unsigned_t<T> value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= std::make_unsigned_t<T>{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return static_cast<T>(value);
}

template <typename T>
void AppendLittleEndian(T value, std::string& bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
  }
}

void AppendRawString(const std::string& text, std::string& bytes) {
  AppendLittleEndian(static_cast<uint32_t>(text.size()), bytes);
  bytes += text;
}

absl::StatusOr<std::string> CheckText(std::string text, const Input& input) {
  if (IsValidUtf8(text)) return text;
  return BadField(input.field, "has {} bytes that are not UTF-8", text.size());
}

absl::StatusOr<std::string> TextOf(const Input& input) {
  if (input.tensor.datatype() != "BYTES") {
    return BadField(input.field + ".datatype", "is {}, it must be BYTES",
                    Quoted(input.tensor.datatype()));
  }
  TLM_ASSIGN_OR_RETURN(const int64_t count, ElementCount(input));
  if (count != 1) {
    return BadField(input.field + ".shape", "names {} texts, one call takes 1", count);
  }
  if (input.raw == nullptr) {
    const auto& contents = input.tensor.contents().bytes_contents();
    if (contents.size() == 1) return CheckText(contents[0], input);
    return BadField(input.field + ".contents.bytes_contents", "has {} elements, the shape says 1",
                    contents.size());
  }
  constexpr size_t kLengthBytes = sizeof(uint32_t);
  if (input.raw->size() < kLengthBytes ||
      LittleEndian<uint32_t>(input.raw->data()) != input.raw->size() - kLengthBytes) {
    return BadField(input.field, "has {} raw bytes, which are not one text behind its length",
                    input.raw->size());
  }
  return CheckText(input.raw->substr(kLengthBytes), input);
}

absl::Status AddId(int64_t id, const Input& input, v1::TokenIds& ids) {
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
    return BadField(input.field, "has the id {}, which no vocabulary has", id);
  }
  ids.add_ids(static_cast<uint32_t>(id));
  return absl::OkStatus();
}

template <typename T, typename Contents>
absl::Status ReadIds(const Input& input, const Contents& contents, int64_t count,
                     v1::TokenIds& ids) {
  const size_t bytes_each = sizeof(T);
  const int64_t given =
      input.raw == nullptr ? contents.size() : static_cast<int64_t>(input.raw->size() / bytes_each);
  if (given != count || (input.raw != nullptr && input.raw->size() % bytes_each != 0)) {
    return BadField(input.field, "has {} elements, the shape says {}", given, count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = input.raw == nullptr
                           ? static_cast<int64_t>(contents[static_cast<int>(i)])
                           : static_cast<int64_t>(LittleEndian<T>(
                                 input.raw->data() + static_cast<size_t>(i) * bytes_each));
    TLM_RETURN_IF_ERROR(AddId(id, input, ids));
  }
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const Input& input, v1::TokenIds& ids) {
  TLM_ASSIGN_OR_RETURN(const int64_t count, ElementCount(input));
  const inference::InferTensorContents& contents = input.tensor.contents();
  const std::string& type = input.tensor.datatype();
  if (type == "INT32") return ReadIds<int32_t>(input, contents.int_contents(), count, ids);
  if (type == "INT64") return ReadIds<int64_t>(input, contents.int64_contents(), count, ids);
  if (type == "UINT32") return ReadIds<uint32_t>(input, contents.uint_contents(), count, ids);
  return BadField(input.field + ".datatype", "is {}, it may be INT32, INT64 or UINT32",
                  Quoted(type));
}

absl::Status ReadInput(const inference::ModelInferRequest& message, const ServedModel& model,
                       OipCall& call) {
  if (message.inputs_size() != 1) {
    return BadField("inputs", "has {} tensors, one is required: {} or {}", message.inputs_size(),
                    kTextInput, kIdsInput);
  }
  const int raw = message.raw_input_contents_size();
  if (raw > 1) return BadField("raw_input_contents", "has {} entries for 1 input", raw);
  const Tensor& tensor = message.inputs(0);
  if (raw == 1 && tensor.has_contents()) {
    return BadField("raw_input_contents", "and inputs[0].contents are both given");
  }
  call.raw = raw == 1;
  const Input input{tensor, raw == 1 ? &message.raw_input_contents(0) : nullptr, "inputs[0]"};
  if (tensor.name() == kTextInput) {
    TLM_RETURN_IF_ERROR(RequireTokenizer(model, kTextInput, "send input_ids"));
    TLM_ASSIGN_OR_RETURN(std::string text, TextOf(input));
    call.request.set_prompt(std::move(text));
    return absl::OkStatus();
  }
  if (tensor.name() == kIdsInput) {
    return ReadTokenIds(input, *call.request.mutable_prompt_token_ids());
  }
  return BadField("inputs[0].name", "is {}, it may be {} or {}", Quoted(tensor.name()), kTextInput,
                  kIdsInput);
}

absl::Status ReadOutputs(const inference::ModelInferRequest& message, const ServedModel& model,
                         OipCall& call) {
  for (int i = 0; i < message.outputs_size(); ++i) {
    const std::string field = fmt::format("outputs[{}].name", i);
    const std::string& name = message.outputs(i).name();
    const auto* found = std::find_if(kOutputs.begin(), kOutputs.end(),
                                     [&](const NamedOutput& named) { return named.name == name; });
    if (found == kOutputs.end()) {
      return BadField(field, "is {}, it may be text_output, output_ids or finish_reason",
                      Quoted(name));
    }
    if (std::count(call.outputs.begin(), call.outputs.end(), found->output) > 0) {
      return BadField(field, "is '{}' for the second time", name);
    }
    if (found->output == OipOutput::kText) {
      TLM_RETURN_IF_ERROR(RequireTokenizer(model, field, "ask for output_ids"));
    }
    call.outputs.push_back(found->output);
  }
  if (!call.outputs.empty()) return absl::OkStatus();
  for (const NamedOutput& named : kOutputs) {
    if (named.output == OipOutput::kText && model.tokenizer == nullptr) continue;
    call.outputs.push_back(named.output);
  }
  return absl::OkStatus();
}

const char* ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
      return "eos";
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CONTEXT_LENGTH:
      return "context_length";
    case v1::FINISH_REASON_TIME_LIMIT:
      return "time_limit";
    case v1::FINISH_REASON_CONSTRAINT:
      return "constraint";
    case v1::FINISH_REASON_CONSTRAINT_COMPLETE:
      return "constraint_complete";
    default:
      return "";
  }
}

using OutputTensor = inference::ModelInferResponse::InferOutputTensor;

void FillText(const std::string& text, bool raw, OutputTensor& tensor,
              inference::ModelInferResponse& response) {
  tensor.add_shape(1);
  if (raw) {
    AppendRawString(text, *response.add_raw_output_contents());
  } else {
    tensor.mutable_contents()->add_bytes_contents(text);
  }
}

void FillIds(const std::vector<int32_t>& ids, bool raw, OutputTensor& tensor,
             inference::ModelInferResponse& response) {
  tensor.add_shape(static_cast<int64_t>(ids.size()));
  if (raw) {
    std::string& bytes = *response.add_raw_output_contents();
    for (const int32_t id : ids) AppendLittleEndian(id, bytes);
  } else {
    tensor.mutable_contents()->mutable_int_contents()->Assign(ids.begin(), ids.end());
  }
}

}  // namespace

absl::Status CheckOipModel(const std::string& name, const std::string& version,
                           const ServedModel& model) {
  TLM_RETURN_IF_ERROR(CheckModelName(name, model));
  if (version.empty() || version == kOipModelVersion) return absl::OkStatus();
  return WithField(
      NotFound("model_version is {}, only '{}' is served", Quoted(version), kOipModelVersion),
      "model_version");
}

absl::StatusOr<OipCall> ConvertOip(const inference::ModelInferRequest& request,
                                   const ServedModel& model) {
  OipCall call;
  TLM_RETURN_IF_ERROR(CheckOipModel(request.model_name(), request.model_version(), model));
  TLM_RETURN_IF_ERROR(ReadOutputs(request, model, call));
  TLM_RETURN_IF_ERROR(ReadOipParameters(request, call.request));
  TLM_RETURN_IF_ERROR(ReadInput(request, model, call));
  v1::OutputOptions& output = *call.request.mutable_output();
  output.set_text(model.tokenizer != nullptr);
  output.set_token_ids(true);
  output.set_final_only(true);
  return call;
}

void FillOipResponse(const OipCall& call, const OipAnswer& answer, const std::string& request_id,
                     const ServedModel& model, inference::ModelInferResponse& response) {
  response.set_model_name(model.model_id);
  response.set_model_version(kOipModelVersion);
  response.set_id(request_id);
  for (const OipOutput output : call.outputs) {
    OutputTensor& tensor = *response.add_outputs();
    tensor.set_name(Named(output).name);
    tensor.set_datatype(Named(output).datatype);
    switch (output) {
      case OipOutput::kText:
        FillText(answer.text, call.raw, tensor, response);
        break;
      case OipOutput::kTokenIds:
        FillIds(answer.ids, call.raw, tensor, response);
        break;
      case OipOutput::kFinishReason:
        FillText(ReasonName(answer.reason), call.raw, tensor, response);
        break;
    }
  }
}

void FillOipMetadata(const ServedModel& model, inference::ModelMetadataResponse& response) {
  const auto add = [](const char* name, const char* datatype, int64_t elements, auto* tensors) {
    auto& tensor = *tensors->Add();
    tensor.set_name(name);
    tensor.set_datatype(datatype);
    tensor.add_shape(elements);
  };
  response.set_name(model.model_id);
  response.add_versions(kOipModelVersion);
  response.set_platform("tlm");
  if (model.tokenizer != nullptr) add(kTextInput, "BYTES", 1, response.mutable_inputs());
  add(kIdsInput, "INT32", -1, response.mutable_inputs());
  for (const NamedOutput& named : kOutputs) {
    if (named.output == OipOutput::kText && model.tokenizer == nullptr) continue;
    add(named.name, named.datatype, named.output == OipOutput::kTokenIds ? -1 : 1,
        response.mutable_outputs());
  }
}

}  // namespace tlm
