#include "model/constraint/structural_tag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "model/constraint/earley.h"
#include "model/constraint/regex_recognizer.h"

namespace tlm {
namespace {

using Kind = ConstraintSpec::Kind;
using Regions = std::vector<ConstraintSpec::Region>;

// Contents are grammars, except of kRegex: choices, divided by |.
absl::StatusOr<RecognizerFactory> CompileContent(const ConstraintSpec::Region& region) {
  if (region.kind == Kind::kGrammar) {
    Budget budget(absl::Seconds(60), nullptr);
    return CompileGrammar(region.content, {}, budget);
  }
  std::vector<std::string> choices = {""};
  for (const char c : region.content) {
    if (c == '|') {
      choices.emplace_back();
    } else {
      choices.back() += c;
    }
  }
  return [choices] { return *CompileChoices(choices, {}); };
}

absl::StatusOr<std::unique_ptr<Recognizer>> Compile(const Regions& regions,
                                                    const std::vector<std::string>& triggers) {
  ConstraintSpec spec;
  spec.regions = regions;
  spec.triggers = triggers;
  auto tag = StructuralTag::Compile(spec, {}, CompileContent);
  if (!tag.ok()) return tag.status();
  return std::make_unique<StructuralTagRecognizer>(*std::move(tag), ConstraintLimits());
}

struct Verdict {
  bool whole = false, alive = false;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};
std::ostream& operator<<(std::ostream& out, const Verdict& verdict) {
  return out << (verdict.whole ? "whole" : verdict.alive ? "a beginning" : "neither");
}

Verdict Read(Recognizer& recognizer, std::string_view text) {
  Recognizer::State state = recognizer.start();
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_next = recognizer.NextBytes(state).Has(byte);
    const Recognizer::Part part = recognizer.PartOf(state);
    state = recognizer.Next(state, byte);
    EXPECT_TRUE(is_next || state == Recognizer::kDead);
    if (part.dfa != nullptr) {
      const RegexDfa::State inside = part.dfa->Next(part.state, byte);
      if (!part.dfa->Accepts(inside)) {
        EXPECT_EQ(inside == RegexDfa::kDead, state == Recognizer::kDead);
        if (inside != RegexDfa::kDead) {
          EXPECT_EQ(recognizer.PartOf(state).dfa, part.dfa);
        }
      }
    }
    if (state == Recognizer::kDead) return {};
  }
  return {.whole = recognizer.Accepts(state), .alive = true};
}

// By definition, for texts of ASCII and contents that are lists.
struct Definition {
  struct Region {
    std::string begin;
    std::set<std::string> contents;
    std::string end;
  };
  std::vector<Region> regions;
  std::vector<std::string> triggers;

  // Of a rest that begins with free text.
  Verdict Read(std::string_view text) const {
    for (size_t end = 1; end <= text.size(); ++end) {
      for (const std::string& trigger : triggers) {
        if (!text.substr(0, end).ends_with(trigger)) continue;
        Verdict verdict;
        for (const Region& region : regions) {
          if (!region.begin.starts_with(trigger)) continue;
          Add(ReadRegion(text.substr(end - trigger.size()), region), verdict);
        }
        return verdict;
      }
    }
    return {.whole = true, .alive = true};
  }
  Verdict ReadRegion(std::string_view text, const Region& region) const {
    Verdict verdict;
    for (const std::string& content : region.contents) {
      const std::string all = region.begin + content + region.end;
      if (all.starts_with(text) && all.size() > text.size()) verdict.alive = true;
      if (text.starts_with(all)) Add(Read(text.substr(all.size())), verdict);
    }
    return verdict;
  }
  static void Add(const Verdict& other, Verdict& verdict) {
    verdict.whole |= other.whole;
    verdict.alive |= other.alive;
  }
};

TEST(StructuralTagTest, HoldsWhatTheDefinitionSays) {
  std::mt19937 random(17);
  const std::string letters = "a<>";
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 7; ++i) {
    for (const char letter : letters) texts.push_back(texts[i] + letter);
  }
  const auto draw = [&](size_t min, size_t max) {
    std::string text;
    const size_t length = min + random() % (max - min + 1);
    while (text.size() < length) text += letters[random() % letters.size()];
    return text;
  };
  int compiled = 0;
  for (int round = 0; round < 300; ++round) {
    Definition definition;
    Regions regions;
    for (size_t i = 1 + random() % 2; i > 0; --i) definition.triggers.push_back(draw(1, 3));
    for (const std::string& trigger : definition.triggers) {
      for (size_t i = 1 + random() % 2; i > 0; --i) {
        Definition::Region region = {trigger + draw(0, 1), {}, draw(0, 2)};
        std::string list, grammar = "root ::= ";
        for (size_t j = 1 + random() % 3; j > 0; --j) {
          const std::string content = draw(0, 2);
          list += (region.contents.empty() ? "" : "|") + content;
          // In a call, or not.
          grammar += (region.contents.empty() ? "" : " | ") + ("\"" + content) + "\"" +
                     (random() % 2 == 0 ? " e" : "");
          region.contents.insert(content);
        }
        if (random() % 2 == 0) {
          regions.push_back({region.begin, Kind::kRegex, list, region.end});
        } else {
          grammar += "\ne ::= \"\" | e e";
          regions.push_back({region.begin, Kind::kGrammar, grammar, region.end});
        }
        definition.regions.push_back(region);
      }
    }
    const auto recognizer = Compile(regions, definition.triggers);
    if (!recognizer.ok()) {
      EXPECT_EQ(definition.triggers.size(), 2u) << recognizer.status();  // one contains the other
      continue;
    }
    ++compiled;
    for (const std::string& text : texts) {
      ASSERT_EQ(Read(**recognizer, text), definition.Read(text)) << round << ": " << text;
    }
    ASSERT_FALSE((*recognizer)->full());
  }
  EXPECT_GT(compiled, 150);
}

TEST(StructuralTagTest, TakesCallsOfTools) {
  const auto recognizer =
      Compile({{"<tool>", Kind::kGrammar, "root ::= \"[\" root? \"]\" \" \"*", "</tool>"},
               {"<tool_call>f(", Kind::kRegex, "1|12|2)", ")"},
               {"<tool_call>g(", Kind::kGrammar, "root ::= [^<]*", "</g>"}},
              {"<tool>", "<tool_call>"});
  ASSERT_TRUE(recognizer.ok()) << recognizer.status();
  const auto verdict = [&](std::string_view text) { return Read(**recognizer, text); };
  for (const std::string_view text : {"", "a < b", "<tool_cal", "<<tool", "<tool>[]</tool>",
                                      "x<tool>[[]]  </tool><tool_call>f(12)<too<tool_call>f(2))y",
                                      "<tool_call>g(\xc3\xa4</g>\n"}) {
    EXPECT_TRUE(verdict(text).whole) << text;
  }
  for (const std::string_view text :
       {"<tool>", "<tool>[", "<tool>[]</tool", "<tool_call>", "<tool_call>f(12", "\xc3",
        "a\xe2\x82", "<tool_call>g(\xc3"}) {
    EXPECT_EQ(verdict(text), (Verdict{.alive = true})) << text;
  }
  for (const std::string_view text :
       {"<tool>a", "<tool>[]x", "<tool_call>h", "<tool_call>f(3", "\xff", "\xc3 ", "\xed\xa0",
        "<tool>[]</tool>\x80", "<tool_call>g(</h"}) {
    EXPECT_FALSE(verdict(text).alive) << text;
  }
}

TEST(StructuralTagTest, FreeTextIsOnePart) {
  const auto recognizer = Compile(
      {{"<a>", Kind::kRegex, "x", "</a>"}, {"<b>", Kind::kGrammar, "root ::= \"xy\"", "</b>"}},
      {"<a>", "<b>"});
  ASSERT_TRUE(recognizer.ok());
  const auto state = [&](std::string_view text) {
    Recognizer::State at = (*recognizer)->start();
    for (const char byte : text) at = (*recognizer)->Next(at, static_cast<uint8_t>(byte));
    return at;
  };
  EXPECT_EQ(state("some text"), state(""));
  EXPECT_EQ(state("<a>x</a>"), state(""));
  EXPECT_NE(state("<"), state(""));
  EXPECT_NE((*recognizer)->PartOf(state("a<")).dfa, nullptr);
  // A content's part is one here, too; a begin is none.
  EXPECT_NE((*recognizer)->PartOf(state("<b>x")).dfa, nullptr);
  EXPECT_NE((*recognizer)->PartOf(state("<b>x")).dfa, (*recognizer)->PartOf(state("")).dfa);
  EXPECT_EQ((*recognizer)->PartOf(state("<b>xy<")).dfa, nullptr);
}

TEST(StructuralTagTest, RefusesWhatIsMalformed) {
  const struct {
    Regions regions;
    std::vector<std::string> triggers;
    std::string_view message;
  } cases[] = {
      {{{"<a>", Kind::kRegex, "x", "b"}}, {}, "no trigger is given"},
      {{}, {"<a"}, "no region is given"},
      {{{"<a>", Kind::kRegex, "x", "b"}}, {""}, "triggers[0] is empty"},
      {{{"", Kind::kRegex, "x", "b"}}, {"<a"}, "regions[0].begin begins with no trigger: ''"},
      {{{"<a>", Kind::kRegex, "x", "b"}, {"<b>", Kind::kRegex, "x", "b"}},
       {"<a"},
       "regions[1].begin begins with no trigger: '<b>'"},
      {{{"<a>", Kind::kRegex, "x", "b"}},
       {"<a>", "<b>"},
       "no region begins with triggers[1], '<b>'"},
      {{{"<a>", Kind::kRegex, "x", "b"}}, {"<a>", "a"}, "triggers[0] contains triggers[1], 'a'"},
      {{{"<a>", Kind::kRegex, "x", "b"}},
       {"<a>", "<a>"},
       "triggers[0] contains triggers[1], '<a>'"},
      {{{"<a>", Kind::kRegex, "x", "\xff"}}, {"<"}, "regions[0] is not UTF-8"},
      {{{"\xc3\xa4", Kind::kRegex, "x", ""}}, {"\xc3"}, "triggers[0] is not UTF-8"},
      {{{"<a>", Kind::kGrammar, "root ::=\n b", ""}},
       {"<a>"},
       "regions[0].grammar: line 2, column 2: rule \"b\" is not defined"},
  };
  for (const auto& [regions, triggers, message] : cases) {
    const absl::Status status = Compile(regions, triggers).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_EQ(std::string(status.message()), message);
  }
}

TEST(StructuralTagTest, RefusesWhatIsOverLimits) {
  const auto code = [](const Regions& regions, const std::vector<std::string>& triggers) {
    return Compile(regions, triggers).status().code();
  };
  const ConstraintSpec::Region region = {"<a>", Kind::kRegex, "x", ""};
  EXPECT_EQ(code(Regions(1025, region), {"<a>"}), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({region}, std::vector<std::string>(129, "<a>")),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({region}, {std::string(257, '<')}), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tlm
