#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {
namespace {

std::string ReplaceSpaces(std::string_view text, std::string_view by) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c == ' ') {
      result += by;
    } else {
      result.push_back(c);
    }
  }
  return result;
}

// Joins neighbouring segments by a behaviour. One segment is held back, because the next may join
// it.
class Grouping {
 public:
  using Sink = absl::FunctionRef<absl::Status(std::string_view)>;

  Grouping(PreTokenizerStep::Behavior behavior, Sink sink) : behavior_(behavior), sink_(sink) {}

  // Segments follow each other without a gap.
  absl::Status Add(std::string_view segment, bool is_match) {
    const bool joins = has_held_ && Joins(is_match);
    held_is_match_ = joins && behavior_ == PreTokenizerStep::kMergedWithNext ? false : is_match;
    if (joins) {
      held_ = {held_.data(), held_.size() + segment.size()};
      return absl::OkStatus();
    }
    TLM_RETURN_IF_ERROR(Flush());
    has_held_ = behavior_ != PreTokenizerStep::kRemoved || !is_match;
    held_ = segment;
    return absl::OkStatus();
  }

  absl::Status Flush() {
    const bool had_held = std::exchange(has_held_, false);
    return had_held ? sink_(held_) : absl::OkStatus();
  }

 private:
  bool Joins(bool is_match) const {
    switch (behavior_) {
      case PreTokenizerStep::kContiguous:
        return is_match == held_is_match_;
      case PreTokenizerStep::kMergedWithPrevious:
        return is_match && !held_is_match_;
      case PreTokenizerStep::kMergedWithNext:
        return !is_match && held_is_match_;
      default:
        return false;
    }
  }

  const PreTokenizerStep::Behavior behavior_;
  const Sink sink_;
  std::string_view held_;
  bool has_held_ = false;
  bool held_is_match_ = false;  // the last added segment; for kMergedWithNext all of held_
};

}  // namespace

// Takes one text through the steps: pieces are passed on one by one, nothing is collected.
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
  absl::Status Apply(size_t index, std::string_view piece, bool begins_input) {
    if (piece.empty()) return absl::OkStatus();
    if (index == steps_.size()) return sink_(piece);
    switch (steps_[index].options.kind) {
      case PreTokenizerStep::kSplit:
        return ApplySplit(index, piece, begins_input);
      case PreTokenizerStep::kMetaspace:
        return ApplyMetaspace(index, piece, begins_input);
      case PreTokenizerStep::kPrefixSpace:
        break;
    }
    if (piece[0] == ' ') return Apply(index + 1, piece, begins_input);
    return Apply(index + 1, fmt::format(" {}", piece), begins_input);
  }

 private:
  absl::Status ApplySplit(size_t index, std::string_view piece, bool begins_input) {
    const PreTokenizerStep& options = steps_[index].options;
    const auto go_on = [&](std::string_view part) {
      return Apply(index + 1, part, begins_input && part.data() == piece.data());
    };
    Grouping grouping(options.behavior, go_on);
    TLM_RETURN_IF_ERROR(
        matchers_[index]->ForEachSegment(piece, [&](std::string_view segment, bool is_match) {
          return grouping.Add(segment, is_match != options.invert);
        }));
    return grouping.Flush();
  }

  absl::Status ApplyMetaspace(size_t index, std::string_view piece, bool begins_input) {
    const PreTokenizerStep& options = steps_[index].options;
    const std::string& mark = options.metaspace;
    std::string text = ReplaceSpaces(piece, mark);
    const bool wants_mark = options.prepend == PreTokenizerStep::kAlways ||
                            (options.prepend == PreTokenizerStep::kFirst && begins_input);
    if (wants_mark && text.compare(0, mark.size(), mark) != 0) text.insert(0, mark);
    std::string_view rest = text;
    while (options.cuts && !rest.empty()) {
      const size_t cut = std::min(rest.find(mark, 1), rest.size());
      TLM_RETURN_IF_ERROR(
          Apply(index + 1, rest.substr(0, cut), begins_input && rest.data() == text.data()));
      rest.remove_prefix(cut);
    }
    return Apply(index + 1, rest, begins_input);
  }

  const std::vector<Step>& steps_;
  const Sink sink_;
  std::vector<std::optional<RegexMatcher>> matchers_;  // one per step
};

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  std::vector<Step> compiled;
  for (const PreTokenizerStep& step : steps) {
    compiled.push_back({step, std::nullopt});
    if (step.kind != PreTokenizerStep::kSplit) continue;
    TLM_ASSIGN_OR_RETURN(compiled.back().regex, step.is_literal
                                                    ? Regex::CompileLiteral(step.pattern)
                                                    : Regex::Compile(step.pattern));
  }
  return PreTokenizer(std::move(compiled));
}

absl::Status PreTokenizer::Split(std::string_view text, bool begins_input, Sink sink) const {
  return Run(steps_, sink).Apply(0, text, begins_input);
}

}  // namespace tlm
