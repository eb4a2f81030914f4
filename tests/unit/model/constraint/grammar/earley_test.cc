#include "model/constraint/grammar/earley.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tests/support/recognizer_walk.h"
#include "tests/unit/model/constraint/grammar/random_grammar.h"

namespace tlm {
namespace {

absl::StatusOr<std::unique_ptr<Recognizer>> Compile(std::string_view gbnf,
                                                    const ConstraintLimits& limits = {}) {
  Budget budget(absl::Seconds(60), nullptr);
  const auto make = CompileGrammar(gbnf, limits, budget);
  if (!make.ok()) return make.status();
  return (*make)();
}

// Compares what the automaton of the part says of the next bytes, to a depth.
void CheckPart(Recognizer& recognizer, Recognizer::State state, const Recognizer::Part& part,
               int depth) {
  for (const uint8_t byte : {'a', 'b', 'c'}) {
    const RegexDfa::State inside = part.dfa->Next(part.state, byte);
    if (!part.is_rest && part.dfa->Accepts(inside)) continue;
    const Recognizer::State to = recognizer.Next(state, byte);
    ASSERT_EQ(inside != RegexDfa::kDead, to != Recognizer::kDead);
    if (inside == RegexDfa::kDead) continue;
    ASSERT_TRUE(!part.is_rest || recognizer.Accepts(to) == part.dfa->Accepts(inside));
    ASSERT_EQ(recognizer.PartOf(to).dfa, part.dfa);
    if (depth > 1) CheckPart(recognizer, to, {part.dfa, inside, part.is_rest}, depth - 1);
  }
}

TEST(EarleyRecognizerTest, HoldsTheTextsOfRandomGrammars) {
  std::mt19937 random(11);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < RandomGrammar::kMaxLength; ++i) {
    for (const char byte : {'a', 'b'}) texts.push_back(texts[i] + byte);
  }
  int refused = 0;
  const int rounds = 400;
  for (int round = 0; round < rounds; ++round) {
    const RandomGrammar grammar(random);
    const auto recognizer = Compile(grammar.text, {.max_bytes = size_t{1} << 30});
    if (!recognizer.ok()) {
      ++refused;
      EXPECT_TRUE(grammar.beginnings().empty()) << grammar.text << recognizer.status();
      EXPECT_NE(recognizer.status().message().find("matches no text"), std::string::npos);
      continue;
    }
    std::map<std::string, Recognizer::State> states = {{"", (*recognizer)->start()}};
    for (const std::string& text : texts) {
      const auto found = states.find(text);
      const Recognizer::State state = found == states.end() ? Recognizer::kDead : found->second;
      const bool is_alive = state != Recognizer::kDead;
      ASSERT_EQ(is_alive && (*recognizer)->Accepts(state), grammar.texts().contains(text))
          << grammar.text << text;
      ASSERT_EQ(is_alive, grammar.beginnings().contains(text)) << grammar.text << text;
      if (!is_alive) continue;
      const ByteSet next = (*recognizer)->NextBytes(state);
      for (int byte = 0; byte < 256; ++byte) {
        const auto to = (*recognizer)->Next(state, static_cast<uint8_t>(byte));
        ASSERT_EQ(to != Recognizer::kDead, next.Has(static_cast<uint8_t>(byte)));
        if (to != Recognizer::kDead) states[text + static_cast<char>(byte)] = to;
      }
      if (const Recognizer::Part part = (*recognizer)->PartOf(state); part.dfa != nullptr) {
        CheckPart(**recognizer, state, part, 3);
      }
    }
    if (::testing::Test::HasFailure()) FAIL() << grammar.text;
    EXPECT_FALSE((*recognizer)->full());
  }
  EXPECT_LT(refused, rounds / 2);
}

// A grammar, texts of it, and texts that are none and begin none.
struct Example {
  const char* name;
  std::string_view gbnf;
  std::vector<std::string_view> texts, beginnings, others;
};

constexpr std::string_view kJson = R"gbnf(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( pair ("," ws pair)* )? "}" ws
pair   ::= string ":" ws value
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)gbnf";

// A part of C.
constexpr std::string_view kC = R"gbnf(
root        ::= declaration*
declaration ::= type name "(" parameter? ")" "{" statement* "}"
type        ::= "int" ws | "float" ws | "char" ws
name        ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter   ::= type name
statement   ::= ( type name ws "=" ws expression ";" )
              | ( name ws "=" ws expression ";" )
              | ( "return" ws expression ";" )
              | ( "while" "(" condition ")" "{" statement* "}" )
              | ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? )
condition   ::= expression ("==" | "!=" | "<" | "<=" | ">" | ">=") expression
expression  ::= term (("+" | "-") term)*
term        ::= factor (("*" | "/") factor)*
factor      ::= name | number | "-" factor | name "(" (expression ("," ws expression)*)? ")"
              | "(" expression ")"
number      ::= [0-9]+
ws          ::= ([ \t\n]+)?   # at least in some places
)gbnf";

const Example kExamples[] = {
    {"json",
     kJson,
     {R"({})", R"({"a": [1, -2.5e+3, "x\u00e4\"", {"b": null}]})", "{\n  \"\xc3\xa4\":true }"},
     {R"({"a": [)", R"({"a\)", "{\"\xc3"},
     {"[]", R"({"a" 1})", R"({"a":01)", "{\"\n", "{\"\xff", R"({"a":[1,])"}},
    {"arithmetic",
     R"gbnf(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*)gbnf",
     {"1+2=3\n", "(a +1) *2 = x_1\n1 = 1\n"},
     {"((((1", "a=b"},
     {"1 + = 2", "A", "(1))"}},
    {"expressions, ambiguous",
     R"gbnf(root ::= e
e ::= e "+" e | e "*" e | "-" e | "(" e ")" | [0-9]+)gbnf",
     {"1", "-1+2*(3+4)*-5", "--1"},
     {"1+", "((1)"},
     {"+", "1)", "1(", "1+)"}},
    {"expressions by rank",
     R"gbnf(root ::= root "+" term | term
term ::= term "*" factor | factor
factor ::= "(" root ")" | "n" )gbnf",
     {"n", "n+n*n+(n*n)"},
     {"n*(n+n"},
     {"nn", "n+*"}},
    {"list",
     "root ::= item+\n# each on its line\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "
     "\"\\n\"",
     {"- a\n", "- milk\n- \xe2\x82\xac 5\n"},
     {"- ", "- a\n-", "- \xe2"},
     {"- \n", "-a", "- \xe2\x80\xa8", "- a\r"}},
    {"chess",
     R"gbnf(root ::= (
    "1. " move " " move "\n"
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?)gbnf",
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O-O exd8=Q#\n10. Qa1xb2+ Kf1\n"},
     {"1. e4 e5\n", "1. N1"},
     {"2. ", "1. e9", "1. e4 e5\n0"}},
    {"c",
     kC,
     {"", "int main(int a){return 1;}",
      "int f(){x=-(1+y)*2;while(x<=3){if(a==b){}else{x=f(1,2);}}}"},
     {"int main(", "float f(){retur"},
     {"double", "int main(){return}", "int f(){if(a){"}},
};

TEST(EarleyRecognizerTest, HoldsTheTextsOfExamples) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.name);
    const auto recognizer = Compile(example.gbnf);
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    for (const auto text : example.texts) EXPECT_TRUE(VerdictOf(**recognizer, text).whole) << text;
    for (const auto text : example.beginnings) {
      EXPECT_TRUE(VerdictOf(**recognizer, text).alive) << text;
      EXPECT_FALSE(VerdictOf(**recognizer, text).whole) << text;
    }
    for (const auto text : example.others)
      EXPECT_FALSE(VerdictOf(**recognizer, text).alive) << text;
  }
}

TEST(EarleyRecognizerTest, ListsReturnToTheSameStates) {
  const std::string_view grammars[] = {
      R"gbnf(root ::= "[" x ("," x)* "]"
x ::= "a" | "(" x ")")gbnf",
      R"gbnf(root ::= "[" list "]"
list ::= x | x "," list
x ::= "a" | "(" x ")")gbnf",
      R"gbnf(root ::= "[" list "]"
list ::= x | list "," x
x ::= "a" | "(" x ")")gbnf",
      R"gbnf(root ::= "[" list "]"
list ::= list "," list | x
x ::= "a" | "(" x ")")gbnf",
      R"gbnf(root ::= "[" list "]"
list ::= x tail
tail ::= "," x tail | ""
x ::= "a" | "(" x ")")gbnf",
  };
  for (const std::string_view gbnf : grammars) {
    const auto recognizer = Compile(gbnf);
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    const auto after = [&](std::string_view text) { return StateAfter(**recognizer, text); };
    EXPECT_EQ(after("[a,"), after("[a,(a),a,")) << gbnf;
    EXPECT_EQ(after("[a"), after("[a,(a)")) << gbnf;
    EXPECT_EQ(after("[a,(a"), after("[a,a,(a")) << gbnf;
    EXPECT_NE(after("[a,(a"), after("[a,((a")) << gbnf;
  }
}

TEST(EarleyRecognizerTest, StringsOfAllPlacesArePartsOfOneAutomaton) {
  const auto recognizer = Compile(kJson);
  ASSERT_TRUE(recognizer.ok());
  const auto part = [&](std::string_view text) {
    return (*recognizer)->PartOf(StateAfter(**recognizer, text));
  };
  const auto inside = part(R"({"a": "x)");
  ASSERT_NE(inside.dfa, nullptr);
  EXPECT_EQ(part(R"({"b": {"c": [1, 2, {"d": "yz)").state, inside.state);
  EXPECT_EQ(part(R"({"a": "x)").dfa, inside.dfa);
}

TEST(EarleyRecognizerTest, NamesOfAllDepthsArePartsOfOneAutomaton) {
  const auto recognizer = Compile(kC);
  ASSERT_TRUE(recognizer.ok());
  const auto part = [&](std::string_view text) {
    return (*recognizer)->PartOf(StateAfter(**recognizer, text));
  };
  const auto inside = part("int f(){x=((ab");
  ASSERT_NE(inside.dfa, nullptr);
  EXPECT_EQ(part("int f(){while(x==y){x=((((((ab").state, inside.state);
  EXPECT_EQ(inside.dfa->Next(inside.state, ';'), RegexDfa::kDead);
  EXPECT_TRUE(inside.dfa->Accepts(inside.dfa->Next(inside.state, ')')));
}

TEST(EarleyRecognizerTest, GrammarsWithoutRecursionAreOneAutomaton) {
  const auto recognizer = Compile("root ::= (word \" \")* word?\nword ::= [a-z]+");
  ASSERT_TRUE(recognizer.ok());
  for (const std::string_view text : {"", "a", "ab ", "ab c"}) {
    EXPECT_TRUE((*recognizer)->PartOf(StateAfter(**recognizer, text)).is_rest) << text;
  }
}

TEST(EarleyRecognizerTest, TakesOneStateForEachDepth) {
  const auto recognizer = Compile("root ::= \"(\" root \")\" | \"\"");
  ASSERT_TRUE(recognizer.ok());
  std::string text(20'000, '(');
  EXPECT_FALSE(VerdictOf(**recognizer, text).whole);
  text += std::string(20'000, ')');
  EXPECT_TRUE(VerdictOf(**recognizer, text).whole);
  EXPECT_FALSE(VerdictOf(**recognizer, text + ")").alive);
  EXPECT_LT((*recognizer)->bytes(), size_t{16} << 20);
}

// Reads until the text is too much for the limits.
TEST(EarleyRecognizerTest, AmbiguityIsBounded) {
  const auto recognizer = Compile(R"(root ::= root root root | "a" | "")");
  ASSERT_TRUE(recognizer.ok());
  Recognizer::State state = (*recognizer)->start();
  size_t length = 0;
  for (; state != Recognizer::kDead && length < 300; ++length) {
    EXPECT_TRUE((*recognizer)->Accepts(state));
    state = (*recognizer)->Next(state, 'a');
  }
  EXPECT_EQ(length, 300u);
  for (; state != Recognizer::kDead && length < 100'000; ++length) {
    state = (*recognizer)->Next(state, 'a');
  }
  EXPECT_TRUE(state != Recognizer::kDead || (*recognizer)->full());
  EXPECT_LT((*recognizer)->bytes(), 2 * ConstraintLimits().max_bytes);
}

TEST(EarleyRecognizerTest, StopsWhereTheWorkAllowedEnds) {
  const auto recognizer = Compile(R"(root ::= root root root | "a" | "")");
  ASSERT_TRUE(recognizer.ok());
  (*recognizer)->AllowWork(100'000);
  Recognizer::State state = (*recognizer)->start();
  size_t length = 0;
  for (; state != Recognizer::kDead && length < 10'000; ++length) {
    state = (*recognizer)->Next(state, 'a');
  }
  EXPECT_TRUE((*recognizer)->full());
  EXPECT_GT(length, 10u);
  EXPECT_LT(length, 300u);
}

std::string Repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(EarleyRecognizerTest, TakesLargeGrammars) {
  std::string alternatives = "root ::= \"x\"", rules = "root ::= r0\n", calls = "root ::= \"\"";
  for (int i = 0; i < 50'000; ++i) alternatives += fmt::format(" | \"w{}\"", i);
  for (int i = 0; i < 20'000; ++i) rules += fmt::format("r{} ::= \"a\" r{} | \"b\"\n", i, i + 1);
  for (int i = 0; i < 1'000; ++i) calls += fmt::format(" | \"w{}\" root", i);
  rules += "r20000 ::= \"c\" root";
  const struct {
    std::string gbnf;
    std::vector<std::string> texts, others;
  } cases[] = {
      {alternatives, {"x", "w0", "w49999"}, {"w50000", "y"}},
      {rules, {"aaab", Repeated("a", 20'000) + "cab"}, {"ba", Repeated("a", 20'001)}},
      {calls, {"", "w17w999w0"}, {"w1000", "v"}},
      {"root ::= \"a\"{0,100000} \"b\"", {"b", Repeated("a", 5000) + "b"}, {"bb"}},
      {"root ::= (\"a\" x?){0,1000}\nx ::= \"(\" x \")\" | \"b\"",
       {"", "aa(b)a", Repeated("a(b)", 1000)},
       {Repeated("ab", 1000) + "a"}},
      {"root ::= " + Repeated("\"a\"? ", 20'000), {"", Repeated("a", 500)}, {"b"}},
      {"root ::= " + Repeated("(", 190) + "\"a\"" + Repeated(")?", 190), {"", "a"}, {"aa"}},
      {"root ::= \"a\" " + Repeated("(\"b\" ", 90) + Repeated(")*", 90), {"a", "abbb"}, {"ba"}},
      {"root ::= root | root root | x\nx ::= x | \"a\" | root", {"a", "aaaa"}, {"b"}},
  };
  for (const auto& [gbnf, texts, others] : cases) {
    SCOPED_TRACE(gbnf.substr(0, 60));
    const auto recognizer = Compile(gbnf);
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    for (const auto& text : texts) EXPECT_TRUE(VerdictOf(**recognizer, text).whole);
    for (const auto& text : others) EXPECT_FALSE(VerdictOf(**recognizer, text).alive);
    EXPECT_FALSE((*recognizer)->full());
  }
}

TEST(EarleyRecognizerTest, RefusesWhatIsMalformed) {
  const struct {
    std::string gbnf;
    std::string_view message;
  } cases[] = {
      {"", "no rule is named \"root\""},
      {"Root ::= \"a\"", "no rule is named \"root\""},
      {"root ::= a", "line 1, column 10: rule \"a\" is not defined"},
      {"# \xc3\xa4\nroot ::= \"\xc3\xa4\" (b)", "line 2, column 15: rule \"b\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule \"root\" is defined twice"},
      {"root = \"a\"", "line 1, column 6: expected ::=, found '='"},
      {"root ::= \"a\" ::= b", "line 1, column 14: expected a symbol, found ':'"},
      {"root ::= (\"a\"",
       "line 1, column 14: expected ) for the group of line 1, column "
       "10, found the end"},
      {"root ::= \"a\")",
       "line 1, column 13: expected a symbol or the end of the line, "
       "found ')'"},
      {"root ::= \"a", "line 1, column 10: the literal does not end"},
      {"root ::= [a", "line 1, column 10: the class does not end"},
      {"root ::= [a-", "line 1, column 10: the class does not end"},
      {"root ::= []", "line 1, column 10: the class is empty"},
      {"root ::= [z-a]", "line 1, column 11: the range ends before it begins"},
      {"root ::= \"\\q\"",
       "line 1, column 11: the escape is none of \\n \\r \\t \\\\ \\\" "
       "\\[ \\] \\- \\x \\u \\U"},
      {"root ::= \"\\u12\"", "line 1, column 11: the escape takes 4 hexadecimal digits"},
      {"root ::= \"\\ud800\"", "line 1, column 11: U+D800 is not a character"},
      {"root ::= \"\\U00110000\"", "line 1, column 11: U+110000 is not a character"},
      {"root ::= *", "line 1, column 10: expected a symbol, found '*'"},
      {"root ::= \"a\"{2,1}", "line 1, column 13: 2 repetitions at least, and 1 at most"},
      {"root ::= \"a\"{,1}", "line 1, column 14: expected a number, found ','"},
      {"root ::= \"a\"{1", "line 1, column 15: expected }, found the end"},
      {"root ::= <think> \"a\"", "line 1, column 10: tokens (<...> and !<...>) are not supported"},
      {"root ::= !<[7]>", "line 1, column 10: tokens (<...> and !<...>) are not supported"},
      {"root ::= \"a\xff\"", "not UTF-8 at byte 11"},
      {"root ::= \"a\" root", "line 1, column 1: rule \"root\" matches no text"},
      {"\nroot ::= a | b\na ::= b b\nb ::= a | \"x\" b",
       "line 2, column 1: rule \"root\" matches no text"},
  };
  for (const auto& [gbnf, message] : cases) {
    const absl::Status status = Compile(gbnf).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << gbnf;
    EXPECT_EQ(std::string(status.message()), message) << gbnf;
  }
}

TEST(EarleyRecognizerTest, TakesTheNotation) {
  const struct {
    std::string gbnf;
    std::vector<std::string> texts, others;
  } cases[] = {
      {"root ::= \"\\x41\\u00e4\\U0001F600\\n\\t\\r\\\\\\\"\\[\\]\"",
       {"A\xc3\xa4\xf0\x9f\x98\x80\n\t\r\\\"[]"},
       {"B"}},
      {"root ::= [-a] [a-] [\\-\\]\\[x-z] [^^]",
       {"---b", "aazb", "a-]b", "a-[\xe2\x82\xac"},
       {"---^", "aaab"}},
      {"root ::= . .", {"\n\xc3\xa4", "\xf4\x8f\xbf\xbf\xef\xbf\xbf"}, {"a\xff", "\xed\xa0\x80"}},
      // Suffixes may stand apart, and one behind another.
      {"root ::= \"a\" + (\"b\" )\t? {2} \"cd\"{0}", {"a", "aabb"}, {"c", "abbb"}},
      {"root ::= \"ab\"{ 1 , 2 }", {"ab", "abab"}, {"aa", "ababa"}},
      // Lines may end behind |, before | and in parentheses.
      {"root ::=\n a-1 |\n B_2\n | (\n\"c\" # |\n\"d\"\n|\n\"e\"\n)\r\na-1::=\"1\"\r\n\r\nB_2 ::= "
       "\"2\"#",
       {"1", "2", "cd", "e"},
       {"ce"}},
      {"root ::= | \"a\"", {"", "a"}, {"b"}},
      {"root ::=", {""}, {"a"}},
      {"unused ::= \"x\" unused\nroot ::= \"a\"", {"a"}, {"x"}},
      // What matches no text is left out.
      {"root ::= \"a\" (never | \"b\") | never\nnever ::= \"c\" never", {"ab"}, {"ac", "c"}},
  };
  for (const auto& [gbnf, texts, others] : cases) {
    SCOPED_TRACE(gbnf);
    const auto recognizer = Compile(gbnf);
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    for (const auto& text : texts) EXPECT_TRUE(VerdictOf(**recognizer, text).whole) << text;
    for (const auto& text : others) EXPECT_FALSE(VerdictOf(**recognizer, text).alive) << text;
  }
}

TEST(EarleyRecognizerTest, RefusesWhatIsOverLimits) {
  const auto refusal = [](const std::string& gbnf, const ConstraintLimits& limits) {
    const absl::Status status = Compile(gbnf, limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << gbnf.substr(0, 60);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal("root ::= \"a\"", {.max_text_bytes = 11}), "12 bytes, the limit is 11");
  EXPECT_EQ(refusal("root ::= \"a\"{1000001}", {}),
            "line 1, column 14: the limit of repetitions is 1000000");
  EXPECT_EQ(refusal("root ::= " + Repeated("(", 100'000), {}),
            "line 1, column 209: groups and repetitions are nested deeper than 200");
  EXPECT_EQ(refusal("root ::= \"a\"" + Repeated("?", 100'000), {}),
            "line 1, column 212: groups and repetitions are nested deeper than 200");
  EXPECT_EQ(refusal("root ::= \"a\" \"b\" \"c\"", {.max_states = 3}),
            "line 1, column 10: the grammar has more than 3 parts");
  EXPECT_EQ(refusal("root ::= (x \"a\"){1000000}\nx ::= \"(\" x \")\" | \"b\"", {}),
            "line 1, column 11: with what is repeated there are more than 200000 parts");
  EXPECT_EQ(refusal("root ::= ((((x{100}){100}){100}){100}){100}\nx ::= \"(\" x \")\" | \"b\"", {}),
            "line 1, column 14: with what is repeated there are more than 200000 parts");
  std::string calls = "root ::= \"\"";
  for (int i = 0; i < 10'000; ++i) calls += fmt::format(" | \"w{}\" root", i);
  EXPECT_EQ(refusal(calls, {}),
            "the beginnings of its texts take more than 200000 states, 67108864 bytes, or "
            "4096 readings at a time");
  Budget budget(absl::ZeroDuration(), nullptr);
  EXPECT_EQ(CompileGrammar(kJson, {}, budget).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tlm
