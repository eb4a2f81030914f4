// A tokenizer's pattern. Parts: the pattern; the rest is the text it is searched in.
#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "model/tokenizer/regex.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const auto regex = tlm::Regex::Compile(input.Part());
  if (tlm::IsRefused(regex)) return 0;
  const std::string_view text = input.Rest();
  if (tlm::FindInvalidUtf8(text) != text.npos) return 0;
  size_t covered = 0;
  const absl::Status status =
      tlm::RegexMatcher(*regex).ForEachSegment(text, [&covered](std::string_view segment, bool) {
        covered += segment.size();
        return absl::OkStatus();
      });
  if (!status.ok()) tlm::CheckRefusal(status);
  TLM_CHECK(!status.ok() || covered == text.size());
  return 0;
}
