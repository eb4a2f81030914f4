#include "server/rpc/facades/oip/oip_parameters.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "server/auth/principal.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

using Parameter = inference::InferParameter;

// Describes a known parameter.
std::string ParameterField(std::string_view name) { return fmt::format("parameters[{}]", name); }

absl::StatusOr<double> NumberOf(const std::string& name, const Parameter& value) {
  switch (value.parameter_choice_case()) {
    case Parameter::kDoubleParam:
      return value.double_param();
    case Parameter::kInt64Param:
      return static_cast<double>(value.int64_param());
    case Parameter::kUint64Param:
      return static_cast<double>(value.uint64_param());
    default:
      return BadField(ParameterField(name), "is not a number");
  }
}

absl::StatusOr<uint64_t> CountOf(const std::string& name, const Parameter& value,
                                 uint64_t limit = std::numeric_limits<uint32_t>::max()) {
  if (value.parameter_choice_case() == Parameter::kInt64Param && value.int64_param() >= 0 &&
      static_cast<uint64_t>(value.int64_param()) <= limit) {
    return static_cast<uint64_t>(value.int64_param());
  }
  if (value.parameter_choice_case() == Parameter::kUint64Param && value.uint64_param() <= limit) {
    return value.uint64_param();
  }
  return BadField(ParameterField(name), "is not a whole number in [0, {}]", limit);
}

// Reads one parameter into the request.
using Reader = absl::Status (*)(const std::string& name, const Parameter& value,
                                v1::GenerateRequest& request);

template <void (v1::SamplingParams::*kSet)(float)>
absl::Status ReadFloat(const std::string& name, const Parameter& value,
                       v1::GenerateRequest& request) {
  TLM_ASSIGN_OR_RETURN(const double number, NumberOf(name, value));
  (request.mutable_sampling()->*kSet)(static_cast<float>(number));
  return absl::OkStatus();
}

absl::Status ReadTopK(const std::string& name, const Parameter& value,
                      v1::GenerateRequest& request) {
  TLM_ASSIGN_OR_RETURN(const uint64_t count, CountOf(name, value));
  request.mutable_sampling()->set_top_k(static_cast<uint32_t>(count));
  return absl::OkStatus();
}

template <void (v1::StoppingCriteria::*kSet)(uint32_t)>
absl::Status ReadTokens(const std::string& name, const Parameter& value,
                        v1::GenerateRequest& request) {
  TLM_ASSIGN_OR_RETURN(const uint64_t count, CountOf(name, value));
  (request.mutable_stopping()->*kSet)(static_cast<uint32_t>(count));
  return absl::OkStatus();
}

absl::Status ReadSeed(const std::string& name, const Parameter& value,
                      v1::GenerateRequest& request) {
  TLM_ASSIGN_OR_RETURN(const uint64_t seed,
                       CountOf(name, value, std::numeric_limits<uint64_t>::max()));
  request.mutable_sampling()->set_seed(seed);
  return absl::OkStatus();
}

absl::Status ReadPriority(const std::string& name, const Parameter& value,
                          v1::GenerateRequest& request) {
  if (!value.has_int64_param() || value.int64_param() < -kMaxPriority ||
      value.int64_param() > kMaxPriority) {
    return BadField(ParameterField(name), "is not a whole number in [{}, {}]", -kMaxPriority,
                    kMaxPriority);
  }
  request.mutable_scheduling()->set_priority(static_cast<int32_t>(value.int64_param()));
  return absl::OkStatus();
}

absl::Status ReadStop(const std::string& name, const Parameter& value,
                      v1::GenerateRequest& request) {
  if (!value.has_string_param()) return BadField(ParameterField(name), "is not a text");
  request.mutable_stopping()->add_stop_strings(value.string_param());
  return absl::OkStatus();
}

absl::Status ReadIgnoreEos(const std::string& name, const Parameter& value,
                           v1::GenerateRequest& request) {
  if (!value.has_bool_param()) return BadField(ParameterField(name), "is not true or false");
  request.mutable_stopping()->set_ignore_eos(value.bool_param());
  return absl::OkStatus();
}

constexpr std::pair<std::string_view, Reader> kReaders[] = {
    {"max_tokens", ReadTokens<&v1::StoppingCriteria::set_max_new_tokens>},
    {"max_new_tokens", ReadTokens<&v1::StoppingCriteria::set_max_new_tokens>},
    {"min_tokens", ReadTokens<&v1::StoppingCriteria::set_min_new_tokens>},
    {"temperature", ReadFloat<&v1::SamplingParams::set_temperature>},
    {"top_k", ReadTopK},
    {"top_p", ReadFloat<&v1::SamplingParams::set_top_p>},
    {"min_p", ReadFloat<&v1::SamplingParams::set_min_p>},
    {"typical_p", ReadFloat<&v1::SamplingParams::set_typical_p>},
    {"seed", ReadSeed},
    {"repetition_penalty", ReadFloat<&v1::SamplingParams::set_repetition_penalty>},
    {"presence_penalty", ReadFloat<&v1::SamplingParams::set_presence_penalty>},
    {"frequency_penalty", ReadFloat<&v1::SamplingParams::set_frequency_penalty>},
    {"stop", ReadStop},
    {"ignore_eos", ReadIgnoreEos},
    {"priority", ReadPriority},
};

Reader ReaderOf(std::string_view name) {
  for (const auto& [known, reader] : kReaders) {
    if (known == name) return reader;
  }
  return nullptr;
}

std::string KnownNames() {
  std::string names;
  for (const auto& [name, reader] : kReaders) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace

absl::Status ReadOipParameters(const inference::ModelInferRequest& message,
                               v1::GenerateRequest& request) {
  if (message.parameters().contains("max_tokens") &&
      message.parameters().contains("max_new_tokens")) {
    return BadField(ParameterField("max_tokens"), "and max_new_tokens are the same");
  }
  for (const auto& [name, value] : message.parameters()) {
    const Reader reader = ReaderOf(name);
    if (reader == nullptr) {
      return BadField(fmt::format("parameters[{}]", Quoted(name)), "is not known; there are {}",
                      KnownNames());
    }
    TLM_RETURN_IF_ERROR(reader(name, value, request));
  }
  return absl::OkStatus();
}

}  // namespace tlm
