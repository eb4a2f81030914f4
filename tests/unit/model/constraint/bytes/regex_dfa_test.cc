#include "model/constraint/bytes/regex_dfa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "tests/support/recognizer_walk.h"

namespace tlm {
namespace {

// An expression twice: in a RegexSet, and as a tree whose meaning is computed by definition.
struct Tree {
  enum Kind { kBytes, kConcat, kOr, kAnd, kNot, kRepeat } kind = kBytes;
  std::string bytes;
  int min = 0, max = 0;  // max < 0: none
  std::vector<Tree> parts;

  bool Holds(std::string_view text) const {
    switch (kind) {
      case kBytes:
        return text.size() == 1 && bytes.find(text[0]) != bytes.npos;
      case kConcat:
        for (size_t i = 0; i <= text.size(); ++i) {
          if (parts[0].Holds(text.substr(0, i)) && parts[1].Holds(text.substr(i))) return true;
        }
        return false;
      case kOr:
        return parts[0].Holds(text) || parts[1].Holds(text);
      case kAnd:
        return parts[0].Holds(text) && parts[1].Holds(text);
      case kNot:
        return !parts[0].Holds(text);
      case kRepeat:
        return Repeats(text, min, max);
    }
    return false;
  }
  bool Repeats(std::string_view text, int least, int most) const {
    if (least <= 0 && text.empty()) return true;
    if (most == 0) return false;
    if (least > 0 && parts[0].Holds("") && Repeats(text, least - 1, most < 0 ? most : most - 1)) {
      return true;
    }
    for (size_t i = 1; i <= text.size(); ++i) {
      if (parts[0].Holds(text.substr(0, i)) &&
          Repeats(text.substr(i), least - 1, most < 0 ? most : most - 1)) {
        return true;
      }
    }
    return false;
  }
};

class RegexDfaTest : public ::testing::Test {
 protected:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  Tree RandomTree(int depth) {
    Tree tree;
    tree.kind = depth == 0 ? Tree::kBytes : static_cast<Tree::Kind>(Draw(6));
    switch (tree.kind) {
      case Tree::kBytes:
        for (const char byte : {'a', 'b', 'c'}) {
          if (Draw(2) == 0) tree.bytes += byte;
        }
        break;
      case Tree::kRepeat:
        tree.min = Draw(3);
        tree.max = Draw(2) == 0 ? -1 : tree.min + Draw(3);
        [[fallthrough]];
      case Tree::kNot:
        tree.parts = {RandomTree(depth - 1)};
        break;
      default:
        tree.parts = {RandomTree(depth - 1), RandomTree(depth - 1)};
    }
    return tree;
  }

  ByteRegex Make(const Tree& tree) {
    switch (tree.kind) {
      case Tree::kBytes: {
        ByteSet set;
        for (const char byte : tree.bytes) set.Add(static_cast<uint8_t>(byte));
        return regexes_.Bytes(set);
      }
      case Tree::kConcat:
        return regexes_.Concat(Make(tree.parts[0]), Make(tree.parts[1]));
      case Tree::kOr:
        return regexes_.Or(Make(tree.parts[0]), Make(tree.parts[1]));
      case Tree::kAnd:
        return regexes_.And(Make(tree.parts[0]), Make(tree.parts[1]));
      case Tree::kNot:
        return regexes_.Not(Make(tree.parts[0]));
      case Tree::kRepeat:
        return regexes_.Repeat(Make(tree.parts[0]), tree.min,
                               tree.max < 0 ? RegexSet::kUnbounded : tree.max);
    }
    return RegexSet::kNone;
  }

  std::mt19937 random_{7};
  RegexSet regexes_{1 << 20};
};

TEST_F(RegexDfaTest, HoldsWhatTheDefinitionSays) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 5; ++i) {
    for (const char byte : {'a', 'b', 'c'}) texts.push_back(texts[i] + byte);
  }
  for (int round = 0; round < 2000; ++round) {
    const Tree tree = RandomTree(4);
    RegexDfa dfa(regexes_, Make(tree), 10'000);
    for (const std::string& text : texts) {
      ASSERT_EQ(Accepts(dfa, text), tree.Holds(text)) << round << ": " << text;
    }
    ASSERT_FALSE(dfa.full());
  }
}

TEST_F(RegexDfaTest, StatesThatAreNotDeadLeadToAnAcceptedString) {
  for (int round = 0; round < 500; ++round) {
    RegexDfa dfa(regexes_, Make(RandomTree(4)), 10'000);
    if (dfa.start() == RegexDfa::kDead) continue;
    // Breadth first over all states, with the states that each leads to.
    std::vector<RegexDfa::State> states = {dfa.start()};
    std::map<RegexDfa::State, std::vector<RegexDfa::State>> next;
    for (size_t i = 0; i < states.size(); ++i) {
      for (const char byte : {'a', 'b', 'c', 'd'}) {
        const RegexDfa::State to = dfa.Next(states[i], static_cast<uint8_t>(byte));
        if (to == RegexDfa::kDead) continue;
        next[states[i]].push_back(to);
        if (std::find(states.begin(), states.end(), to) == states.end()) states.push_back(to);
      }
    }
    std::map<RegexDfa::State, bool> reaches;
    for (const RegexDfa::State state : states) reaches[state] = dfa.Accepts(state);
    for (bool changed = true; changed;) {
      changed = false;
      for (const RegexDfa::State state : states) {
        for (const RegexDfa::State to : next[state]) {
          if (reaches[to] && !reaches[state]) reaches[state] = changed = true;
        }
      }
    }
    for (const RegexDfa::State state : states) ASSERT_TRUE(reaches[state]) << round;
  }
}

TEST_F(RegexDfaTest, FindsThatNothingIsLeft) {
  const ByteRegex a = regexes_.Bytes(ByteSet::Of('a'));
  const ByteRegex b = regexes_.Bytes(ByteSet::Of('b'));
  const ByteRegex either = regexes_.Repeat(regexes_.Or(a, b), 3, RegexSet::kUnbounded);
  const ByteRegex short_ones = regexes_.Repeat(regexes_.Or(a, b), 0, 2);
  EXPECT_EQ(RegexDfa(regexes_, regexes_.And(either, short_ones), 1000).start(), RegexDfa::kDead);
}

TEST_F(RegexDfaTest, KeepsCountedRepetitionsSmall) {
  const ByteRegex any = regexes_.Bytes(ByteSet::All());
  const ByteRegex a = regexes_.Bytes(ByteSet::Of('a'));
  // (.{1,63}a){1,127}: each a may end a repetition or not.
  const ByteRegex part = regexes_.Concat(regexes_.Repeat(any, 1, 63), a);
  // ((a{0,100}){0,100}){0,100}: after any number of letters each of the counts may be any.
  const ByteRegex nested =
      regexes_.Repeat(regexes_.Repeat(regexes_.Repeat(a, 0, 100), 0, 100), 0, 100);
  for (const ByteRegex regex : {regexes_.Repeat(part, 1, 127), nested}) {
    RegexDfa dfa(regexes_, regex, 10'000);
    RegexDfa::State state = dfa.start();
    for (int i = 0; i < 500 && state != RegexDfa::kDead; ++i) {
      state = dfa.Next(state, regex == nested || Draw(3) == 0 ? 'a' : 'b');
    }
    EXPECT_NE(state, RegexDfa::kDead);
  }
  EXPECT_LT(regexes_.size(), 5'000u);
}

TEST_F(RegexDfaTest, RefusesToNestTooDeep) {
  // a?b?a?b?...: the derivative of each part needs that of the next.
  ByteRegex regex = RegexSet::kEmpty;
  for (int i = 0; i < 100'000; ++i) {
    const ByteRegex letter = regexes_.Bytes(ByteSet::Of(i % 2 == 0 ? 'a' : 'b'));
    regex = regexes_.Concat(regexes_.Repeat(letter, 0, 1), regex);
  }
  EXPECT_TRUE(regexes_.full());
  EXPECT_EQ(regex, RegexSet::kNone);
}

TEST_F(RegexDfaTest, StopsAtItsLimits) {
  // a.{n} from anywhere: 2^n states.
  const ByteRegex any = regexes_.Bytes(ByteSet::All());
  const ByteRegex regex = regexes_.Concat(
      std::array{RegexSet::kAny, regexes_.Bytes(ByteSet::Of('a')), regexes_.Repeat(any, 30, 30)});
  RegexDfa dfa(regexes_, regex, 1000);
  RegexDfa::State state = dfa.start();
  for (int i = 0; i < 5000 && state != RegexDfa::kDead; ++i) {
    state = dfa.Next(state, random_() % 2 == 0 ? 'a' : 'b');
  }
  EXPECT_TRUE(dfa.full());
  EXPECT_LE(dfa.size(), 1000u);
}

TEST_F(RegexDfaTest, WorkCountsAlternatives) {
  // What is left of each is known; putting it together is work, too.
  std::vector<ByteRegex> any;
  for (int i = 0; i < 2000; ++i) {
    const ByteRegex one = regexes_.Repeat(regexes_.Bytes(ByteSet::All()), i % 40, i % 40 + i);
    any.push_back(regexes_.Concat(regexes_.Literal("a" + std::to_string(i)), one));
  }
  const ByteRegex all = regexes_.Or(any);
  for (const ByteRegex part : any) regexes_.Derivative(part, 'a');
  ASSERT_FALSE(regexes_.full());
  regexes_.meter().Allow(1000);
  EXPECT_EQ(regexes_.Derivative(all, 'a'), RegexSet::kNone);
  EXPECT_TRUE(regexes_.full());
}

}  // namespace
}  // namespace tlm
