#include "model/constraint/bytes/recognizer.h"

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {

ByteRegex LiteralsRegex(RegexSet& regexes, std::vector<std::string_view> texts) {
  std::sort(texts.begin(), texts.end());
  // The path of the current text in the tree of all texts: open[i] holds the alternatives after its
  // first i bytes.
  std::vector<std::vector<ByteRegex>> open(1);
  std::string_view path;
  const auto close_to = [&](size_t depth) {
    for (size_t i = path.size(); i > depth; --i) {
      const ByteRegex rest = regexes.Or(open[i]);
      const ByteSet byte = ByteSet::Of(static_cast<uint8_t>(path[i - 1]));
      open.pop_back();
      open[i - 1].push_back(regexes.Concat(regexes.Bytes(byte), rest));
    }
  };
  for (const std::string_view text : texts) {
    const auto [end, unused] = std::mismatch(path.begin(), path.end(), text.begin(), text.end());
    close_to(static_cast<size_t>(end - path.begin()));
    path = text;
    open.resize(path.size() + 1);
    open.back().push_back(RegexSet::kEmpty);
  }
  close_to(0);
  return regexes.Or(open[0]);
}

absl::StatusOr<std::unique_ptr<Recognizer>> CompileChoices(std::span<const std::string> choices,
                                                           const ConstraintLimits& limits) {
  if (choices.empty()) return InvalidArgument("the list is empty");
  size_t bytes = 0;
  for (const std::string& choice : choices) bytes += choice.size();
  if (bytes > limits.max_text_bytes) {
    return ResourceExhausted("{} bytes, the limit is {}", bytes, limits.max_text_bytes);
  }
  if (choices.size() > limits.max_states) {
    return ResourceExhausted("{} texts, the limit is {}", choices.size(), limits.max_states);
  }
  RegexSet regexes(limits.max_bytes / RegexSet::kBytesPerExpression);
  const ByteRegex regex =
      LiteralsRegex(regexes, std::vector<std::string_view>(choices.begin(), choices.end()));
  if (regexes.full()) {
    return ResourceExhausted("the automaton of {} bytes takes more than {} bytes", bytes,
                             limits.max_bytes);
  }
  return std::make_unique<RegexRecognizer>(std::move(regexes), regex, limits.max_states);
}

}  // namespace tlm
