#include "model/config/ffn_fields.h"

#include <iterator>
#include <optional>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr Spelling<FfnKind> kKinds[] = {
    {"swiglu", FfnKind::kSwiGlu},
    {"silu", FfnKind::kSilu},
    {"relu", FfnKind::kRelu},
    {"gelu", FfnKind::kGelu},
    {"gelu_tanh", FfnKind::kGeluTanh},
    {"gelu_new", FfnKind::kGeluTanh},
    {"gelu_pytorch_tanh", FfnKind::kGeluTanh},
};
constexpr Spelling<int> kMatrices[] = {{"w1", 1}, {"w2", 2}, {"w3", 3}};

// One matrix of the network: w2(silu(w1 x) * w3 x) with a gate, w2(silu(w1 x)) without.
struct Part {
  const char* key;
  int preferred;
  std::optional<int> given;
  int* place;
};

// Each part gets the name the file gives it, or its preferred one, or the one that is left.
absl::Status NameParts(Part (&parts)[3]) {
  bool taken[4] = {};
  for (Part& part : parts) {
    if (!part.given.has_value()) continue;
    if (std::exchange(taken[*part.given], true)) {
      return InvalidArgument("ffn_gate, ffn_up and ffn_down must differ, {} is 'w{}' again",
                             part.key, *part.given);
    }
  }
  for (Part& part : parts) {
    if (part.given.has_value() || taken[part.preferred]) continue;
    part.given = part.preferred;
    taken[part.preferred] = true;
  }
  for (Part& part : parts) {
    for (int name = 1; name <= 3 && !part.given.has_value(); ++name) {
      if (!std::exchange(taken[name], true)) part.given = name;
    }
    *part.place = *part.given;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadFfn(ConfigFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<FfnKind> kind, fields.Word({"ffn_type"}, kKinds));
  config->ffn_kind = kind.value_or(FfnKind::kSwiGlu);
  const bool gated = config->gated_ffn();
  FfnNames& names = config->ffn_names;
  Part parts[] = {{"ffn_gate", gated ? 1 : 3, {}, &names.gate},
                  {"ffn_up", gated ? 3 : 1, {}, &names.up},
                  {"ffn_down", 2, {}, &names.down}};
  for (Part& part : parts) {
    TLM_ASSIGN_OR_RETURN(part.given, fields.Word({part.key}, kMatrices));
    if (part.given.has_value() && config->naming != TensorNaming::kCs336) {
      return InvalidArgument("{} is given, but only tensor_naming 'cs336' has matrices w1, w2, w3",
                             part.key);
    }
  }
  if (parts[0].given.has_value() && !gated) {
    return InvalidArgument("ffn_gate is given, but this ffn_type has no gate");
  }
  return NameParts(parts);
}

}  // namespace tlm
