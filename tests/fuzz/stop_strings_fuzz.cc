// Stop strings against a search through the whole text. Two parts are stop strings; of the rest the
// first byte tells the portions in which the text arrives.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "server/rpc/output/stop_string_filter.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr size_t kMaxText = 512;  // the plain search is cubic

// The match that ends first; of those that end together the longest.
std::optional<StopStringFilter::Match> Expected(const std::vector<std::string>& stops,
                                                std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<StopStringFilter::Match> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!text.substr(0, end).ends_with(stops[i])) continue;
      if (best.has_value() && stops[best->index].size() >= stops[i].size()) continue;
      best = {i, static_cast<int64_t>(end - stops[i].size()), static_cast<int64_t>(end)};
    }
    if (best.has_value()) return best;
  }
  return std::nullopt;
}

void CheckSame(const std::optional<StopStringFilter::Match>& found,
               const std::optional<StopStringFilter::Match>& expected) {
  TLM_CHECK(found.has_value() == expected.has_value());
  if (!found.has_value()) return;
  TLM_CHECK(found->begin == expected->begin && found->end == expected->end);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  std::vector<std::string> stops = {std::string(input.Part()), std::string(input.Part())};
  std::erase(stops, "");
  const size_t portion = 1 + input.Byte() % 8;
  const std::string_view text = input.Bytes(tlm::kMaxText);
  tlm::StopStringFilter filter(stops);
  const auto expected = tlm::Expected(stops, text);
  std::optional<tlm::StopStringFilter::Match> found;
  for (size_t at = 0; at < text.size() && !found.has_value(); at += portion) {
    found = filter.Append(text.substr(at, portion));
    // What may be shown is no part of the match to come.
    TLM_CHECK(found.has_value() || !expected.has_value() || filter.releasable() <= expected->begin);
  }
  tlm::CheckSame(found, expected);
  return 0;
}
