#include "model/tokenizer/token_decoder.h"

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

constexpr const char* kNames[] = {"ByteLevel", "ByteFallback", "Replace",
                                  "Metaspace", "Fuse",         "Strip"};

std::string ReplaceAll(std::string_view text, std::string_view what, std::string_view by) {
  std::string result;
  size_t done = 0;
  for (size_t match; (match = text.find(what, done)) != text.npos; done = match + what.size()) {
    result += text.substr(done, match - done);
    result += by;
  }
  return result += text.substr(done);
}

absl::StatusOr<std::string> ReplaceMatches(const Regex& regex, std::string_view text,
                                           std::string_view by) {
  std::string result;
  TLM_RETURN_IF_ERROR(
      RegexMatcher(regex).ForEachSegment(text, [&](std::string_view segment, bool is_match) {
        result += is_match ? by : segment;
        return absl::OkStatus();
      }));
  return result;
}

std::string StripEnds(std::string_view text, const TokenDecoderStep& step) {
  const std::string_view what = step.content;
  for (size_t i = 0; i < step.start && text.substr(0, what.size()) == what; ++i) {
    text.remove_prefix(what.size());
  }
  for (size_t i = 0; i < step.stop && text.size() >= what.size() &&
                     text.substr(text.size() - what.size()) == what;
       ++i) {
    text.remove_suffix(what.size());
  }
  return std::string(text);
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::Create(const std::vector<TokenDecoderStep>& steps) {
  TokenDecoder result;
  for (const TokenDecoderStep& step : steps) TLM_RETURN_IF_ERROR(result.Add(step));
  return result;
}

absl::Status TokenDecoder::Add(const TokenDecoderStep& step) {
  if (is_fused_) return AddAfterFuse(step);
  if (step.kind == TokenDecoderStep::kFuse) {
    is_fused_ = true;
    return absl::OkStatus();
  }
  // A step here would need the joined text of any number of neighbouring bytes.
  if (has_byte_tokens_) {
    return Unimplemented("decoder: {} between 'ByteFallback' and 'Fuse' is not supported",
                         Quoted(kNames[step.kind]));
  }
  steps_.push_back({step, std::nullopt});
  if (step.kind == TokenDecoderStep::kReplace && !step.is_literal) {
    TLM_ASSIGN_OR_RETURN(steps_.back().regex, Regex::Compile(step.pattern));
  }
  has_byte_tokens_ = step.kind == TokenDecoderStep::kByteFallback;
  is_fused_ = step.kind == TokenDecoderStep::kByteLevel;
  first_token_is_special_ |= step.kind == TokenDecoderStep::kMetaspace && step.prepends;
  return absl::OkStatus();
}

// Once tokens are joined, a step sees the whole text, which a stream does not have.
absl::Status TokenDecoder::AddAfterFuse(const TokenDecoderStep& step) {
  if (step.kind == TokenDecoderStep::kFuse) return absl::OkStatus();
  if (step.kind != TokenDecoderStep::kStrip || step.stop != 0 || max_stripped_ != 0) {
    return Unimplemented(
        "decoder: {} behind 'Fuse' or 'ByteLevel' is not supported, only one 'Strip' with stop 0 "
        "is",
        Quoted(kNames[step.kind]));
  }
  stripped_ = step.content;
  max_stripped_ = step.start;
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoder::TokenText> TokenDecoder::Decode(std::string_view token,
                                                             bool is_first) const {
  TokenText result{std::string(token)};
  std::string& text = result.text;
  for (const Step& step : steps_) {
    const TokenDecoderStep& options = step.options;
    switch (options.kind) {
      case TokenDecoderStep::kByteLevel:
        if (auto bytes = BytesFromByteLevel(text); bytes.has_value()) text = *std::move(bytes);
        break;
      case TokenDecoderStep::kByteFallback:
        if (const auto byte = ByteOfTokenName(text); byte.has_value()) {
          text.assign(1, static_cast<char>(*byte));
          result.is_byte = true;
        }
        break;
      case TokenDecoderStep::kReplace:
        if (options.is_literal) {
          text = ReplaceAll(text, options.pattern, options.content);
        } else {
          TLM_ASSIGN_OR_RETURN(text, ReplaceMatches(*step.regex, text, options.content));
        }
        break;
      case TokenDecoderStep::kMetaspace:
        text = ReplaceAll(text, options.content, is_first && options.prepends ? "" : " ");
        break;
      case TokenDecoderStep::kStrip:
        text = StripEnds(text, options);
        break;
      case TokenDecoderStep::kFuse:
        break;
    }
    if (const size_t limit = kMaxGrowth * token.size() + kMaxGrowthBytes; text.size() > limit) {
      return ResourceExhausted("text of token {} has {} bytes, the limit is {}", Quoted(token),
                               text.size(), limit);
    }
  }
  return result;
}

}  // namespace tlm
