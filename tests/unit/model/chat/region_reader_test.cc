#include "model/chat/region_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/model/chat/region_definition.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

RegionPlan PlanOf(std::string_view reasoning, std::string_view tools) {
  static const Tokenizer& tokenizer = *MakeTokenizer(SmallTokenizerJson({})).release();
  const auto format = FindChatFormat(nullptr, tokenizer, reasoning, tools);
  EXPECT_TRUE(format.ok()) << format.status();
  RegionPlan plan;
  if (format.ok()) plan.format = *format;
  using Names = std::vector<std::string>;
  plan.text_parameters["find"] = std::make_shared<const Names>(Names{"path", "text"});
  return plan;
}

// The events of portions.
std::vector<RegionEvent> Read(const RegionPlan& plan, const std::vector<std::string>& portions) {
  RegionReader reader(plan);
  std::vector<RegionEvent> events, joined;
  for (const std::string& portion : portions) reader.Append(portion, events);
  reader.End(events);
  for (const RegionEvent& event : events) Join(event, joined);
  return joined;
}

std::string Show(const std::vector<RegionEvent>& events) {
  std::ostringstream text;
  for (const RegionEvent& event : events) text << event;
  return text.str();
}

std::string Show(const RegionPlan& plan, const std::string& text) {
  return Show(Read(plan, {text}));
}

// ---- Examples

TEST(RegionReaderTest, TextAloneIsOneRegion) {
  EXPECT_EQ(Show({}, "Hi.\n"), "0T(Hi.\n)");
  EXPECT_EQ(Show({}, ""), "");
}

TEST(RegionReaderTest, LineBreaksNextToMarkersBelongToThem) {
  const RegionPlan plan = PlanOf("think", "none");
  EXPECT_EQ(Show(plan, "<think>\nHm.\n</think>\n\nHi.\n"),
            "<<think>\n>0R(Hm.)<\n</think>\n\n>1T(Hi.\n)");
  EXPECT_EQ(Show(plan, "<think>\n\n</think>\n\nHi"), "<<think>\n\n>0R()<</think>\n\n>1T(Hi)");
  EXPECT_EQ(Show(plan, "<think>a</think>b"), "<<think>>0R(a)<</think>>1T(b)");
  EXPECT_EQ(Show(plan, "<think>a</think>\n"), "<<think>>0R(a)<</think>\n>");
}

TEST(RegionReaderTest, ReasoningStandsAtTheBeginningAlone) {
  const RegionPlan plan = PlanOf("think", "hermes");
  EXPECT_EQ(Show(plan, "a<think>b</think>"), "0T(a<think>b</think>)");
  EXPECT_EQ(Show(plan, "<think>a</think><think>"), "<<think>>0R(a)<</think>>1T(<think>)");
}

TEST(RegionReaderTest, APromptMayHaveOpenedTheReasoning) {
  RegionPlan plan = PlanOf("think", "none");
  plan.begins_in_reasoning = true;
  EXPECT_EQ(Show(plan, "\nHm.\n</think>\n\nHi"), "<\n>0R(Hm.)<\n</think>\n\n>1T(Hi)");
  EXPECT_EQ(Show(plan, "Hm.\n"), "0R(Hm.\n)!");
  EXPECT_EQ(Show(plan, ""), "0R()!");
}

TEST(RegionReaderTest, EveryParameterOfAnUnknownToolIsJson) {
  EXPECT_EQ(Show(PlanOf("none", "qwen3_coder"),
                 "<tool_call>\n<function=g>\n<parameter=text>\nab\n</parameter>\n"),
            "<<tool_call>\n<function=g>\n>0g#0(<parameter=text>\n = {\"text\":)!"
            "1T(ab\n</parameter>\n)");
}

TEST(RegionReaderTest, CallsOfLlama3StandAtTheBeginningAlone) {
  EXPECT_EQ(Show(PlanOf("none", "llama3_json"), R"(So: {"name": "f", "parameters": {}})"),
            R"(0T(So: {"name": "f", "parameters": {}}))");
}

TEST(RegionReaderTest, WhatIsNoMarkerIsText) {
  const RegionPlan plan = PlanOf("think", "hermes");
  EXPECT_EQ(Show(plan, "<thin>\n\n<tool_call>\n{\"name\": \"a\nb\"}"),
            "0T(<thin>\n\n<tool_call>\n{\"name\": \"a\nb\"})");
  EXPECT_EQ(Show(plan, "<<tool_call>\n{\"name\": \"\"<tool_call>\n"),
            "0T(<<tool_call>\n{\"name\": \"\"<tool_call>\n)");
  EXPECT_EQ(Show(plan, "<tool_<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
            "0T(<tool_)<<tool_call>\n{\"name\": \"f\", \"arguments\": >1f#0({})<}\n</tool_call>>");
}

TEST(RegionReaderTest, NamesAreBounded) {
  const RegionPlan plan = PlanOf("none", "hermes");
  const auto call = [](size_t size) {
    return "<tool_call>\n{\"name\": \"" + std::string(size, 'f') + "\", \"arguments\": {}";
  };
  EXPECT_EQ(Read(plan, {call(RegionReader::kMaxNameBytes)})[1].name.size(),
            RegionReader::kMaxNameBytes);
  EXPECT_EQ(Show(plan, call(RegionReader::kMaxNameBytes + 1)),
            "0T(" + call(RegionReader::kMaxNameBytes + 1) + ")");
}

TEST(RegionReaderTest, ArgumentsThatAreNoObjectEndTheCall) {
  const RegionPlan plan = PlanOf("none", "llama3_json");
  const std::string begin = R"({"name": "f", "parameters": )";
  for (const auto& [arguments, rest] : std::map<std::string, std::string>{
           {"", "[1]"},
           {"", " {}"},
           {"{", "]"},
           {"{\"a\": [1", "}"},
           {"{\"a\": 0", "1}"},
           {"{\"a\": -", "}"},
           {"{\"a\": 1.5e+", ","},
           {"{\"a\": tr", "eu"},
           {"{\"a\"", ",1}"},
           {"{\"a\": 1, ", "}"},
           {"{\"a\": \"\\u00", "g\"}"},
           {"{\"a\": \"\\", "x\"}"},
           {"{\"a\": \"b", "\n\"}"},
       }) {
    EXPECT_EQ(Show(plan, begin + arguments + rest),
              "<" + begin + ">0f#0(" + arguments + ")!1T(" + rest + ")");
  }
}

TEST(RegionReaderTest, ACallWithinWhichTheTextEndsIsIncomplete) {
  const RegionPlan plan = PlanOf("none", "hermes");
  const std::string header = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
  EXPECT_EQ(Show(plan, header + "{\"a\": \"b"), "<" + header + ">0f#0({\"a\": \"b)!");
  EXPECT_EQ(Show(plan, header), "<" + header + ">0f#0()!");
  EXPECT_EQ(Show(plan, "a\n\n" + header.substr(0, 20)), "0T(a\n\n" + header.substr(0, 20) + ")");
  EXPECT_EQ(Show(plan, header + "{}}\n</tool"), "<" + header + ">0f#0({})<}\n</tool>");
}

TEST(RegionReaderTest, HoldsBackOnlyWhatMayBeAMarker) {
  RegionReader reader(PlanOf("think", "hermes"));
  const auto shows = [&](std::string_view text) {
    std::vector<RegionEvent> events;
    reader.Append(text, events);
    return Show(events);
  };
  EXPECT_EQ(shows("<thi"), "");
  EXPECT_EQ(shows("nk>"), "<<think>>");
  EXPECT_EQ(shows("\n"), "<\n>");
  EXPECT_EQ(shows("a"), "0R(a");
  EXPECT_EQ(shows("\n<"), "");
  EXPECT_EQ(shows("b\n\n"), "\n<b");
  EXPECT_EQ(shows("</think>"), ")<\n\n</think>>");
  EXPECT_EQ(shows("\n"), "<\n>");
  EXPECT_EQ(shows("c"), "1T(c");
  EXPECT_EQ(shows("<tool_call>\n{\"name\": \"f"), "");
  EXPECT_EQ(shows("\", \"arguments\": "), ")<<tool_call>\n{\"name\": \"f\", \"arguments\": >2f#0(");
  EXPECT_EQ(shows("{\"a"), "{\"a");
  EXPECT_EQ(shows("\": 1}}"), "\": 1})");
  EXPECT_EQ(shows("\n</tool_call"), "");
  EXPECT_EQ(shows(">"), "<}\n</tool_call>>");
}

// ---- Against the definition

// Texts other than answers: tests/fuzz/region_reader_fuzz.cc.
class RandomAnswers {
 public:
  RandomAnswers(const RegionPlan& plan, uint32_t seed) : plan_(plan), random_(seed) {}

  // An answer of the format, with what it is to be read as.
  std::pair<std::string, std::vector<RegionEvent>> Answer();

  std::vector<std::string> Cut(const std::string& text) {
    std::vector<std::string> portions;
    for (size_t at = 0; at < text.size(); at += portions.back().size()) {
      portions.push_back(
          text.substr(at, static_cast<size_t>(Below(3) == 0 ? Below(40) : Below(6))));
    }
    return portions;
  }
  int Below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

 private:
  using Texts = std::vector<std::string_view>;

  std::string Pick(const Texts& texts) {
    return std::string(texts[Below(static_cast<int>(texts.size()))]);
  }
  // Without line breaks at its ends.
  std::string Words() { return Pick({"a", "Hm. <b>\n\nc", "x {\"name\": y", "Grüße, 世界", "<"}); }

  const RegionPlan& plan_;
  std::mt19937 random_;
};

std::pair<std::string, std::vector<RegionEvent>> RandomAnswers::Answer() {
  using Type = RegionEvent::Type;
  std::string text;
  std::vector<RegionEvent> events;
  int32_t region = 0, call = 0;
  const auto marker = [&](std::string_view part) {
    if (part.empty()) return;
    text += part;
    Join({.type = Type::kMarker, .text = std::string(part)}, events);
  };
  const auto add = [&](RegionKind kind, const std::string& part, const std::string& name,
                       const std::string& json) {
    RegionEvent event = {.type = Type::kStarted, .region = kind, .region_index = region};
    if (kind == RegionKind::kToolCall) {
      event.call_index = call++;
      event.name = name;
    }
    events.push_back(event);
    text += part;
    events.push_back({.type = Type::kDelta,
                      .region = kind,
                      .region_index = region,
                      .text = part,
                      .arguments_json = json});
    events.push_back({.type = Type::kFinished, .region = kind, .region_index = region++});
  };
  const ReasoningFormat* r = plan_.format.reasoning;
  const ToolFormat* t = plan_.format.tools;
  const bool takes = r == nullptr || r->takes_line_breaks;
  const auto breaks = [&] { return std::string(takes ? static_cast<size_t>(Below(3)) : 0, '\n'); };
  const bool parts = r != nullptr && !r->text_open.empty();
  if (r != nullptr && (plan_.begins_in_reasoning || Below(2) == 0)) {
    marker((plan_.begins_in_reasoning ? "" : std::string(r->open)) + breaks());
    add(RegionKind::kReasoning, Words(), "", "");
    marker(breaks() + std::string(r->close) + breaks());
  }
  const bool calls = t != nullptr && Below(3) != 0;
  const bool anywhere = t != nullptr && t->place == ToolFormat::Place::kAnywhere;
  if (parts && Below(2) == 0) {
    marker(r->preamble_open);
    add(RegionKind::kText, Words(), "", "");
    marker(r->preamble_close);
  } else if (!parts && calls && anywhere && Below(2) == 0) {
    add(RegionKind::kText, Words(), "", "");
    marker(breaks());
  }
  if (calls) {
    const bool is_xml = t->arguments == ToolFormat::Arguments::kXml;
    const int count = t->parallel ? 1 + Below(3) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string name = Pick({"find", "add_2", "a.b-c"});
      marker(i == 0 ? t->begin : t->between);
      marker(t->before_name);
      marker(name);
      marker(t->after_name);
      const std::string json = Pick({"{}", R"({"a": "}\"", "b": [{}, -1.5e3, null, []]})"});
      if (is_xml) {
        const bool is_text = name == "find";
        add(RegionKind::kToolCall,
            std::string("<parameter=text>\n") + (is_text ? "ä\n\"" : "\"b\"") +
                "\n</parameter>\n</function>",
            name, is_text ? R"({"text":"ä\n\""})" : R"({"text":"b"})");
      } else {
        add(RegionKind::kToolCall, json, name, json);
      }
      marker(t->after_arguments);
    }
    marker(t->end);
  } else {
    if (parts) marker(r->text_open);
    add(RegionKind::kText, Words() + "\n", "", "");
  }
  return {text, events};
}

void CheckForm(const std::vector<RegionEvent>& events, const std::string& text) {
  using Type = RegionEvent::Type;
  std::string joined;
  int32_t regions = 0, calls = 0;
  bool is_open = false;
  for (const RegionEvent& event : events) {
    joined += event.text;
    if (event.type == Type::kMarker) {
      EXPECT_FALSE(is_open);
      continue;
    }
    const bool starts = event.type == Type::kStarted;
    EXPECT_NE(is_open, starts);
    regions += starts ? 1 : 0;
    EXPECT_EQ(event.region_index, regions - 1);
    if (starts && event.region == RegionKind::kToolCall) {
      EXPECT_EQ(event.call_index, calls++);
    }
    is_open = event.type != Type::kFinished;
  }
  EXPECT_FALSE(is_open);
  EXPECT_EQ(joined, text);
}

// How much came out, per byte of the text that went in.
std::vector<std::string> Progress(const RegionPlan& plan, const std::string& text) {
  RegionReader reader(plan);
  std::vector<RegionEvent> events, joined;
  std::vector<std::string> progress = {""};
  for (const char byte : text) {
    events.clear();
    reader.Append({&byte, 1}, events);
    for (const RegionEvent& event : events) Join(event, joined);
    progress.push_back(joined.empty() ? ""
                                      : fmt::format("{}", joined.size()) + joined.back().text +
                                            "|" + joined.back().arguments_json);
  }
  return progress;
}

void CheckText(const RegionPlan& plan, const std::string& text, RandomAnswers& random) {
  SCOPED_TRACE(testing::PrintToString(text));
  const std::vector<RegionEvent> expected = RegionDefinition(plan).Of(text);
  CheckForm(expected, text);
  const std::vector<std::string> progress = Progress(plan, text);
  for (int i = 0; i < 2; ++i) {
    RegionReader reader(plan);
    std::vector<RegionEvent> joined, events;
    size_t size = 0;
    for (const std::string& portion : random.Cut(text)) {
      events.clear();
      reader.Append(portion, events);
      for (const RegionEvent& event : events) Join(event, joined);
      size += portion.size();
      EXPECT_EQ(joined.empty() ? ""
                               : fmt::format("{}", joined.size()) + joined.back().text + "|" +
                                     joined.back().arguments_json,
                progress[size]);
    }
    events.clear();
    reader.End(events);
    for (const RegionEvent& event : events) Join(event, joined);
    EXPECT_EQ(joined, expected) << Show(joined) << "\n" << Show(expected);
  }
}

std::vector<RegionPlan> AllPlans() {
  std::vector<RegionPlan> plans;
  std::vector<std::string_view> reasoning = ReasoningFormatNames(), tools = ToolFormatNames();
  reasoning.push_back("none");
  tools.push_back("none");
  for (const std::string_view r : reasoning) {
    for (const std::string_view t : tools) {
      if (t == "harmony" && r != "harmony") continue;
      plans.push_back(PlanOf(r, t));
      if (r == "none") continue;
      plans.push_back(plans.back());
      plans.back().begins_in_reasoning = true;
    }
  }
  return plans;
}

TEST(RegionReaderTest, ReadsAnswersAsTheyWereMade) {
  uint32_t seed = 1000;
  int streams = 0;
  for (const RegionPlan& plan : AllPlans()) {
    RandomAnswers random(plan, ++seed);
    for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i, streams += 2) {
      const auto [text, events] = random.Answer();
      SCOPED_TRACE(testing::PrintToString(text));
      EXPECT_EQ(RegionDefinition(plan).Of(text), events) << Show(events);
      CheckText(plan, text, random);
    }
  }
  EXPECT_GE(streams, 10'000);
}

}  // namespace
}  // namespace tlm
