#include "model/constraint/flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/constraint/grammar/earley.h"
#include "tests/support/recognizer_walk.h"
#include "tests/unit/model/constraint/flow_definition.h"

namespace tlm {
namespace {

using Grammar = ConstraintSpec::Grammar;
using Nothing = ConstraintSpec::Nothing;
using Regex = ConstraintSpec::Regex;
using Edges = std::vector<ConstraintSpec::Edge>;

// Compiles grammars, and regexes as choices divided by |.
absl::StatusOr<RecognizerFactory> CompileContent(const ConstraintSpec::Content& content) {
  if (std::holds_alternative<Grammar>(content)) {
    Budget budget(absl::Seconds(60), nullptr);
    return CompileGrammar(TextOf(content), {}, budget);
  }
  std::vector<std::string> choices = {""};
  for (const char c : TextOf(content)) {
    if (c == '|') {
      choices.emplace_back();
    } else {
      choices.back() += c;
    }
  }
  return [choices] { return *CompileChoices(choices, {}); };
}

absl::StatusOr<std::unique_ptr<FlowRecognizer>> Compile(const ConstraintSpec::Flow& spec) {
  auto flow = Flow::Compile(spec, {}, CompileContent);
  if (!flow.ok()) return flow.status();
  return std::make_unique<FlowRecognizer>(*std::move(flow), ConstraintLimits());
}

ConstraintSpec::Flow Spec(std::vector<ConstraintSpec::Node> nodes) {
  return {.nodes = std::move(nodes), .token_budget = {}};
}

// One node, to which its edges lead back.
ConstraintSpec::Flow Tag(const Edges& edges, const std::vector<std::string>& triggers) {
  return Spec({{.is_free = true, .may_end = true, .triggers = triggers, .edges = edges}});
}

// StateAfter, and what the recognizer says of each byte and of parts agrees with it.
Recognizer::State CheckedStateAfter(Recognizer& recognizer, Recognizer::State state,
                                    std::string_view text) {
  for (const char c : text) {
    if (state == Recognizer::kDead) return state;
    const auto byte = static_cast<uint8_t>(c);
    const bool is_next = recognizer.NextBytes(state).Has(byte);
    const Recognizer::Part part = recognizer.PartOf(state);
    state = recognizer.Next(state, byte);
    EXPECT_TRUE(is_next || state == Recognizer::kDead);
    if (part.dfa == nullptr) continue;
    const RegexDfa::State inside = part.dfa->Next(part.state, byte);
    if (part.dfa->Accepts(inside)) continue;
    EXPECT_EQ(inside == RegexDfa::kDead, state == Recognizer::kDead);
    if (inside != RegexDfa::kDead) {
      EXPECT_EQ(recognizer.PartOf(state).dfa, part.dfa);
    }
  }
  return state;
}

Verdict Read(Recognizer& recognizer, std::string_view text) {
  return VerdictOf(recognizer, CheckedStateAfter(recognizer, recognizer.start(), text));
}

class RandomFlowTest : public ::testing::Test {
 protected:
  static constexpr std::string_view kLetters = "a<>\xFF";

  size_t Draw(size_t below) { return random_() % below; }
  std::string DrawText(size_t min, size_t max, bool marks) {
    std::string text;
    const size_t length = min + Draw(max - min + 1);
    while (text.size() < length) {
      const char letter = kLetters[Draw(kLetters.size() - (marks ? 0 : 1))];
      // Behind a mark there is a text.
      const bool is_last = text.size() + 1 == length || (!text.empty() && text.back() == '\xFF');
      if (letter != '\xFF' || !is_last) text += letter;
    }
    return text;
  }
  FlowDefinition::Edge DrawEdge(std::string begin, size_t nodes, ConstraintSpec::Node& node) {
    FlowDefinition::Edge edge = {std::move(begin), {}, DrawText(0, 2, true), Draw(nodes)};
    ConstraintSpec::Edge& spec = node.edges.emplace_back();
    spec.begin = edge.begin;
    spec.end = edge.end;
    spec.target = static_cast<int32_t>(edge.target);
    if (Draw(3) == 0) {
      spec.content = Nothing{};
      edge.contents = {""};
      return edge;
    }
    std::string list, grammar = "root ::= ";
    for (size_t i = 1 + Draw(3); i > 0; --i) {
      const std::string content = DrawText(0, 2, false);
      list += (edge.contents.empty() ? "" : "|") + content;
      // In a call, or not.
      grammar += (edge.contents.empty() ? "" : " | ") + ("\"" + content) + "\"" +
                 (Draw(2) == 0 ? " e" : "");
      edge.contents.insert(content);
    }
    if (Draw(2) == 0) {
      spec.content = Regex{list};
    } else {
      spec.content = Grammar{grammar + "\ne ::= \"\" | e e"};
    }
    return edge;
  }
  FlowDefinition::Node DrawNode(size_t nodes) {
    FlowDefinition::Node node;
    node.spec.is_free = Draw(3) > 0;
    node.spec.may_end = Draw(3) > 0;
    std::vector<std::string> begins;
    if (node.spec.is_free) {
      for (size_t i = Draw(3); i > 0; --i) node.spec.triggers.push_back(DrawText(1, 3, true));
      for (size_t i = Draw(2); i > 0; --i) node.spec.leads.push_back(DrawText(1, 3, true));
      for (const auto* markers : {&node.spec.triggers, &node.spec.leads}) {
        for (const std::string& marker : *markers) {
          for (size_t i = Draw(3); i > 0; --i) begins.push_back(marker + DrawText(0, 1, false));
        }
      }
      node.spec.is_budgeted = Draw(2) == 0;
      if (node.spec.is_budgeted && begins.empty()) begins.push_back(DrawText(1, 3, true));
    } else {
      for (size_t i = Draw(3); i > 0; --i) begins.push_back(DrawText(0, 2, true));
    }
    for (std::string& begin : begins) {
      node.edges.push_back(DrawEdge(std::move(begin), nodes, node.spec));
    }
    if (node.spec.is_budgeted) node.spec.closing = static_cast<int32_t>(Draw(node.edges.size()));
    return node;
  }
  FlowDefinition DrawFlow() {
    FlowDefinition definition;
    const size_t nodes = 1 + Draw(3);
    while (definition.nodes.size() < nodes) definition.nodes.push_back(DrawNode(nodes));
    return definition;
  }
  static ConstraintSpec::Flow SpecOf(const FlowDefinition& definition) {
    ConstraintSpec::Flow spec = Spec({});
    for (const FlowDefinition::Node& node : definition.nodes) spec.nodes.push_back(node.spec);
    spec.token_budget = 0;
    return spec;
  }
  static std::vector<std::string> Texts(size_t length) {
    std::vector<std::string> texts = {""};
    for (size_t i = 0; texts[i].size() < length; ++i) {
      for (const char letter : kLetters) texts.push_back(texts[i] + letter);
    }
    return texts;
  }

  std::mt19937 random_{17};
};

TEST_F(RandomFlowTest, HoldsWhatTheDefinitionSays) {
  const std::vector<std::string> texts = Texts(5);
  int compiled = 0, whole = 0, dead = 0;
  for (int round = 0; round < 600; ++round) {
    FlowDefinition definition = DrawFlow();
    const auto recognizer = Compile(SpecOf(definition));
    if (!recognizer.ok()) {
      EXPECT_TRUE(recognizer.status().message().find(" contains ") != std::string::npos ||
                  !definition.AllEnd())
          << recognizer.status();
      continue;
    }
    if (!definition.AllEnd()) continue;
    ++compiled;
    for (const std::string& text : texts) {
      const Verdict verdict = definition.Read(text);
      ASSERT_EQ(Read(**recognizer, text), verdict) << round << ": " << text;
      whole += verdict.whole;
      dead += !verdict.alive;
    }
    ASSERT_FALSE((*recognizer)->full());
  }
  EXPECT_GT(compiled, 200);
  EXPECT_GT(whole, 5000);
  EXPECT_GT(dead, 10'000);
}

// Close() behind some of the text.
TEST_F(RandomFlowTest, ClosesFreeTextAsTheDefinitionSays) {
  const std::vector<std::string> texts = Texts(5);
  int closed = 0;
  for (int round = 0; round < 400; ++round) {
    FlowDefinition definition = DrawFlow();
    const auto recognizer = Compile(SpecOf(definition));
    if (!recognizer.ok() || !definition.AllEnd()) continue;
    FlowRecognizer& flow = **recognizer;
    for (const std::string& text : texts) {
      const size_t at = text.size() / 2;
      Recognizer::State state =
          CheckedStateAfter(flow, flow.start(), std::string_view(text).substr(0, at));
      if (state == Recognizer::kDead) continue;
      closed += flow.CountsTokens(state);
      state = flow.Close(state);
      EXPECT_EQ(flow.Close(state), state);
      state = CheckedStateAfter(flow, state, std::string_view(text).substr(at));
      ASSERT_EQ(VerdictOf(flow, state), definition.Read(text, at))
          << round << ": " << text << " at " << at;
    }
  }
  EXPECT_GT(closed, 10'000);
}

TEST(FlowTest, ClosesBehindTheCharacter) {
  ConstraintSpec::Flow spec = Spec({{.is_free = true,
                                     .may_end = false,
                                     .triggers = {"</t>", "\xc3\xa9", "\xFF<s>x"},
                                     .edges = {{"</t>", Nothing{}, "", 1},
                                               {"\xc3\xa9", Nothing{}, "", 1},
                                               {"\xFF<s>xy", Nothing{}, "", 1},
                                               {"\n</t>", Nothing{}, "", 1}},
                                     .is_budgeted = true,
                                     .closing = 3},
                                    {.is_free = false, .may_end = true}});
  spec.token_budget = 3;
  const auto recognizer = Compile(spec);
  ASSERT_TRUE(recognizer.ok()) << recognizer.status();
  FlowRecognizer& flow = **recognizer;
  const auto verdict = [&](std::string_view before, std::string_view behind) {
    const Recognizer::State state = CheckedStateAfter(flow, flow.start(), before);
    EXPECT_TRUE(flow.CountsTokens(state)) << before;
    EXPECT_FALSE(flow.CountsTokens(flow.Close(state)));
    return VerdictOf(flow, CheckedStateAfter(flow, flow.Close(state), behind));
  };
  const Verdict whole = {true, true}, begun = {false, true}, dead = {};
  EXPECT_EQ(verdict("", "\n</t>"), whole);
  EXPECT_EQ(verdict("ab</", "\n</t"), begun);
  EXPECT_EQ(verdict("ab</", "t>"), dead);
  EXPECT_EQ(verdict("ab\xe2\x82", "\xac\n</t>"), whole);
  EXPECT_EQ(verdict("ab\xe2\x82", "\n"), dead);
  EXPECT_EQ(verdict("ab\xe2\x82",
                    "\xac"
                    "a"),
            dead);
  // What has begun and is no text is brought to its end.
  EXPECT_EQ(verdict("ab\xc3", "\xa9"), whole);
  EXPECT_EQ(verdict("ab\xFF<s>", "xy"), whole);
  EXPECT_EQ(verdict("ab\xFF<s>", "\n"), dead);
  // Without a budget it is an edge that nothing leads to.
  spec.token_budget.reset();
  const auto unlimited = Compile(spec);
  ASSERT_TRUE(unlimited.ok());
  EXPECT_FALSE((*unlimited)->CountsTokens((*unlimited)->start()));
  EXPECT_EQ(Read(**unlimited, "\n</t>"), whole);
}

TEST(FlowTest, TakesCallsOfTools) {
  const auto recognizer =
      Compile(Tag({{"<tool>", Grammar{"root ::= \"[\" root? \"]\" \" \"*"}, "</tool>"},
                   {"<tool_call>f(", Regex{"1|12|2)"}, ")"},
                   {"<tool_call>g(", Grammar{"root ::= [^<]*"}, "</g>"}},
                  {"<tool>", "<tool_call>"}));
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
        "\xfe", "<tool>[]</tool>\x80", "<tool_call>g(</h"}) {
    EXPECT_FALSE(verdict(text).alive) << text;
  }
}

// Reasoning, then a text or calls in special tokens.
TEST(FlowTest, TakesChannels) {
  const Edges calls = {{"\xFF<call>f\n", Regex{"1|2"}, "\xFF<end>", 1}};
  const auto recognizer =
      Compile(Spec({{.is_free = true,
                     .may_end = true,
                     .triggers = {"\xFF<call>", "</think>"},
                     .leads = {"<think>"},
                     .edges = {calls[0], {"<think>", Regex{"a|b"}, "</think>", 1}}},
                    {.is_free = true,
                     .may_end = true,
                     .triggers = {"\xFF<call>", "<think>", "</think>"},
                     .edges = calls}}));
  ASSERT_TRUE(recognizer.ok()) << recognizer.status();
  const auto verdict = [&](std::string_view text) { return Read(**recognizer, text); };
  for (const std::string_view text :
       {"", "t", "<think>a</think>", "<think>b</think>t", "<call\xFF<call>f\n1\xFF<end>",
        "<think>b</think>\xFF<call>f\n1\xFF<end>\xFF<call>f\n2\xFF<end>t", "t<think>b</think>t"}) {
    EXPECT_EQ(verdict(text).whole, text != "t<think>b</think>t") << text;
  }
  for (const std::string_view text :
       {"t</think>", "<think>a</think><think>", "<call>", "t<call>", "\xFF<end>", "\xFF<b", "\xFF ",
        "\xFF<call>f\n1<end>", "\xFF\xFF", "\xc3\xFF"}) {
    EXPECT_FALSE(verdict(text).alive) << text;
  }
  EXPECT_EQ(verdict("\xFF<cal"), (Verdict{.alive = true}));
}

TEST(FlowTest, MarkersHaveAnyByte) {
  using std::string_literals::operator""s;
  for (const char byte : {'\0', '\n', '\x7f'}) {
    const std::string trigger = "<"s + byte + "<" + byte + byte;
    const auto recognizer = Compile(Tag({{trigger, Regex{"x"}, "</a>"}}, {trigger}));
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    const Verdict whole = {true, true}, begun = {false, true}, dead = {};
    EXPECT_EQ(Read(**recognizer, trigger.substr(0, 4) + "a<" + byte), whole);
    // An end of what was read so far begins again.
    EXPECT_EQ(Read(**recognizer, trigger.substr(0, 3) + trigger.substr(1)), begun);
    EXPECT_EQ(Read(**recognizer, trigger.substr(0, 3) + trigger.substr(1) + "x</a>"), whole);
    EXPECT_EQ(Read(**recognizer, "a" + trigger + "a"), dead);
  }
}

TEST(FlowTest, FreeTextIsOnePart) {
  const auto recognizer = Compile(Tag(
      {{"<a>", Regex{"x"}, "</a>"}, {"<b>", Grammar{"root ::= \"xy\""}, "</b>"}}, {"<a>", "<b>"}));
  ASSERT_TRUE(recognizer.ok());
  const auto state = [&](std::string_view text) {
    return CheckedStateAfter(**recognizer, (*recognizer)->start(), text);
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

TEST(FlowTest, RefusesWhatIsMalformed) {
  const ConstraintSpec::Edge edge = {"<a>", Regex{"x"}, "b"};
  const auto other = [&](auto change) {
    ConstraintSpec::Flow spec = Tag({edge}, {"<a"});
    change(spec);
    return spec;
  };
  const struct {
    ConstraintSpec::Flow spec;
    std::string_view message;
  } cases[] = {
      {Spec({}), "no node is given"},
      {Tag({edge}, {}), "nodes[0].edges[0].begin begins with no trigger: '<a>'"},
      {Tag({edge}, {""}), "nodes[0].triggers[0] is empty"},
      {other([](auto& spec) {
         spec.nodes[0].leads = {"a", ""};
       }),
       "nodes[0].leads[1] is empty"},
      {Tag({{"", Regex{"x"}, "b"}}, {"<a"}), "nodes[0].edges[0].begin begins with no trigger: ''"},
      {Tag({edge, {"<b>", Regex{"x"}, "b"}}, {"<a"}),
       "nodes[0].edges[1].begin begins with no trigger: '<b>'"},
      {Tag({edge}, {"<a>", "a"}), "nodes[0].triggers[0] contains triggers[1], 'a'"},
      {Tag({edge}, {"<a>", "<a>"}), "nodes[0].triggers[0] contains triggers[1], '<a>'"},
      {Tag({{"<a>", Regex{"x"}, "\xfe"}}, {"<"}), "nodes[0].edges[0] is not UTF-8"},
      {Tag({{"<a>", Regex{"x"}, "x\xFF"}}, {"<"}), "nodes[0].edges[0] is not UTF-8"},
      {Tag({{"\xc3\xa4", Regex{"x"}, ""}}, {"\xc3"}), "nodes[0].triggers[0] is not UTF-8"},
      {Tag({{"<a>", Grammar{"root ::=\n b"}, ""}}, {"<a>"}),
       "nodes[0].edges[0].grammar: line 2, column 2: rule \"b\" is not defined"},
      {other([](auto& spec) { spec.nodes[0].edges[0].target = 1; }),
       "nodes[0].edges[0].target is 1, it must be in [0, 1)"},
      {other([](auto& spec) { spec.nodes[0].is_free = false; }),
       "nodes[0] is not free, but has triggers, leads or a budget"},
      {other([](auto& spec) { spec.nodes[0].is_budgeted = true; }),
       "nodes[0].closing is -1, it must be in [0, 1)"},
      {other([](auto& spec) { spec.token_budget = -1; }),
       "token_budget is -1, it must not be negative"},
      {other([](auto& spec) { spec.nodes[0].may_end = false; }), "nodes[0] leads to no end"},
      {Spec({{.is_free = true, .may_end = true}, {.is_free = true, .triggers = {"x"}}}),
       "nodes[1] leads to no end"},
  };
  for (const auto& [spec, message] : cases) {
    const absl::Status status = Compile(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_EQ(std::string(status.message()), message);
  }
}

TEST(FlowTest, RefusesWhatIsOverLimits) {
  const auto code = [](const ConstraintSpec::Flow& spec) { return Compile(spec).status().code(); };
  const ConstraintSpec::Edge edge = {"<a>", Regex{"x"}, ""};
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(code(Tag(Edges(1024, edge), {"<a>"})), absl::StatusCode::kOk);
  EXPECT_EQ(code(Tag(Edges(1025, edge), {"<a>"})), exhausted);
  EXPECT_EQ(code(Tag({edge}, std::vector<std::string>(129, "<a>"))), exhausted);
  EXPECT_EQ(code(Tag({edge}, {std::string(257, '<')})), exhausted);
  EXPECT_EQ(code(Spec(std::vector<ConstraintSpec::Node>(65, {.may_end = true}))), exhausted);
  const std::vector<std::string> leads(64, std::string(256, 'x'));
  EXPECT_EQ(code(Spec({{.is_free = true, .may_end = true, .leads = leads}})),
            absl::StatusCode::kOk);
  EXPECT_EQ(code(Spec({{.is_free = true, .may_end = true, .triggers = {"y"}, .leads = leads}})),
            exhausted);
}

}  // namespace
}  // namespace tlm
