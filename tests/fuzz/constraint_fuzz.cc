// A JSON Schema or a regular expression, and bytes that are written under it. The first byte
// chooses options. A part is the schema, if it begins with {, or else the expression; the rest are
// the bytes.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/errors.h"
#include "model/constraint/constraint.h"
#include "model/constraint/mask/token_trie.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr size_t kMaxText = 200;
constexpr size_t kMaxMemory = size_t{4} << 20;

// Every byte, and some texts of several.
std::shared_ptr<const TokenTrie> Tokens() {
  static const auto* const tokens = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* const text : {"\": ", "\",\"", "\"}", "},{", "],", "true", "null", "\"a", "10",
                                   ".5", "the ", "\n  ", "\xd0\xb6", "\\n\"", "--", "a:"}) {
      texts.emplace_back(text);
    }
    return new std::shared_ptr<const TokenTrie>(
        TokenTrie::Build(std::span<const std::string>(texts), std::vector<int32_t>{}));
  }();
  return *tokens;
}

bool Has(const ConstraintMatcher::Allowed& allowed, int32_t token) {
  const auto bit = static_cast<size_t>(token);
  return (allowed.tokens[bit / 64] >> bit % 64 & 1) != 0;
}

// Each byte if it may follow, else a token that may.
void Write(const std::shared_ptr<Constraint>& constraint, std::string_view bytes, bool is_json) {
  ConstraintMatcher matcher(constraint);
  const int32_t count = Tokens()->vocab_size();
  std::string text;
  for (const char byte : bytes) {
    const ConstraintMatcher::Allowed allowed = matcher.Next();
    if (allowed.may_end && is_json) TLM_CHECK(nlohmann::json::accept(text));
    TLM_CHECK(constraint->bytes() < 4 * kMaxMemory);
    if (allowed.no_token) return;
    TLM_CHECK(!allowed.forced || Has(allowed, *allowed.forced));
    const auto drawn = static_cast<uint8_t>(byte);
    if (!Has(allowed, drawn)) {
      // At a limit any token is taken, and none behind it.
      ConstraintMatcher other = matcher;
      TLM_CHECK(!other.Accept(drawn) || other.Next().no_token);
    }
    int32_t taken = drawn;
    for (int32_t i = 0; i < count && !Has(allowed, taken); ++i) taken = (drawn + i) % count;
    TLM_CHECK(Has(allowed, taken) && matcher.Accept(taken));
    text += Tokens()->Text(taken);
  }
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tlm::ConstraintLimits limits = {.max_states = 5000,
                                        .max_bytes = tlm::kMaxMemory,
                                        .max_compile_time = absl::Milliseconds(100)};
  tlm::FuzzInput input(data, size);
  const uint8_t options = input.Byte();
  tlm::ConstraintSpec spec;
  std::string text(input.Part());
  const bool is_json = text.starts_with('{');
  if (is_json) {
    spec.language = tlm::ConstraintSpec::JsonSchema{std::move(text)};
  } else {
    spec.language = tlm::ConstraintSpec::Regex{std::move(text)};
  }
  spec.json = {.compact = (options & 1) != 0,
               .any_property_order = (options & 2) != 0,
               .any_escapes = (options & 4) != 0};
  const auto constraint = tlm::Constraint::Compile(spec, tlm::Tokens(), limits, nullptr);
  if (tlm::IsRefused(constraint)) return 0;
  tlm::Write(*constraint, input.Bytes(tlm::kMaxText), is_json);
  return 0;
}
