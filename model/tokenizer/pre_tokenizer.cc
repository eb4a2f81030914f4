#include "model/tokenizer/pre_tokenizer.h"

#include "model/base/errors.h"
#include "model/tokenizer/utf8.h"

namespace tlm {

// One text on its way through the steps: pieces go down one by one, nothing is collected.
class PreTokenizer::Run {
 public:
  Run(const std::vector<Step>& steps, Sink sink) : steps_(steps), sink_(sink) {
    matchers_.reserve(steps.size());
    for (const Step& step : steps) {
      matchers_.emplace_back();
      if (step.regex.has_value()) matchers_.back().emplace(*step.regex);
    }
  }

  // Applies the steps from `index` on. Recursion ends with the steps.
  absl::Status Apply(size_t index, std::string_view piece) {
    if (piece.empty()) return absl::OkStatus();
    if (index == steps_.size()) return sink_(piece);
    if (steps_[index].kind == PreTokenizerStep::kSplit) return ApplySplit(index, piece);
    if (piece[0] == ' ') return Apply(index + 1, piece);
    return Apply(index + 1, fmt::format(" {}", piece));
  }

 private:
  absl::Status ApplySplit(size_t index, std::string_view piece) {
    const bool keeps_gaps = steps_[index].behavior != PreTokenizerStep::kMatchesKeptAlone;
    const bool keeps_matches = steps_[index].behavior != PreTokenizerStep::kMatchesRemoved;
    size_t done = 0;  // pieces before this byte went down
    size_t from = 0;
    while (from <= piece.size()) {
      TLM_ASSIGN_OR_RETURN(const auto match, matchers_[index]->Find(piece, from));
      if (!match.has_value()) break;
      if (keeps_gaps) {
        TLM_RETURN_IF_ERROR(Apply(index + 1, piece.substr(done, match->begin - done)));
      }
      if (keeps_matches) {
        TLM_RETURN_IF_ERROR(
            Apply(index + 1, piece.substr(match->begin, match->end - match->begin)));
      }
      done = match->end;
      from = match->end;
      // An empty match cuts, and the search goes on one character further.
      if (match->begin == match->end) {
        from += from < piece.size() ? FirstCharacter(piece.substr(from)).length : 1;
      }
    }
    return keeps_gaps ? Apply(index + 1, piece.substr(done)) : absl::OkStatus();
  }

  const std::vector<Step>& steps_;
  const Sink sink_;
  std::vector<std::optional<RegexMatcher>> matchers_;  // one a step
};

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  std::vector<Step> compiled;
  for (const PreTokenizerStep& step : steps) {
    compiled.push_back({step.kind, step.behavior, std::nullopt});
    if (step.kind != PreTokenizerStep::kSplit) continue;
    TLM_ASSIGN_OR_RETURN(compiled.back().regex, step.is_literal
                                                    ? Regex::CompileLiteral(step.pattern)
                                                    : Regex::Compile(step.pattern));
  }
  return PreTokenizer(std::move(compiled));
}

absl::Status PreTokenizer::Split(std::string_view text, Sink sink) const {
  return Run(steps_, sink).Apply(0, text);
}

}  // namespace tlm
