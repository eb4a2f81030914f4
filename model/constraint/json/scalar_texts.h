// The texts of null, booleans, numbers and strings that a formula allows.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/schema_formula.h"

namespace tlm {

// Not thread-safe; the sets outlive it.
class ScalarTexts {
 public:
  // Which texts numbers and strings may have. All formulas that are asked about one value use the
  // same, and each of them is exact for all of these texts.
  struct Numbers {
    ByteRegex texts = RegexSet::kNone;
    bool checked = false;  // the formulas say more than expressions can: ask NumberIs at the end
    std::vector<int32_t> multiples = {};  // atoms kMultiple that are put into expressions
    // Strings that are not written, as it is disputed whether one of the formulas is true of them.
    ByteRegex disputed = RegexSet::kNone;
  };

  ScalarTexts(FormulaSet& formulas, RegexSet& regexes)
      : formulas_(formulas), regexes_(regexes), form_(formulas.form()) {}

  // Strings of which it is disputed whether a formula is true: of `must` those it does not plainly
  // forbid.
  ByteRegex DisputedStrings(Formula must, std::span<const Formula> outs);
  Numbers NumbersFor(Formula must, std::span<const Formula> outs);
  // The texts of all scalars that are as the formula says; where `numbers` are checked, perhaps of
  // others, too. Strings stand with their quotes.
  ByteRegex Texts(Formula formula, const Numbers& numbers);
  // Strings as the formula says, without the quotes.
  ByteRegex StringTexts(Formula formula);
  // Whether the number of the text is as the formula says; unset if that is disputed.
  std::optional<bool> NumberIs(Formula formula, std::string_view text);

 private:
  ByteRegex NumberTexts(Formula formula, const Numbers& numbers);

  FormulaSet& formulas_;
  RegexSet& regexes_;
  const TextForm form_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_
