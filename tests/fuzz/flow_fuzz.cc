// A flow of two nodes with grammars, and bytes that are read with it. The first byte chooses what
// leads where. Parts: two triggers and a lead of the free node; begin, grammar and end of three
// edges; the rest are the bytes. All but the first begin may be empty; a byte 1 in a part is the
// mark of special tokens.
#include <algorithm>

#include "model/base/errors.h"
#include "model/constraint/flow.h"
#include "model/constraint/grammar/earley.h"
#include "model/constraint/mask/token_trie.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/read_text.h"

namespace tlm {
namespace {

std::string MarkedPart(FuzzInput& input) {
  std::string part(input.Part());
  std::ranges::replace(part, '\x01', kSpecialTokenMark);
  return part;
}

ConstraintSpec::Flow ReadSpec(FuzzInput& input) {
  const uint8_t options = input.Byte();
  const auto bit = [options](int number) { return (options >> number & 1) != 0; };
  ConstraintSpec::Flow spec;
  spec.token_budget = 0;
  spec.nodes = {{.is_free = true, .may_end = true}, {.may_end = true}};
  ConstraintSpec::Node& free = spec.nodes[0];
  free.triggers = {MarkedPart(input), MarkedPart(input)};
  if (free.triggers[1].empty()) free.triggers.pop_back();
  free.leads = {MarkedPart(input)};
  if (free.leads[0].empty()) free.leads.clear();
  if (bit(0)) {
    spec.nodes[1] = free;
    spec.nodes[1].may_end = false;
  }
  for (int i = 0; i < 3; ++i) {
    ConstraintSpec::Edge edge = {.begin = MarkedPart(input), .content = {}, .end = {}};
    std::string gbnf(input.Part());
    const bool has_content = !gbnf.empty();
    edge.content = ConstraintSpec::Nothing{};
    if (has_content) edge.content = ConstraintSpec::Grammar{std::move(gbnf)};
    edge.end = MarkedPart(input);
    edge.target = bit(2 + i) ? 1 : 0;
    const bool is_given = i == 0 || !edge.begin.empty() || has_content;
    if (is_given) spec.nodes[bit(5 + i) ? 1 : 0].edges.push_back(std::move(edge));
  }
  free.is_budgeted = bit(1) && !free.edges.empty();
  if (free.is_budgeted) free.closing = 0;
  return spec;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxText = 256;
  const tlm::ConstraintLimits limits = {.max_states = 5000, .max_bytes = size_t{4} << 20};
  tlm::FuzzInput input(data, size);
  const tlm::ConstraintSpec::Flow spec = tlm::ReadSpec(input);
  tlm::Budget budget(absl::Seconds(1), nullptr);
  const auto flow = tlm::Flow::Compile(spec, limits, [&](const auto& content) {
    return tlm::CompileGrammar(tlm::TextOf(content), limits, budget);
  });
  if (tlm::IsRefused(flow)) return 0;
  tlm::FlowRecognizer recognizer(*flow, limits);
  TLM_CHECK(recognizer.Accepts(recognizer.start()));
  // Each content has limits of its own.
  const size_t max_bytes = 4 * limits.max_bytes;
  const std::string_view text = input.Bytes(kMaxText);
  const tlm::Recognizer::State half =
      tlm::ReadText(recognizer, recognizer.start(), text.substr(0, text.size() / 2), max_bytes);
  if (half == tlm::Recognizer::kDead) return 0;
  tlm::ReadText(recognizer, half, text.substr(text.size() / 2), max_bytes);
  const tlm::Recognizer::State closed = recognizer.Close(half);
  if (recognizer.full()) return 0;
  TLM_CHECK(closed != tlm::Recognizer::kDead && !recognizer.CountsTokens(closed));
  tlm::ReadText(recognizer, closed, text.substr(text.size() / 2), max_bytes);
  return 0;
}
