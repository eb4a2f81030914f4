#include "model/constraint/mask/mask_walker.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_schema.h"
#include "tests/support/oracles.h"
#include "tests/support/recognizer_walk.h"

namespace tlm {
namespace {

ByteRegex Bytes(RegexSet& set, std::string_view bytes) {
  ByteSet of;
  for (const char byte : bytes) of.Add(static_cast<uint8_t>(byte));
  return set.Bytes(of);
}

// One character of a string of JSON: not ", no control character; of an escape \ and one of "\n.
ByteRegex JsonCharacter(RegexSet& set) {
  const auto range = [&](uint8_t first, uint8_t last) {
    return set.Bytes(ByteSet::Range(first, last));
  };
  const ByteRegex follow = range(0x80, 0xBF);
  const ByteSet quote = ByteSet::Of('"') | ByteSet::Of('\\');
  return set.Or(std::array{
      set.Bytes(ByteSet::Range(0x20, 0x7F) & ~quote),
      set.Concat(Bytes(set, "\\"), Bytes(set, "\"\\n")),
      set.Concat(range(0xC2, 0xDF), follow),
      set.Concat(std::array{range(0xE0, 0xE0), range(0xA0, 0xBF), follow}),
      set.Concat(std::array{range(0xE1, 0xEC), follow, follow}),
      set.Concat(std::array{range(0xED, 0xED), range(0x80, 0x9F), follow}),
      set.Concat(std::array{range(0xEE, 0xEF), follow, follow}),
      set.Concat(std::array{range(0xF0, 0xF0), range(0x90, 0xBF), follow, follow}),
      set.Concat(std::array{range(0xF1, 0xF3), follow, follow, follow}),
      set.Concat(std::array{range(0xF4, 0xF4), range(0x80, 0x8F), follow, follow}),
  });
}

// Strings of JSON, all of one expression, with ", " between them; each different from the one
// before it. The states remember the text, and so are many.
class StringList : public Recognizer {
 public:
  // `content` and the quote behind it.
  StringList(RegexSet& set, ByteRegex content)
      : dfa_(set, set.Concat(content, Bytes(set, "\"")), 100'000) {
    states_.push_back({});
    start_ = 0;
  }
  State Next(State state, uint8_t byte) override {
    const auto [known, is_new] = next_.emplace(std::pair(state, byte), kDead);
    if (is_new) known->second = Intern(Step(states_[static_cast<size_t>(state)], byte));
    return known->second;
  }
  bool Accepts(State state) override { return states_[static_cast<size_t>(state)].place == kAfter; }
  ByteSet NextBytes(State) override { return ByteSet::All(); }
  Part PartOf(State state) override {
    const Place& at = states_[static_cast<size_t>(state)];
    if (at.place != kInside) return {};
    return {.dfa = &dfa_, .state = at.inside, .is_rest = false};
  }
  Usage usage() const override { return {.bytes = 0, .full = dfa_.full()}; }

 private:
  enum Kind { kBefore, kInside, kAfter, kComma, kNowhere };
  struct Place {
    Kind place = kBefore;
    RegexDfa::State inside = 0;
    std::string text, previous;
    auto operator<=>(const Place&) const = default;
  };
  Place Step(Place at, uint8_t byte) {
    const Kind from = std::exchange(at.place, kNowhere);
    if (from == kBefore && byte == '"' && dfa_.start() != RegexDfa::kDead) {
      at.place = kInside;
      at.inside = dfa_.start();
    } else if (from == kInside) {
      at.inside = dfa_.Next(at.inside, byte);
      if (at.inside != RegexDfa::kDead) at.place = dfa_.Accepts(at.inside) ? kAfter : kInside;
      at.text += static_cast<char>(byte);
      if (at.place == kAfter) {
        if (at.text == at.previous) at.place = kNowhere;
        at.previous = std::exchange(at.text, "");
        at.inside = 0;
      }
    } else if (from == kAfter && byte == ',') {
      at.place = kComma;
    } else if (from == kComma && byte == ' ') {
      at.place = kBefore;
    }
    return at;
  }
  State Intern(const Place& at) {
    if (at.place == kNowhere) return kDead;
    const auto [known, is_new] = interned_.emplace(at, static_cast<State>(states_.size()));
    if (is_new) states_.push_back(at);
    return known->second;
  }

  RegexDfa dfa_;
  std::vector<Place> states_;
  std::map<Place, State> interned_ = {{Place{}, 0}};
  std::map<std::pair<State, uint8_t>, State> next_;
};

std::vector<uint64_t> BruteForce(const TokenTrie& tokens, Recognizer& recognizer,
                                 Recognizer::State state) {
  std::vector<uint64_t> words(tokens.words());
  for (int32_t id = 0; id < tokens.vocab_size(); ++id) {
    const std::string_view text = tokens.Text(id);
    if (text.empty() || StateAfter(recognizer, state, text) == Recognizer::kDead) continue;
    SetTokenBit(id, words);
  }
  return words;
}

std::string FirstDifference(const TokenTrie& tokens, const std::vector<uint64_t>& expected,
                            const std::vector<uint64_t>& found) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (const uint64_t both = expected[i] ^ found[i]; both != 0) {
      const auto id = static_cast<int32_t>(i * 64) + std::countr_zero(both);
      return "token " + std::to_string(id) + " '" + std::string(tokens.Text(id)) + "' is " +
             ((expected[i] & both & -both) != 0 ? "missing" : "too much");
    }
  }
  return "none";
}

class MaskWalkerTest : public ::testing::Test {
 protected:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  // Follows random tokens, and compares each mask with its definition.
  void Check(const TokenTrie& tokens, Recognizer& recognizer, int steps) {
    MaskWalker walker(tokens, recognizer, SIZE_MAX, 40 * tokens.words() * 8);
    Recognizer::State state = recognizer.start();
    for (int step = 0; step < steps && state != Recognizer::kDead; ++step) {
      std::vector<uint64_t> words(tokens.words());
      ASSERT_TRUE(walker.Mark(state, words));
      const std::vector<uint64_t> expected = BruteForce(tokens, recognizer, state);
      ASSERT_TRUE(words == expected) << FirstDifference(tokens, expected, words);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < tokens.vocab_size(); ++id) {
        if ((words[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0) allowed.push_back(id);
      }
      if (allowed.empty()) return;
      // The rare ones, too: those of rare first bytes.
      int32_t drawn = allowed[static_cast<size_t>(Draw(static_cast<int>(allowed.size())))];
      if (Draw(2) == 0) {
        const int first = Draw(256);
        for (const int32_t id : allowed) {
          if (static_cast<uint8_t>(tokens.Text(id)[0]) >= first) {
            drawn = id;
            break;
          }
        }
      }
      state = StateAfter(recognizer, state, tokens.Text(drawn));
    }
  }

  ByteRegex DrawRegex(RegexSet& set, int depth) {
    const auto part = [&] { return DrawRegex(set, depth - 1); };
    if (depth == 0) {
      switch (Draw(7)) {
        case 0:
          return JsonCharacter(set);
        case 1:
          return set.Bytes(ByteSet::Range('a', 'z'));
        case 2:
          return set.Bytes(ByteSet::Range('0', '9') | ByteSet::Range('A', 'Z'));
        case 3:
          return set.Bytes(ByteSet::All() & ~ByteSet::Of('\n'));
        case 4:
          return set.Literal(Draw(2) == 0 ? "the " : " in");
        case 5:
          return set.Bytes(ByteSet::Range(0xC2, 0xF4) | ByteSet::Range('a', 'f'));
        default:
          return set.Repeat(JsonCharacter(set), Draw(4),
                            Draw(2) == 0 ? 4 + Draw(30) : RegexSet::kUnbounded);
      }
    }
    switch (Draw(5)) {
      case 0:
        return set.Or(part(), part());
      case 1:
        return set.And(part(), set.Not(part()));
      case 2:
        return set.Repeat(part(), Draw(3), Draw(2) == 0 ? 2 + Draw(20) : RegexSet::kUnbounded);
      default:
        return set.Concat(part(), part());
    }
  }

  std::shared_ptr<const TokenTrie> Demo() {
    static const std::unique_ptr<Tokenizer> tokenizer =
        *Tokenizer::Load(std::string(std::getenv("TLM_SOURCE_DIR")) + "/model/demo/tokenizer.json");
    return TokenTrie::Build(*tokenizer, std::vector<int32_t>{0});
  }

  std::mt19937 random_{7};
};

TEST_F(MaskWalkerTest, RandomExpressionsHaveTheMasksOfTheDefinition) {
  const auto tokens = Demo();
  for (int round = 0; round < 120; ++round) {
    RegexSet set(200'000);
    const ByteRegex regex = DrawRegex(set, 1 + Draw(3));
    RegexRecognizer recognizer(std::move(set), regex, 20'000);
    ASSERT_NO_FATAL_FAILURE(Check(*tokens, recognizer, 6)) << "round " << round;
  }
}

TEST_F(MaskWalkerTest, PartsThatEndHaveTheMasksOfTheDefinition) {
  const auto tokens = Demo();
  for (int round = 0; round < 40; ++round) {
    RegexSet set(200'000);
    const ByteRegex any = set.Repeat(JsonCharacter(set), 0, RegexSet::kUnbounded);
    ByteRegex content = any;
    if (round % 4 == 1) content = set.Repeat(JsonCharacter(set), Draw(3), 3 + Draw(30));
    if (round % 4 == 2) content = set.And(any, DrawRegex(set, 2));
    if (round % 4 == 3) {
      content = set.Repeat(set.Or(set.Bytes(ByteSet::Range('a', 'z')), set.Literal("_")), 1, 20);
    }
    StringList recognizer(set, content);
    ASSERT_NO_FATAL_FAILURE(Check(*tokens, recognizer, 12)) << "round " << round;
  }
}

TEST_F(MaskWalkerTest, LargeVocabulary) {
  const auto path = OraclePath("tokenizer/qwen3/tokenizer.json");
  if (!path.has_value()) GTEST_SKIP() << "no tokenizer/qwen3";
  const auto tokenizer = *Tokenizer::Load(*path);
  const auto tokens = TokenTrie::Build(*tokenizer, std::vector<int32_t>{151643});
  for (int round = 0; round < 3; ++round) {
    RegexSet set(200'000);
    const ByteRegex character = JsonCharacter(set);
    StringList recognizer(set, set.Repeat(character, 0, round == 0 ? RegexSet::kUnbounded : 24));
    ASSERT_NO_FATAL_FAILURE(Check(*tokens, recognizer, 3));
  }
  for (int round = 0; round < 3; ++round) {
    RegexSet set(200'000);
    const ByteRegex regex = DrawRegex(set, 2);
    RegexRecognizer recognizer(std::move(set), regex, 20'000);
    ASSERT_NO_FATAL_FAILURE(Check(*tokens, recognizer, 4));
  }
}

// Tokens that go through names, ends and values, beyond what vocabularies have.
TEST_F(MaskWalkerTest, SchemasHaveTheMasksOfTheDefinition) {
  const std::vector<std::string> pieces = {"\"", "\":", "\": ", ",",  ", ", "{",  "}",  "[",
                                           "]",  "a",   "b",    "ab", "1",  "-",  ".5", "true",
                                           "\\", "n",   "é",    " ",  "\n", "x-", "z",  "\xC3"};
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 1500; ++i) {
    std::string& text = texts.emplace_back();
    for (int n = 2 + Draw(7); n > 0; --n) {
      text +=
          pieces[static_cast<size_t>(Draw(Draw(2) == 0 ? 12 : static_cast<int>(pieces.size())))];
    }
  }
  const auto tokens = TokenTrie::Build(texts, {});
  const std::vector<std::string> schemas = {
      R"({})",
      R"({"type": "object", "properties": {"a": {"type": "string"}, "ab": {"type": "integer"}}})",
      R"({"type": "object", "properties": {"ab": {}}, "additionalProperties": {"type": "string"}})",
      R"({"type": "object", "patternProperties": {"^a": {"type": "string"}, "b$": {"maxLength": 3}}})",
      R"({"type": "object", "propertyNames": {"pattern": "^[ab]{0,4}$"}, "minProperties": 2})",
      R"({"type": "object", "additionalProperties": {"enum": ["a", "ab", 1, {"b": 1}]}})",
      R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
      R"({"type": "array", "items": {"type": "object"}, "uniqueItems": true})",
      R"({"type": "object", "additionalProperties": {"type": "string", "maxLength": 4}, "maxProperties": 3})",
      R"({"type": "object", "not": {"required": ["a"]}, "dependentRequired": {"b": ["z"]}})",
      R"({"anyOf": [{"type": "object", "properties": {"a": {"const": "ab"}}, "required": ["b"]},
                    {"type": "object", "properties": {"a": {"pattern": "^b"}}, "minProperties": 1}]})",
      R"({"type": "array", "prefixItems": [{"type": "string"}, {"enum": ["a"]}], "items": false, "uniqueItems": true})",
      R"({"type": "array", "items": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}, "uniqueItems": true})",
      R"({"type": "array", "contains": {"const": "a"}, "maxItems": 3, "uniqueItems": true})",
      R"({"type": "object", "oneOf": [{"properties": {"a": {"pattern": "a"}}, "required": ["b"]},
                                      {"properties": {"a": {"pattern": "b"}}, "minProperties": 2}]})",
      R"({"type": "object", "properties": {"a": {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}}})",
  };
  for (const std::string& schema : schemas) {
    for (const bool any_order : {false, true}) {
      Budget budget(absl::InfiniteDuration(), nullptr);
      auto recognizer = CompileJsonSchema(schema, {.any_property_order = any_order},
                                          {.max_states = 5'000'000}, budget);
      ASSERT_TRUE(recognizer.ok()) << schema << recognizer.status();
      for (int round = 0; round < 2; ++round) {
        ASSERT_NO_FATAL_FAILURE(Check(*tokens, **recognizer, 12)) << schema;
      }
    }
  }
}

TEST_F(MaskWalkerTest, EndsAtTheLimit) {
  const auto tokens = Demo();
  RegexSet set(200'000);
  const ByteRegex regex = set.Repeat(JsonCharacter(set), 0, 1000);
  RegexRecognizer recognizer(std::move(set), regex, 20'000);
  MaskWalker walker(*tokens, recognizer, 1, size_t{1} << 20);
  std::vector<uint64_t> words(tokens->words());
  EXPECT_FALSE(walker.Mark(recognizer.start(), words));
  EXPECT_TRUE(walker.Exhausted());
}

}  // namespace
}  // namespace tlm
