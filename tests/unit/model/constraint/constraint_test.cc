#include "model/constraint/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "model/constraint/flow.h"
#include "model/constraint/grammar/earley.h"
#include "model/constraint/mask/token_trie.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/recognizer_walk.h"

namespace tlm {
namespace {

class ConstraintTest : public ::testing::Test {
 protected:
  static const Tokenizer& Demo() {
    static const std::unique_ptr<Tokenizer> tokenizer =
        *Tokenizer::Load(std::string(std::getenv("TLM_SOURCE_DIR")) + "/model/demo/tokenizer.json");
    return *tokenizer;
  }
  static std::shared_ptr<const TokenTrie> Tokens() {
    static const auto tokens = TokenTrie::Build(Demo(), std::vector<int32_t>{0});
    return tokens;
  }
  static ConstraintSpec Regex(std::string text) {
    return {.language = ConstraintSpec::Regex{std::move(text)}, .json = {}};
  }
  static ConstraintSpec Choices(std::vector<std::string> choices) {
    return {.language = ConstraintSpec::Choices{std::move(choices)}, .json = {}};
  }
  static std::shared_ptr<Constraint> Compile(const ConstraintSpec& spec,
                                             ConstraintLimits limits = {}) {
    limits.max_compile_time = absl::Minutes(1);  // sanitizers take longer
    auto constraint = Constraint::Compile(spec, Tokens(), limits, nullptr);
    EXPECT_TRUE(constraint.ok()) << constraint.status();
    return *constraint;
  }

  static std::vector<int32_t> Ids(const ConstraintMatcher::Allowed& allowed) {
    std::vector<int32_t> ids;
    for (size_t id = 0; id < allowed.tokens.size() * 64; ++id) {
      if ((allowed.tokens[id / 64] >> (id % 64) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }
  // What Next() says, to be compared.
  static std::string Describe(const ConstraintMatcher::Allowed& allowed) {
    std::string result = allowed.no_token ? "none" : "some";
    result += allowed.may_end ? " whole" : " part";
    result += " forced " + (allowed.forced.has_value() ? std::to_string(*allowed.forced) : "no");
    for (const int32_t id : Ids(allowed)) result += " " + std::to_string(id);
    return result;
  }
  int32_t DrawOf(const std::vector<int32_t>& ids) { return ids[random_() % ids.size()]; }

  std::mt19937 random_{11};
};

TEST_F(ConstraintTest, ChoicesAllowTheirTextsAndNoOthers) {
  const std::vector<std::string> choices = {"the time", "the tim", "a", "été", "the door\n"};
  const auto constraint = Compile(Choices(choices));
  for (int round = 0; round < 200; ++round) {
    ConstraintMatcher matcher(constraint);
    std::string text;
    while (true) {
      const ConstraintMatcher::Allowed allowed = matcher.Next();
      const std::vector<int32_t> ids = Ids(allowed);
      EXPECT_EQ(allowed.no_token, ids.empty());
      EXPECT_EQ(allowed.may_end, std::count(choices.begin(), choices.end(), text) > 0);
      for (int32_t id = 0; id < Tokens()->vocab_size(); ++id) {
        const std::string longer = text + std::string(Tokens()->Text(id));
        const bool expected =
            longer.size() > text.size() &&
            std::any_of(choices.begin(), choices.end(), [&](const std::string& choice) {
              return choice.substr(0, longer.size()) == longer;
            });
        EXPECT_EQ(std::count(ids.begin(), ids.end(), id) > 0, expected) << longer;
      }
      if (ids.empty()) break;
      const int32_t id = DrawOf(ids);
      ASSERT_TRUE(matcher.Accept(id));
      text += Tokens()->Text(id);
    }
    EXPECT_NE(std::count(choices.begin(), choices.end(), text), 0) << text;
  }
}

// Masks against recognizers that read each token byte by byte.
class MaskTest : public ConstraintTest {
 protected:
  static RecognizerFactory Grammar(std::string_view gbnf) {
    Budget budget(absl::InfiniteDuration(), nullptr);
    return *CompileGrammar(gbnf, {}, budget);
  }
  static std::vector<int32_t> Plainly(Recognizer& recognizer, Recognizer::State from) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < Tokens()->vocab_size(); ++id) {
      const std::string_view text = Tokens()->Text(id);
      if (!text.empty() && StateAfter(recognizer, from, text) != Recognizer::kDead)
        ids.push_back(id);
    }
    return ids;
  }
  // Draws texts and compares on the way.
  void Check(const ConstraintSpec& spec, Recognizer& recognizer) {
    const auto constraint = Compile(spec);
    for (int round = 0; round < 20; ++round) {
      ConstraintMatcher matcher(constraint);
      Recognizer::State state = recognizer.start();
      for (int i = 0; i < 20; ++i) {
        const ConstraintMatcher::Allowed allowed = matcher.Next();
        const std::vector<int32_t> ids = Ids(allowed);
        ASSERT_EQ(ids, Plainly(recognizer, state));
        ASSERT_EQ(allowed.may_end, recognizer.Accepts(state));
        ASSERT_EQ(allowed.no_token, ids.empty());
        ASSERT_TRUE(allowed.may_end || !allowed.no_token);
        if (ids.empty()) break;
        // Short tokens lead deeper.
        int32_t id = DrawOf(ids);
        for (int j = 0; j < 8; ++j) {
          const int32_t other = DrawOf(ids);
          if (Tokens()->Text(other).size() < Tokens()->Text(id).size()) id = other;
        }
        ASSERT_TRUE(matcher.Accept(id));
        state = StateAfter(recognizer, state, Tokens()->Text(id));
      }
    }
  }
};

TEST_F(MaskTest, OfGrammars) {
  for (const std::string_view gbnf :
       {"root ::= \"(\" root \")\" | \"b\"", "root ::= e\ne ::= e [+*] e | \"(\" e \")\" | [0-9]+",
        "root ::= v\nv ::= \"[\" w (v (\",\" w v)*)? w \"]\" | s | \"null\"\n"
        "s ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"n])* \"\\\"\"\nw ::= [ \\n]{0,2}",
        "root ::= line*\nline ::= word (\" \" word)* \"\\n\"\nword ::= [a-zA-Z]{1,9}",
        "root ::= \"the \" root | \"a \" root \"b\" | [^a]"}) {
    SCOPED_TRACE(gbnf);
    const ConstraintSpec spec = {.language = ConstraintSpec::Grammar{std::string(gbnf)},
                                 .json = {}};
    Check(spec, *Grammar(gbnf)());
  }
}

TEST_F(MaskTest, OfFlows) {
  using Nothing = ConstraintSpec::Nothing;
  ConstraintSpec::Flow spec;
  spec.nodes = {
      {.is_free = true,
       .may_end = true,
       .triggers = {"e", "<t"},
       .edges = {{"ex", ConstraintSpec::Grammar{"root ::= \"(\" root \")\" | \"b\"*"}},
                 {"e ", ConstraintSpec::Grammar{"root ::= [a-z ]*"}, "\n"},
                 {"<t>", ConstraintSpec::Grammar{"root ::= . ."}, "th", 1}}},
      {.may_end = true,
       .edges = {{"", ConstraintSpec::Grammar{"root ::= [0-9]+ \"e\"?"}}, {"e", Nothing{}, "a"}}}};
  const auto flow = Flow::Compile(
      spec, {}, [](const auto& content) { return Grammar(std::string(TextOf(content))); });
  ASSERT_TRUE(flow.ok()) << flow.status();
  FlowRecognizer recognizer(*flow, {});
  Check({.language = std::move(spec), .json = {}}, recognizer);
}

TEST_F(ConstraintTest, RefusesGrammarsAndFlowsWithTheirPlaces) {
  ConstraintSpec spec;
  spec.language = ConstraintSpec::Grammar{"root ::= a"};
  const auto refusal = [&] {
    return std::string(Constraint::Compile(spec, Tokens(), {}, nullptr).status().message());
  };
  EXPECT_EQ(refusal(), "line 1, column 10: rule \"a\" is not defined");
  spec.language = ConstraintSpec::Flow{.nodes = {{.may_end = true}}, .token_budget = {}};
  ConstraintSpec::Edge& edge =
      std::get<ConstraintSpec::Flow>(spec.language).nodes[0].edges.emplace_back();
  edge = {"<a>", ConstraintSpec::Grammar{"root ::= \"x\" root"}, "</a>"};
  EXPECT_EQ(refusal(),
            "nodes[0].edges[0].grammar: line 1, column 1: rule \"root\" matches no text");
  edge = {"<a>", ConstraintSpec::Regex{"["}, "</a>"};
  EXPECT_TRUE(refusal().starts_with("nodes[0].edges[0].regex: ")) << refusal();
  edge = {"<a>", ConstraintSpec::Choices{}, "</a>"};
  EXPECT_TRUE(refusal().starts_with("nodes[0].edges[0].choices: ")) << refusal();
}

TEST_F(ConstraintTest, TokensThatMayNotFollowAreNotAccepted) {
  const auto constraint = Compile(Regex("[a-z]{2}"));
  ConstraintMatcher matcher(constraint);
  const std::string before = Describe(matcher.Next());
  int refused = 0;
  for (int32_t id = -2; id < Tokens()->vocab_size() + 70; ++id) {
    const std::string_view text = Tokens()->Text(id);
    const bool allowed = !text.empty() && text.size() <= 2 &&
                         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == text.npos;
    ConstraintMatcher fresh(constraint);
    EXPECT_EQ(fresh.Accept(id), allowed) << id;
    if (allowed) continue;
    EXPECT_FALSE(matcher.Accept(id));
    ++refused;
  }
  EXPECT_GT(refused, 100);
  EXPECT_EQ(Describe(matcher.Next()), before);
}

TEST_F(ConstraintTest, WholeTextThatNothingMayFollow) {
  ConstraintMatcher matcher(Compile(Choices({"a"})));
  ASSERT_TRUE(matcher.Accept(*Demo().TokenToId("a")));
  const ConstraintMatcher::Allowed allowed = matcher.Next();
  EXPECT_TRUE(allowed.no_token);
  EXPECT_TRUE(allowed.may_end);
  EXPECT_EQ(allowed.forced, std::nullopt);
  EXPECT_TRUE(Ids(allowed).empty());
}

TEST_F(ConstraintTest, DeterminedTextIsForcedAsTheTokenizerWritesIt) {
  const std::string text = "{\"name of the child\": \"";
  ConstraintMatcher matcher(Compile(Regex(R"(\{"name of the child": "[a-z]*"\})")));
  const std::vector<int32_t> written = *Demo().Encode(text, EncodeOptions{false, false});
  std::string forced;
  size_t count = 0;
  while (const auto id = matcher.Next().forced) {
    EXPECT_EQ(*id, written[count]);
    forced += Tokens()->Text(*id);
    ++count;
    ASSERT_TRUE(matcher.Accept(*id));
  }
  // The last token may yet be one with what follows.
  EXPECT_EQ(count + 1, written.size());
  EXPECT_EQ(forced + std::string(Tokens()->Text(written.back())), text);
}

TEST_F(ConstraintTest, DeterminedEndIsForcedToTheEnd) {
  ConstraintMatcher matcher(Compile(Choices({"the end of the story."})));
  std::string text;
  while (const auto id = matcher.Next().forced) {
    text += Tokens()->Text(*id);
    ASSERT_TRUE(matcher.Accept(*id));
  }
  EXPECT_EQ(text, "the end of the story.");
  EXPECT_TRUE(matcher.Next().may_end);
}

// The result depends neither on what else the constraint was used for, nor on how often its states
// were thrown away.
TEST_F(ConstraintTest, LimitsThatThrowStatesAwayChangeNothing) {
  std::string text;
  for (const char way : std::string("abcdefgh")) {
    text += (text.empty() ? "" : "|") + std::string(1, way) + "[a-z ]{" + std::to_string(way % 7) +
            "," + std::to_string(30 + way % 11) + "}" + way + "é\\d{0,12}";
  }
  const ConstraintSpec spec = Regex(text);
  const auto plenty = Compile(spec);
  ConstraintLimits limits;
  limits.max_bytes = size_t{450} << 10;
  const auto tight = Compile(spec, limits);
  std::vector<std::vector<int32_t>> paths(8);
  std::vector<ConstraintMatcher> matchers(8, ConstraintMatcher(tight));
  size_t most_bytes = 0;
  for (int step = 0; step < 40; ++step) {
    for (size_t i = 0; i < matchers.size(); ++i) {
      ConstraintMatcher reference(plenty);
      for (const int32_t id : paths[i]) ASSERT_TRUE(reference.Accept(id));
      const ConstraintMatcher::Allowed allowed = reference.Next();
      ASSERT_EQ(Describe(matchers[i].Next()), Describe(allowed)) << "step " << step;
      most_bytes = std::max(most_bytes, tight->bytes());
      const std::vector<int32_t> ids = Ids(allowed);
      if (ids.empty()) continue;
      paths[i].push_back(DrawOf(ids));
      ASSERT_TRUE(matchers[i].Accept(paths[i].back()));
    }
  }
  EXPECT_LT(most_bytes, plenty->bytes() * 3 / 4);
}

TEST_F(ConstraintTest, TooMuchForAFreshStartIsADeadEnd) {
  const ConstraintSpec spec = Regex("[a-z]{600}");
  ConstraintLimits limits;
  limits.max_bytes = size_t{1} << 20;
  const auto constraint = Compile(spec, limits);
  const auto run = [&](size_t matchers) {
    std::vector<ConstraintMatcher> all(matchers, ConstraintMatcher(constraint));
    for (int length = 0;; ++length) {
      for (ConstraintMatcher& matcher : all) {
        const ConstraintMatcher::Allowed allowed = matcher.Next();
        if (allowed.no_token) {
          EXPECT_FALSE(allowed.may_end);
          EXPECT_TRUE(matcher.Next().no_token);
          return length;
        }
        EXPECT_TRUE(matcher.Accept(*Demo().TokenToId("a")));
      }
    }
  };
  const int alone = run(1);
  EXPECT_GT(alone, 10);
  EXPECT_LT(alone, 600);
  EXPECT_EQ(run(3), alone);
  EXPECT_EQ(run(1), alone);
}

// So many tokens of free text, then what closes it, whatever was drawn; also where the limit of
// memory has thrown away the states.
TEST_F(ConstraintTest, ABudgetOfTokensClosesFreeText) {
  ConstraintSpec::Flow spec;
  spec.nodes.resize(2);
  spec.nodes[0].is_free = spec.nodes[0].is_budgeted = true;
  spec.nodes[0].triggers = {"</x>"};
  spec.nodes[0].closing = 1;
  spec.nodes[0].edges = {{.begin = "</x>", .content = ConstraintSpec::Nothing{}, .target = 1},
                         {.begin = "\n</x>\n", .content = ConstraintSpec::Nothing{}, .target = 1}};
  spec.nodes[1].edges = {{.begin = "!", .content = ConstraintSpec::Nothing{}, .target = 1}};
  spec.nodes[1].may_end = true;
  for (const int64_t budget : {0, 1, 7}) {
    spec.token_budget = budget;
    const auto plenty = Compile({.language = spec, .json = {}});
    const auto tight = Compile({.language = spec, .json = {}}, {.max_bytes = size_t{1} << 18});
    for (int round = 0; round < 100; ++round) {
      ConstraintMatcher matcher(plenty), other(tight);
      std::string text;
      int64_t free_tokens = 0;
      while (text.find("</x>") == text.npos) {
        const ConstraintMatcher::Allowed allowed = matcher.Next();
        ASSERT_EQ(Describe(allowed), Describe(other.Next())) << text;
        const int32_t id = DrawOf(Ids(allowed));
        ASSERT_TRUE(matcher.Accept(id) && other.Accept(id));
        text += Tokens()->Text(id);
        if (++free_tokens != budget || text.find("</x>") != text.npos) continue;
        // No more than what closes it is left, of which a beginning may be there already.
        std::string rest;
        for (ConstraintMatcher at_end = matcher; rest.find("</x>\n") == rest.npos;) {
          const ConstraintMatcher::Allowed next = at_end.Next();
          ASSERT_FALSE(next.no_token) << text << rest;
          const int32_t closing = Ids(next)[0];
          ASSERT_TRUE(at_end.Accept(closing));
          rest += Tokens()->Text(closing);
          ASSERT_LE(rest.size(), 16u) << text << rest;
        }
      }
      EXPECT_LE(free_tokens, budget + 8) << text;
    }
  }
}

TEST_F(ConstraintTest, SpecificationsAreChecked) {
  const auto status = [](const ConstraintSpec& spec, const ConstraintLimits& limits = {}) {
    return Constraint::Compile(spec, Tokens(), limits, nullptr).status();
  };
  EXPECT_EQ(status(Regex("a(")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Regex("[]")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Choices({})).code(), absl::StatusCode::kInvalidArgument);
  ConstraintLimits limits;
  limits.max_text_bytes = 3;
  EXPECT_EQ(status(Regex("abc"), limits).code(), absl::StatusCode::kOk);
  EXPECT_EQ(status(Regex("abcd"), limits).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status(Choices({"ab", "cd"}), limits).code(), absl::StatusCode::kResourceExhausted);
  limits.max_bytes = 5000;
  EXPECT_EQ(status(Regex("abc"), limits).code(), absl::StatusCode::kResourceExhausted);
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(Constraint::Compile(Regex("abc"), Tokens(), {}, &cancelled).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ConstraintTest, ThreadsShareAConstraint) {
  const ConstraintSpec spec = Regex(R"(([a-z]{1,9} ){2,20}(\d|é)+)");
  ConstraintLimits limits;
  limits.max_bytes = size_t{1} << 20;
  const auto constraint = Compile(spec, limits);
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i / 2));  // two do the same
      ConstraintMatcher matcher(constraint);
      for (int step = 0; step < 30; ++step) {
        const ConstraintMatcher::Allowed allowed = matcher.Next();
        found[i] += Describe(allowed);
        const std::vector<int32_t> ids = Ids(allowed);
        if (ids.empty() || !matcher.Accept(ids[random() % ids.size()])) break;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[2], found[3]);
}

}  // namespace
}  // namespace tlm
