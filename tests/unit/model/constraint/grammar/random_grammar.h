// Random grammars whose texts are known.
#ifndef TLM_TESTS_UNIT_MODEL_CONSTRAINT_GRAMMAR_RANDOM_GRAMMAR_H_
#define TLM_TESTS_UNIT_MODEL_CONSTRAINT_GRAMMAR_RANDOM_GRAMMAR_H_

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tlm {

// A random grammar over a and b, twice: as GBNF, and as productions whose texts are found by
// definition.
class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937& random) : random_(random) {
    const int rules = 1 + Draw(4);
    for (int i = 0; i < rules; ++i)
      names_.push_back(i == 0 ? "root" : std::string(1, static_cast<char>('A' + i)));
    productions_.resize(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      text += names_[i] + " ::= " + Alternatives(static_cast<int>(i), 2) + "\n";
    }
    Solve();
  }

  std::string text;
  static constexpr size_t kMaxLength = 6;
  // Of root: its texts that are not longer, and the beginnings of all texts that are not.
  const std::set<std::string>& texts() const { return texts_[0]; }
  const std::set<std::string>& beginnings() const { return beginnings_[0]; }

 private:
  // A symbol: a rule if not negative, else ~0 for a and ~1 for b.
  using Production = std::vector<int>;

  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  int NewRule() {
    productions_.emplace_back();
    return static_cast<int>(productions_.size() - 1);
  }

  std::string Alternatives(int rule, int depth) {
    std::string text;
    const int alternatives = 1 + Draw(3);
    for (int i = 0; i < alternatives; ++i) {
      if (i > 0) text += " | ";
      Production production;
      const int symbols = Draw(4);
      for (int j = 0; j < symbols; ++j) text += (j > 0 ? " " : "") + Symbol(production, depth);
      if (symbols == 0) text += "\"\"";
      productions_[static_cast<size_t>(rule)].push_back(production);
    }
    return text;
  }

  std::string Symbol(Production& production, int depth) {
    const int kind = Draw(depth > 0 ? 10 : 7);
    if (kind < 3) {
      const int letter = Draw(2);
      production.push_back(~letter);
      return letter == 0 ? "\"a\"" : "[b-b]";
    }
    if (kind < 7) {
      const int rule = Draw(static_cast<int>(names_.size()));
      production.push_back(rule);
      return names_[static_cast<size_t>(rule)];
    }
    const int group = NewRule();
    const std::string text = "(" + Alternatives(group, depth - 1) + ")";
    // A suffix, written out.
    const int suffix = Draw(5);
    const int list = NewRule();
    production.push_back(list);
    std::vector<Production> productions;
    std::string with;
    if (suffix == 0) {
      productions = {{}, {list, group}};
      with = "*";
    } else if (suffix == 1) {
      productions = {{group}, {group, list}};
      with = "+";
    } else if (suffix == 2) {
      productions = {{}, {group}};
      with = "?";
    } else if (suffix == 3) {
      productions = {{group}, {group, group}};
      with = "{1,2}";
    } else {
      productions = {{group}};
    }
    productions_[static_cast<size_t>(list)] = productions;
    return text + with;
  }

  // The least sets that the productions allow.
  void Solve() {
    texts_.resize(productions_.size());
    beginnings_.resize(productions_.size());
    productive_.resize(productions_.size());
    while (Grow()) {
    }
  }
  bool Grow() {
    bool grown = false;
    for (size_t rule = 0; rule < productions_.size(); ++rule) {
      for (const Production& production : productions_[rule]) {
        const bool productive = std::ranges::all_of(
            production, [&](int s) { return s < 0 || productive_[static_cast<size_t>(s)]; });
        if (!productive) continue;
        grown |= !productive_[rule];
        productive_[rule] = true;
        std::set<std::string> texts = {""}, beginnings = {""};
        for (const int symbol : production) {
          const std::string letter = symbol == ~0 ? "a" : "b";
          const auto index = static_cast<size_t>(std::max(symbol, 0));
          beginnings.merge(Join(texts, symbol < 0 ? Texts{"", letter} : beginnings_[index]));
          texts = Join(texts, symbol < 0 ? Texts{letter} : texts_[index]);
        }
        for (const std::string& text : texts) grown |= texts_[rule].insert(text).second;
        for (const std::string& text : beginnings) grown |= beginnings_[rule].insert(text).second;
      }
    }
    return grown;
  }
  using Texts = std::set<std::string>;
  static Texts Join(const Texts& texts, const Texts& ends) {
    Texts joined;
    for (const std::string& text : texts) {
      for (const std::string& end : ends) {
        if (text.size() + end.size() <= kMaxLength) joined.insert(text + end);
      }
    }
    return joined;
  }

  std::mt19937& random_;
  std::vector<std::string> names_;
  std::vector<std::vector<Production>> productions_;
  std::vector<std::set<std::string>> texts_, beginnings_;
  std::vector<char> productive_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CONSTRAINT_GRAMMAR_RANDOM_GRAMMAR_H_
