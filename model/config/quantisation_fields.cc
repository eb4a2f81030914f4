#include "model/config/quantisation_fields.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

using Format = QuantisationScheme::Format;

constexpr size_t kMaxSchemes = 16;
constexpr int64_t kGroupUnit = 32;

// Finds a member by either name; older files of compressed-tensors have the second one.
absl::StatusOr<std::optional<JsonFields>> Find(const JsonFields& fields) {
  return fields.Object(fields.Has("quantization_config") ? "quantization_config"
                                                         : "compression_config");
}

// Returns the key's word in lower case, which must be one of `words`.
absl::StatusOr<std::string> ReadWord(const JsonFields& fields, const std::string& key,
                                     const std::string& otherwise,
                                     std::initializer_list<const char*> words) {
  TLM_ASSIGN_OR_RETURN(std::string word, fields.String(key, otherwise));
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  std::string supported;
  for (const char* const known : words) {
    if (word == known) return word;
    supported += supported.empty() ? "" : ", ";
    supported += known;
  }
  return Unimplemented("{} is {}, supported: {}", fields.Name(key), Quoted(word), supported);
}

absl::Status RequireFalse(const JsonFields& fields, const std::string& key) {
  TLM_ASSIGN_OR_RETURN(const bool flag, fields.Bool(key, false));
  if (!flag) return absl::OkStatus();
  return Unimplemented("{} is true, only false is supported", fields.Name(key));
}

// Requires the member to be absent, null or empty.
absl::Status RequireNone(const JsonFields& fields, const std::string& key) {
  const nlohmann::json* const value = fields.Find(key);
  if (value == nullptr || (value->is_structured() && value->empty())) return absl::OkStatus();
  return Unimplemented("{} is set, only null is supported", fields.Name(key));
}

absl::StatusOr<int> ReadBits(const JsonFields& fields, const std::string& key, bool takes_8) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> bits, fields.Integer(key));
  if (!bits.has_value()) return fields.Missing(key);
  if (*bits == 4 || (*bits == 8 && takes_8)) return static_cast<int>(*bits);
  return Unimplemented("{} is {}, supported: {}", fields.Name(key), *bits, takes_8 ? "4, 8" : "4");
}

// Converts -1 in the file to 0: the whole row.
absl::StatusOr<int64_t> ReadGroupSize(const JsonFields& fields, const std::string& key,
                                      int64_t otherwise) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> given, fields.Integer(key));
  const int64_t size = given.value_or(otherwise);
  if (size == -1) return 0;
  if (size < 1 || size > ConfigLimits::kDFf) {
    return InvalidArgument("{} is {}, it must be -1 or in [1, {}]", fields.Name(key), size,
                           ConfigLimits::kDFf);
  }
  if (size % kGroupUnit == 0) return size;
  return Unimplemented("{} is {}, supported: multiples of {}, and -1", fields.Name(key), size,
                       kGroupUnit);
}

absl::StatusOr<QuantisationScheme> ReadAwq(const JsonFields& fields) {
  QuantisationScheme scheme{.format = Format::kAwq};
  for (const char* const key : {"version", "format", "checkpoint_format"}) {
    TLM_RETURN_IF_ERROR(ReadWord(fields, key, "gemm", {"gemm"}).status());
  }
  TLM_ASSIGN_OR_RETURN(scheme.bits,
                       ReadBits(fields, fields.Has("w_bit") ? "w_bit" : "bits", false));
  TLM_ASSIGN_OR_RETURN(
      scheme.group_size,
      ReadGroupSize(fields, fields.Has("q_group_size") ? "q_group_size" : "group_size", 128));
  TLM_ASSIGN_OR_RETURN(const bool has_zeros, fields.Bool("zero_point", true));
  scheme.symmetric = !has_zeros;
  return scheme;
}

// Refuses GPTQModel's settings for single modules, which are regular expressions; an expression
// that begins with "-:" names modules that are not quantised.
absl::Status RefuseOverrides(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> dynamic, fields.Object("dynamic"));
  if (!dynamic.has_value()) return absl::OkStatus();
  for (const std::string& pattern : dynamic->Keys()) {
    if (pattern.starts_with("-:")) continue;
    return Unimplemented("{}dynamic has {}, supported: patterns that begin with -:",
                         fields.prefix(), Quoted(pattern));
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantisationScheme> ReadGptq(const JsonFields& fields) {
  QuantisationScheme scheme{.format = Format::kGptq};
  TLM_RETURN_IF_ERROR(RequireFalse(fields, "is_marlin_format"));
  TLM_RETURN_IF_ERROR(RefuseOverrides(fields));
  TLM_RETURN_IF_ERROR(ReadWord(fields, "pack_dtype", "int32", {"int32"}).status());
  const char* const format_key = fields.Has("checkpoint_format") ? "checkpoint_format" : "format";
  TLM_ASSIGN_OR_RETURN(const std::string format,
                       ReadWord(fields, format_key, "gptq", {"gptq", "gptq_v2"}));
  scheme.zeros_less_one = format == "gptq";
  TLM_ASSIGN_OR_RETURN(scheme.bits, ReadBits(fields, "bits", true));
  TLM_ASSIGN_OR_RETURN(scheme.group_size, ReadGroupSize(fields, "group_size", 128));
  TLM_ASSIGN_OR_RETURN(scheme.symmetric, fields.Bool("sym", true));
  // With static groups, inputs share scales in their own order.
  TLM_ASSIGN_OR_RETURN(const bool act_order, fields.Bool("desc_act", false));
  TLM_ASSIGN_OR_RETURN(const bool static_groups, fields.Bool("static_groups", false));
  scheme.act_order = act_order && !static_groups && scheme.group_size > 0;
  return scheme;
}

// Reads two numbers: the outputs and the inputs that share a scale.
absl::Status ReadBlockSize(const JsonFields& fields, const std::string& key,
                           QuantisationScheme* scheme) {
  TLM_ASSIGN_OR_RETURN(const auto given, fields.Integers(key, 2));
  if (!given.has_value()) return fields.Missing(key);
  const std::vector<int64_t>& sizes = *given;
  if (sizes.size() != 2) {
    return InvalidArgument("{} has {} number, it must have 2", fields.Name(key), sizes.size());
  }
  for (const int64_t size : sizes) {
    if (size < 1 || size > ConfigLimits::kDFf) {
      return InvalidArgument("{} has {}, its numbers must be in [1, {}]", fields.Name(key), size,
                             ConfigLimits::kDFf);
    }
  }
  if (sizes[1] % kGroupUnit != 0) {
    return Unimplemented("{} has {} inputs, supported: multiples of {}", fields.Name(key), sizes[1],
                         kGroupUnit);
  }
  scheme->group_outputs = sizes[0];
  scheme->group_size = sizes[1];
  return absl::OkStatus();
}

// Ignores scales for activations, which are not quantised.
absl::StatusOr<QuantisationScheme> ReadFp8(const JsonFields& fields) {
  QuantisationScheme scheme{.format = Format::kFloat8, .bits = 8, .symmetric = true};
  TLM_RETURN_IF_ERROR(ReadWord(fields, "fmt", "e4m3", {"e4m3", "float8_e4m3fn"}).status());
  TLM_RETURN_IF_ERROR(
      ReadWord(fields, "activation_scheme", "dynamic", {"dynamic", "static"}).status());
  TLM_RETURN_IF_ERROR(RequireNone(fields, "kv_cache_scheme"));
  const nlohmann::json* const blocks = fields.Find("weight_block_size");
  if (blocks == nullptr) {
    scheme.group_outputs = 0;
    return scheme;
  }
  scheme.format = Format::kFloat8Blocks;
  TLM_RETURN_IF_ERROR(ReadBlockSize(fields, "weight_block_size", &scheme));
  return scheme;
}

// Reads the scheme of float weights.
absl::StatusOr<QuantisationScheme> ReadFloatWeights(const JsonFields& weights) {
  QuantisationScheme scheme{.format = Format::kFloat8, .bits = 8, .symmetric = true};
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> bits, weights.Integer("num_bits"));
  if (bits.value_or(8) != 8) {
    return Unimplemented("{} is {}, supported of floats: 8", weights.Name("num_bits"), *bits);
  }
  TLM_ASSIGN_OR_RETURN(const bool symmetric, weights.Bool("symmetric", true));
  if (!symmetric) {
    return Unimplemented("{} is false, supported of floats: true", weights.Name("symmetric"));
  }
  TLM_ASSIGN_OR_RETURN(
      const std::string strategy,
      ReadWord(weights, "strategy", "tensor", {"tensor", "channel", "group", "block"}));
  if (strategy == "tensor") scheme.group_outputs = 0;
  if (strategy == "group") {
    TLM_ASSIGN_OR_RETURN(scheme.group_size, ReadGroupSize(weights, "group_size", 128));
  }
  if (strategy == "block") {
    TLM_RETURN_IF_ERROR(ReadBlockSize(weights, "block_structure", &scheme));
  }
  return scheme;
}

// Returns the group size, 0 for a whole row. It also implies a missing `strategy`.
absl::StatusOr<int64_t> ReadStrategy(const JsonFields& weights) {
  TLM_ASSIGN_OR_RETURN(const int64_t group_size, ReadGroupSize(weights, "group_size", -1));
  TLM_ASSIGN_OR_RETURN(
      const std::string strategy,
      ReadWord(weights, "strategy", group_size > 0 ? "group" : "channel", {"group", "channel"}));
  if (strategy == "channel") return 0;
  if (group_size > 0) return group_size;
  return InvalidArgument("{} is missing, {} is 'group'", weights.Name("group_size"),
                         weights.Name("strategy"));
}

// True if the order is in tensors; false if it mattered only to the quantiser.
absl::StatusOr<bool> ReadActOrder(const JsonFields& weights) {
  const nlohmann::json* const value = weights.Find("actorder");
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  TLM_ASSIGN_OR_RETURN(const std::string order, ReadWord(weights, "actorder", "weight",
                                                         {"weight", "static", "group", "dynamic"}));
  return order == "group" || order == "dynamic";
}

// Checks that the activations' scheme needs no tensors of its own. With integer weights, this
// program quantises activations to 8 bits in its own way instead; with 8-bit float weights it does
// not quantise them.
absl::Status CheckActivations(const JsonFields& group, bool floats) {
  TLM_RETURN_IF_ERROR(RequireNone(group, "output_activations"));
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> inputs, group.Object("input_activations"));
  if (!inputs.has_value()) return absl::OkStatus();
  const char* const type = floats ? "float" : "int";
  TLM_RETURN_IF_ERROR(ReadWord(*inputs, "type", type, {type}).status());
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> bits, inputs->Integer("num_bits"));
  if (bits.value_or(8) != 8) {
    return Unimplemented("{} is {}, supported: 8", inputs->Name("num_bits"), *bits);
  }
  TLM_ASSIGN_OR_RETURN(const bool dynamic, inputs->Bool("dynamic", false));
  if (dynamic || floats) return absl::OkStatus();
  return Unimplemented("{} is false, only true is supported", inputs->Name("dynamic"));
}

absl::StatusOr<QuantisationScheme> ReadConfigGroup(const JsonFields& group,
                                                   const JsonFields& whole) {
  const JsonFields& with_format = group.Has("format") ? group : whole;
  TLM_ASSIGN_OR_RETURN(const std::string format, ReadWord(with_format, "format", "absent",
                                                          {"pack-quantized", "int-quantized",
                                                           "naive-quantized", "float-quantized"}));
  TLM_ASSIGN_OR_RETURN(const JsonFields weights, group.RequiredObject("weights"));
  TLM_RETURN_IF_ERROR(RequireFalse(weights, "dynamic"));
  TLM_ASSIGN_OR_RETURN(const std::string type, ReadWord(weights, "type", "int", {"int", "float"}));
  const bool floats = type == "float";
  TLM_RETURN_IF_ERROR(CheckActivations(group, floats));
  if (floats && (format == "float-quantized" || format == "naive-quantized")) {
    return ReadFloatWeights(weights);
  }
  if (floats != (format == "float-quantized")) {
    return Unimplemented("{} is {}, {} is {}: such weights are not supported", weights.Name("type"),
                         Quoted(type), with_format.Name("format"), Quoted(format));
  }
  QuantisationScheme scheme;
  scheme.format = format == "pack-quantized" ? Format::kPackQuantised : Format::kIntQuantised;
  TLM_ASSIGN_OR_RETURN(scheme.bits, ReadBits(weights, "num_bits", true));
  TLM_ASSIGN_OR_RETURN(scheme.group_size, ReadStrategy(weights));
  TLM_ASSIGN_OR_RETURN(scheme.symmetric, weights.Bool("symmetric", true));
  TLM_ASSIGN_OR_RETURN(scheme.act_order, ReadActOrder(weights));
  return scheme;
}

absl::StatusOr<std::vector<QuantisationScheme>> ReadCompressedTensors(const JsonFields& fields) {
  TLM_RETURN_IF_ERROR(
      ReadWord(fields, "quantization_status", "compressed", {"compressed"}).status());
  TLM_RETURN_IF_ERROR(RequireNone(fields, "kv_cache_scheme"));
  TLM_RETURN_IF_ERROR(RequireNone(fields, "transform_config"));
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> sparsity, fields.Object("sparsity_config"));
  if (sparsity.has_value()) {
    TLM_RETURN_IF_ERROR(ReadWord(*sparsity, "format", "dense", {"dense"}).status());
  }
  TLM_ASSIGN_OR_RETURN(const JsonFields groups, fields.RequiredObject("config_groups"));
  const std::vector<std::string> names = groups.Keys();
  if (names.empty() || names.size() > kMaxSchemes) {
    return InvalidArgument("{} has {} members, allowed are 1 to {}", fields.Name("config_groups"),
                           names.size(), kMaxSchemes);
  }
  std::vector<QuantisationScheme> schemes;
  for (const std::string& name : names) {
    TLM_ASSIGN_OR_RETURN(const JsonFields group, groups.RequiredObject(name));
    TLM_ASSIGN_OR_RETURN(const QuantisationScheme scheme, ReadConfigGroup(group, fields));
    schemes.push_back(scheme);
  }
  return schemes;
}

}  // namespace

absl::StatusOr<std::vector<QuantisationScheme>> ReadQuantisation(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> quantisation, Find(fields));
  if (!quantisation.has_value()) return std::vector<QuantisationScheme>();
  TLM_ASSIGN_OR_RETURN(const std::string method,
                       ReadWord(*quantisation, "quant_method", "absent",
                                {"awq", "gptq", "compressed-tensors", "fp8"}));
  if (method == "compressed-tensors") return ReadCompressedTensors(*quantisation);
  TLM_ASSIGN_OR_RETURN(const QuantisationScheme scheme, method == "awq" ? ReadAwq(*quantisation)
                                                        : method == "fp8"
                                                            ? ReadFp8(*quantisation)
                                                            : ReadGptq(*quantisation));
  return std::vector{scheme};
}

absl::Status RefuseQuantisation(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> quantisation, Find(fields));
  if (!quantisation.has_value()) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const std::string method, quantisation->String("quant_method", "absent"));
  return Unimplemented("{} is {}, quantised weights are not supported in this family",
                       quantisation->Name("quant_method"), Quoted(method));
}

}  // namespace tlm
