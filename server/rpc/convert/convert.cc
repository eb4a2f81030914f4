#include "server/rpc/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "model/base/json.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {

absl::Status CheckModelName(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.model_id) return absl::OkStatus();
  return WithField(
      NotFound("model {} is not served here, {} is", Quoted(name), Quoted(model.model_id)),
      "model");
}

absl::StatusOr<std::string> RequestIdOf(const std::string& given, const ServedModel& model,
                                        const RandomSource& random) {
  if (given.empty()) return fmt::format("{:016x}", random());
  const int64_t limit = model.limits.max_request_id_bytes;
  if (static_cast<int64_t>(given.size()) > limit) {
    return BadField("request_id", "is {} bytes long, the limit is {}", given.size(), limit);
  }
  const auto printable = [](char c) { return c >= 0x20 && c <= 0x7e; };
  if (!std::all_of(given.begin(), given.end(), printable)) {
    return BadField("request_id", "is not printable ASCII");
  }
  return given;
}

absl::StatusOr<std::vector<int32_t>> TokenIdsOf(
    const google::protobuf::RepeatedField<uint32_t>& ids, const ServedModel& model,
    std::string_view field) {
  const int64_t vocab_size = model.config.vocab_size;
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_size) {
      return BadField(fmt::format("{}[{}]", field, i), "is {}, the vocabulary has {} tokens",
                      ids[i], vocab_size);
    }
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

absl::Status RequireTokenizer(const ServedModel& model, std::string_view field,
                              std::string_view instead) {
  if (model.tokenizer != nullptr) return absl::OkStatus();
  return MissingTrait(field, fmt::format("the model has no tokenizer, {}", instead));
}

absl::StatusOr<std::vector<int32_t>> TokenizeText(const std::string& text,
                                                  std::optional<bool> add_special_tokens,
                                                  const ServedModel& model,
                                                  std::string_view field) {
  std::vector<int32_t> ids;
  TLM_RETURN_IF_ERROR(
      TokenizeTextTo(text, add_special_tokens, model, field, [&ids](std::span<const int32_t> some) {
        ids.insert(ids.end(), some.begin(), some.end());
        return absl::OkStatus();
      }));
  return ids;
}

absl::Status TokenizeTextTo(const std::string& text, std::optional<bool> add_special_tokens,
                            const ServedModel& model, std::string_view field,
                            Tokenizer::IdSink take) {
  const int64_t limit = model.limits.max_text_bytes;
  if (static_cast<int64_t>(text.size()) > limit) {
    return BadField(field, "is {} bytes long, the limit is {}", text.size(), limit);
  }
  // The tokenizer's configuration names the special tokens that belong around a text, if any.
  const EncodeOptions options{.add_special_tokens = add_special_tokens.value_or(true)};
  absl::Status taken;
  const auto check_and_take = [&](std::span<const int32_t> ids) {
    // A tokenizer may know tokens that the model has no embedding for.
    const auto largest = std::max_element(ids.begin(), ids.end());
    taken = largest == ids.end() || *largest < model.config.vocab_size
                ? take(ids)
                : BadField(field, "contains token {}, the model's vocabulary has {} tokens",
                           *largest, model.config.vocab_size);
    return taken;
  };
  const absl::Status status = model.tokenizer->EncodeTo(text, options, check_and_take);
  if (status.ok() || !taken.ok()) return status;
  return WithField(WithContext(status, std::string(field)), field);
}

void FillTokenInfo(const SampledToken& token, const Tokenizer* tokenizer, v1::TokenInfo& info) {
  info.set_id(static_cast<uint32_t>(token.id));
  if (tokenizer != nullptr) info.set_bytes(std::string(tokenizer->TokenBytes(token.id)));
  if (token.score.has_value()) {
    info.set_logprob(token.score->logprob);
    info.set_rank(token.score->rank);
  }
  for (const ScoredToken& alternative : token.top) {
    v1::TopToken* top = info.add_top();
    top->set_id(static_cast<uint32_t>(alternative.id));
    top->set_logprob(alternative.logprob);
    top->set_rank(alternative.rank);
  }
}

int64_t TokenInfoBytes(int32_t id, size_t top, const Tokenizer* tokenizer) {
  constexpr int64_t kInfoBytes = 32;
  constexpr int64_t kTopBytes = 24;
  const size_t text = tokenizer == nullptr ? 0 : tokenizer->TokenBytes(id).size();
  return kInfoBytes + static_cast<int64_t>(text) + kTopBytes * static_cast<int64_t>(top);
}

}  // namespace tlm
