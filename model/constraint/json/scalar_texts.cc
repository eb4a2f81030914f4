#include "model/constraint/json/scalar_texts.h"

#include <algorithm>
#include <array>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/number_regex.h"

namespace tlm {
namespace {

// Different decimals of at most this many characters are different doubles.
constexpr int32_t kExactCharacters = 16;
// Divisors that are put into one automaton. It has as many states as their least common multiple.
constexpr size_t kMaxMultiples = 2;

}  // namespace

ScalarTexts::Numbers ScalarTexts::NumbersFor(Formula must, std::span<const Formula> outs) {
  std::vector<Formula> about = {formulas_.Restrict(must, JsonKind::kNumber)};
  for (const Formula out : outs) about.push_back(formulas_.Restrict(out, JsonKind::kNumber));
  std::vector<int32_t> atoms;
  bool exact = false;  // the number as a double must be on the same side of every bound
  for (const Formula formula : about) {
    formulas_.CollectAtoms(formula, atoms);
    exact |= formula != about[0] || (formula != kTrue && !formulas_.IsPositive(formula));
  }
  Numbers numbers = {.disputed = DisputedStrings(must, outs)};
  bool integers = false;
  for (const int32_t index : atoms) {
    const Atom& atom = formulas_.atom(index);
    integers |= atom.integers;
    exact |= atom.exclusive;
    if (atom.kind != Atom::Kind::kMultiple) continue;
    numbers.checked = true;
    if (numbers.multiples.size() < kMaxMultiples) numbers.multiples.push_back(index);
  }
  // Without atoms no text is compared.
  numbers.texts = atoms.empty() ? AnyNumberRegex(regexes_)
                                : NumberRegex(regexes_, {}, integers ? TextForm::kJson : form_);
  const ByteRegex digits =
      regexes_.Repeat(regexes_.Bytes(ByteSet::Range('0', '9')), 0, RegexSet::kUnbounded);
  const ByteRegex dot = regexes_.Literal(".");
  if (integers) {
    // Validators disagree whether 1.0 is an integer, so it is not written.
    const ByteRegex zeros = regexes_.Repeat(regexes_.Literal("0"), 0, RegexSet::kUnbounded);
    const std::array parts = {RegexSet::kAny, dot, zeros};
    numbers.texts = regexes_.And(numbers.texts, regexes_.Not(regexes_.Concat(parts)));
  }
  if (exact || numbers.checked) {
    const ByteRegex sign = regexes_.Repeat(regexes_.Literal("-"), 0, 1);
    const ByteRegex brief = regexes_.Repeat(regexes_.Bytes(ByteSet::All()), 0, kExactCharacters);
    numbers.texts = regexes_.And(
        numbers.texts, regexes_.Or(regexes_.Concat(sign, digits), regexes_.Concat(sign, brief)));
  }
  return numbers;
}

ByteRegex ScalarTexts::DisputedStrings(Formula must, std::span<const Formula> outs) {
  std::vector<int32_t> atoms;
  const Formula string = formulas_.Restrict(must, JsonKind::kString);
  if (!formulas_.IsPositive(string)) formulas_.CollectAtoms(string, atoms);
  for (const Formula out : outs) {
    formulas_.CollectAtoms(formulas_.Restrict(out, JsonKind::kString), atoms);
  }
  std::vector<ByteRegex> any;
  for (const int32_t atom : atoms) any.push_back(formulas_.atom(atom).disputed);
  return regexes_.Or(any);
}

ByteRegex ScalarTexts::NumberTexts(Formula formula, const Numbers& numbers) {
  Formula about = formulas_.Restrict(formula, JsonKind::kNumber);
  if (numbers.checked) {
    about = formulas_.Weaken(about, [&](int32_t atom, bool negated) {
      const Formula positive = formulas_.Of(formulas_.atom(atom));
      if (formulas_.atom(atom).kind != Atom::Kind::kMultiple) {
        return negated ? formulas_.Not(positive) : positive;
      }
      const auto& known = numbers.multiples;
      if (std::find(known.begin(), known.end(), atom) == known.end()) return kTrue;
      const bool exact =
          formulas_.atom(atom).divisor.is_integer() && formulas_.atom(atom).regex != RegexSet::kAny;
      return !negated ? positive : exact ? formulas_.Not(positive) : kTrue;
    });
  }
  return regexes_.And(numbers.texts, formulas_.ToRegex(about, regexes_, [&](int32_t atom) {
    return formulas_.atom(atom).regex;
  }));
}

ByteRegex ScalarTexts::Texts(Formula formula, const Numbers& numbers) {
  std::vector<ByteRegex> any;
  if (formulas_.Restrict(formula, JsonKind::kNull) == kTrue) {
    any.push_back(regexes_.Literal("null"));
  }
  const Formula boolean = formulas_.Restrict(formula, JsonKind::kBoolean);
  for (const bool value : {false, true}) {
    const bool allowed = formulas_.Evaluate(boolean, [&](int32_t atom) {
      return (formulas_.atom(atom).types & (value ? 2u : 1u)) != 0;
    });
    if (allowed) any.push_back(regexes_.Literal(value ? "true" : "false"));
  }
  any.push_back(NumberTexts(formula, numbers));
  const Formula string = formulas_.Restrict(formula, JsonKind::kString);
  if (string != kFalse) {
    const ByteRegex quote = regexes_.Literal("\"");
    const ByteRegex texts = numbers.disputed == RegexSet::kNone
                                ? StringTexts(string)
                                : regexes_.And(StringTexts(string), regexes_.Not(numbers.disputed));
    const std::array parts = {quote, texts, quote};
    any.push_back(regexes_.Concat(parts));
  }
  return regexes_.Or(any);
}

ByteRegex ScalarTexts::StringTexts(Formula formula) {
  const Formula string = formulas_.Restrict(formula, JsonKind::kString);
  const ByteRegex any = AnyTextRegex(regexes_, form_);
  if (string == kTrue) return any;
  const ByteRegex said =
      formulas_.ToRegex(string, regexes_, [&](int32_t atom) { return formulas_.atom(atom).regex; });
  // The expressions of atoms hold only texts; only their negations may hold other bytes.
  if (formulas_.IsPositive(string)) return said;
  return regexes_.And(std::array{any, said, regexes_.Not(DisputedStrings(string, {}))});
}

std::optional<bool> ScalarTexts::NumberIs(Formula formula, std::string_view text) {
  bool disputed = false;
  const Formula about = formulas_.Restrict(formula, JsonKind::kNumber);
  const bool is = formulas_.Evaluate(about, [&](int32_t index) {
    const Atom& atom = formulas_.atom(index);
    if (atom.kind != Atom::Kind::kMultiple) return Matches(regexes_, atom.regex, text);
    const MultipleVerdict verdict = CheckMultiple(text, atom.divisor);
    disputed |= verdict == MultipleVerdict::kDisputed;
    return verdict == MultipleVerdict::kYes;
  });
  return disputed ? std::nullopt : std::optional(is);
}

}  // namespace tlm
