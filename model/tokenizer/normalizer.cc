#include "model/tokenizer/normalizer.h"

#include <utility>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

absl::Status CheckContent(std::string_view content) {
  if (content.size() <= Normalizer::kMaxContentBytes) return absl::OkStatus();
  return InvalidArgument("normalizer: content has {} bytes, the limit is {}", content.size(),
                         Normalizer::kMaxContentBytes);
}

// `map(code_point, &out)` appends the replacement of each character.
template <typename Map>
std::string MapCharacters(std::string_view text, Map&& map) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    map(character.code_point, &result);
    text.remove_prefix(character.length);
  }
  return result;
}

std::string_view StripWhiteSpace(std::string_view text, StripStep step) {
  while (step.left && !text.empty() && IsWhiteSpace(FirstCharacter(text).code_point)) {
    text.remove_prefix(FirstCharacter(text).length);
  }
  while (step.right && !text.empty() && IsWhiteSpace(LastCharacter(text).code_point)) {
    text.remove_suffix(LastCharacter(text).length);
  }
  return text;
}

bool IsBetween(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Applies the rules of Google's NMT systems, as in SentencePiece's nmt_nfkc.
void AppendNmt(char32_t c, std::string* out) {
  if (IsBetween(c, 0x1, 0x8) || c == 0xb || IsBetween(c, 0xe, 0x1f) || c == 0x7f || c == 0x8f ||
      c == 0x9f) {
    return;
  }
  const bool is_space = c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                        IsBetween(c, 0x200b, 0x200f) || IsBetween(c, 0x2028, 0x2029) ||
                        c == 0x2581 || c == 0xfeff || c == 0xfffd;
  AppendUtf8(is_space ? U' ' : c, out);
}

}  // namespace

// Takes one text through the steps. Each step returns the current text.
class Normalizer::Run {
 public:
  Run(std::string_view text, std::string* storage)
      : max_bytes_(kMaxGrowth * text.size() + kMaxGrowthBytes), text_(text), storage_(storage) {}

  std::string_view text() const { return text_; }

  absl::Status operator()(NormalForm form) {
    return IsPlainlyNormal(text_, form) ? absl::OkStatus() : Set(ToNormalForm(text_, form));
  }

  absl::Status operator()(const PrependStep& step) {
    return text_.empty() ? absl::OkStatus() : Set(fmt::format("{}{}", step.text, text_));
  }

  // Replaces literal text.
  absl::Status operator()(const ReplaceStep& step) {
    size_t match = text_.find(step.pattern);
    if (match == text_.npos) return absl::OkStatus();
    std::string result;
    size_t done = 0;
    for (; match != text_.npos; match = text_.find(step.pattern, done)) {
      result.append(text_, done, match - done);
      result += step.content;
      done = match + step.pattern.size();
      TLM_RETURN_IF_ERROR(CheckSize(result.size()));
    }
    result.append(text_, done);
    return Set(std::move(result));
  }

  absl::Status operator()(const RegexReplacement& step) {
    std::string result;
    TLM_RETURN_IF_ERROR(RegexMatcher(step.regex)
                            .ForEachSegment(text_, [&](std::string_view segment, bool is_match) {
                              result += is_match ? step.content : segment;
                              return CheckSize(result.size());
                            }));
    return Set(std::move(result));
  }

  // This step makes no new text: the result is a part of the text.
  absl::Status operator()(StripStep step) {
    text_ = StripWhiteSpace(text_, step);
    return absl::OkStatus();
  }

  absl::Status operator()(LowercaseStep) { return Set(MapCharacters(text_, AppendLowercase)); }

  absl::Status operator()(StripAccentsStep) {
    return Set(MapCharacters(text_, [](char32_t c, std::string* out) {
      if (!IsMark(c)) AppendUtf8(c, out);
    }));
  }

  absl::Status operator()(NmtStep) { return Set(MapCharacters(text_, AppendNmt)); }

  absl::Status operator()(const Charsmap& charsmap) {
    return Set(charsmap.Apply(text_, max_bytes_));
  }

 private:
  absl::Status CheckSize(size_t bytes) const {
    if (bytes <= max_bytes_) return absl::OkStatus();
    return ResourceExhausted("normalised text has more than {} bytes, the limit for this text",
                             max_bytes_);
  }

  absl::Status Set(std::string text) {
    TLM_RETURN_IF_ERROR(CheckSize(text.size()));
    *storage_ = std::move(text);
    text_ = *storage_;
    return absl::OkStatus();
  }

  const size_t max_bytes_;
  std::string_view text_;
  std::string* const storage_;
};

absl::StatusOr<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer result;
  for (const NormalizerStep& step : steps) {
    if (const auto* const prepend = std::get_if<PrependStep>(&step)) {
      TLM_RETURN_IF_ERROR(CheckContent(prepend->text));
    }
    const auto* const replace = std::get_if<ReplaceStep>(&step);
    if (replace != nullptr) TLM_RETURN_IF_ERROR(CheckContent(replace->content));
    if (replace != nullptr && !replace->is_literal) {
      TLM_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(replace->pattern));
      result.steps_.push_back(RegexReplacement{std::move(regex), replace->content});
    } else if (const auto* const precompiled = std::get_if<PrecompiledStep>(&step)) {
      absl::StatusOr<Charsmap> charsmap = Charsmap::Create(precompiled->charsmap);
      if (!charsmap.ok()) return WithContext(charsmap.status(), "precompiled_charsmap");
      result.steps_.push_back(*std::move(charsmap));
    } else {
      std::visit(
          [&](const auto& plain) {
            using Plain = std::decay_t<decltype(plain)>;
            if constexpr (!std::is_same_v<Plain, PrecompiledStep>) result.steps_.push_back(plain);
          },
          step);
    }
  }
  return result;
}

absl::StatusOr<std::string_view> Normalizer::Normalize(std::string_view text,
                                                       std::string* storage) const {
  Run run(text, storage);
  for (const Step& step : steps_) TLM_RETURN_IF_ERROR(std::visit(run, step));
  return run.text();
}

}  // namespace tlm
