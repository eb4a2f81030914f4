#include "server/rpc/output/output_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "server/serving/request_limits.h"
#include "tests/support/proto.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kPrompt = 10;

SampledToken Token(int32_t id) {
  SampledToken token;
  token.id = id;
  return token;
}

// What a client would put together from the events.
struct Received {
  std::string text;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> positions;  // of the events
};

class OutputAssemblerTest : public ::testing::Test {
 protected:
  OutputAssemblerTest() { plan_.token_infos = true; }

  void Make() { assembler_.emplace(plan_, work_, tokenizer_.get(), kPrompt); }
  void AppendText(std::string_view text) {
    for (const int32_t id : ByteIds(text)) assembler_->Append(Token(id));
  }
  void TakeEvents() {
    v1::GenerateTokens event;
    while (assembler_->NextEvent(event)) {
      received_.text += event.text();
      for (const v1::TokenInfo& info : event.tokens()) received_.ids.push_back(info.id());
      received_.positions.push_back(event.position());
      event.Clear();
    }
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer({"abSTOP", "yz"});
  static constexpr int32_t kYz = kFirstWordId + 1;
  OutputPlan plan_;
  GenerateWork work_;
  std::optional<OutputAssembler> assembler_;
  Received received_;
};

TEST_F(OutputAssemblerTest, SendsTextAndTokensAsTheyCome) {
  Make();
  AppendText("hi");
  TakeEvents();
  EXPECT_EQ(received_.text, "hi");
  AppendText("!");
  TakeEvents();
  EXPECT_EQ(received_.text, "hi!");
  EXPECT_THAT(received_.ids, ElementsAre('h', 'i', '!'));
  EXPECT_THAT(received_.positions, ElementsAre(kPrompt, kPrompt + 2));
}

TEST_F(OutputAssemblerTest, TextIsCompleteUtf8AndTheRestComesAtTheEnd) {
  Make();
  AppendText("\xe2\x82");
  TakeEvents();
  EXPECT_THAT(received_.text, IsEmpty());
  EXPECT_THAT(received_.ids, IsEmpty());
  AppendText("\xac\xe2");
  TakeEvents();
  EXPECT_EQ(received_.text, "\xe2\x82\xac");
  EXPECT_THAT(received_.ids, ElementsAre(0xe2, 0x82, 0xac));
  assembler_->Close(FinishReason::kLength, -1);
  TakeEvents();
  EXPECT_EQ(received_.text, "\xe2\x82\xac\xef\xbf\xbd");
  EXPECT_EQ(assembler_->end().reason, FinishReason::kLength);
}

TEST_F(OutputAssemblerTest, TokensWithoutTextMakeNoTextEvent) {
  plan_.token_infos = false;
  Make();
  AppendText("\xe2\x82");
  TakeEvents();
  EXPECT_THAT(received_.positions, IsEmpty());
  AppendText("\xac");
  TakeEvents();
  // The event stands for all three tokens.
  EXPECT_THAT(received_.positions, ElementsAre(kPrompt));
}

// An output that ends: by a stop string, or as the engine tells.
struct Ended {
  const char* name;
  std::vector<int32_t> tokens;
  std::string stop_string;  // if not empty
  std::string before;       // the text before the last token, or before the engine tells
  std::string text;
  size_t sent;         // tokens, the first ones
  int64_t completion;  // tokens that count
  std::optional<FinishReason> told = {};
  void (*change)(OutputPlan& plan, StopCriteria& stop) = nullptr;
};
class EndedOutputTest : public OutputAssemblerTest, public ::testing::WithParamInterface<Ended> {};

TEST_P(EndedOutputTest, SendsWhatBelongsToIt) {
  const auto& [name, tokens, stop_string, before, text, sent, completion, told, change] =
      GetParam();
  if (!stop_string.empty()) plan_.stop_strings = {stop_string};
  if (change != nullptr) change(plan_, work_.stop);
  Make();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!told.has_value() && i + 1 == tokens.size()) {
      TakeEvents();
      EXPECT_EQ(received_.text, before);
    }
    assembler_->Append(Token(tokens[i]));
  }
  TakeEvents();
  if (told.has_value()) {
    EXPECT_EQ(received_.text, before);
    const bool matches = told == FinishReason::kEos || told == FinishReason::kStopToken;
    assembler_->Close(*told, matches ? tokens.back() : -1);
    TakeEvents();
    EXPECT_EQ(assembler_->end().reason, *told);
    EXPECT_EQ(assembler_->end().matched_token, matches ? tokens.back() : -1);
  }
  ASSERT_TRUE(assembler_->ended());
  EXPECT_EQ(assembler_->end().stop_string,
            told.has_value() ? std::nullopt : std::optional(stop_string));
  EXPECT_EQ(received_.text, text);
  EXPECT_EQ(received_.ids, std::vector<uint32_t>(tokens.begin(), tokens.begin() + sent));
  EXPECT_EQ(assembler_->completion_tokens(), completion);
}

std::vector<Ended> EndedOutputs() {
  using enum FinishReason;
  const auto ids = ByteIds;
  const std::vector<int32_t> words = {'x', kFirstWordId, kFirstWordId + 1};  // x abSTOP yz
  const auto include_stop = [](OutputPlan& plan, StopCriteria&) { plan.include_stop = true; };
  const auto stop_string_tokens = [](OutputPlan& plan, StopCriteria&) {
    plan.stop_string_tokens = true;
  };
  const auto without_text = [](OutputPlan& plan, StopCriteria&) { plan.text = false; };
  const auto least_three = [](OutputPlan&, StopCriteria& stop) { stop.min_new_tokens = 3; };
  const auto eos = [](OutputPlan&, StopCriteria& stop) { stop.ending_ids = EndingIds({kEosId}); };
  const auto stop_token = [](OutputPlan&, StopCriteria& stop) {
    stop.ending_ids = EndingIds({}, {'!'});
  };
  const auto included_token = [](OutputPlan& plan, StopCriteria& stop) {
    stop.ending_ids = EndingIds({}, {'!'});
    plan.include_stop = true;
  };
  constexpr auto kNone = std::nullopt;
  return {{"AStopStringThatIsIncluded", ids("a STOPxx"), "STOP", "a STOP", "a STOP", 6, 6, kNone,
           include_stop},
          {"ATokenThatBeginsBeforeTheStop", words, "STOPyz", "x", "xab", 2, 3},
          {"TokensOfAStopString", words, "STOPyz", "x", "xab", 3, 3, kNone, stop_string_tokens},
          {"HeldTextThatWasNoStop", ids("a STO"), "STOP", "a ", "a STO", 5, 5, kContextLength},
          {"AStopStringBeforeTheMinimum", ids("abcb"), "b", "abc", "abc", 3, 4, kNone, least_three},
          {"AStopStringWithoutText", ids("aSTx"), "ST", "", "", 1, 3, kNone, without_text},
          {"Eos", {'a', kEosId}, "", "a", "a", 1, 2, kEos, eos},
          {"AStopToken", ids("a!"), "", "a", "a", 1, 2, kStopToken, stop_token},
          // Below min_new_tokens the engine goes on.
          {"AStopTokenThatDidNotStop", ids("a!b!"), "", "a!b", "a!b!", 4, 4, kLength, stop_token},
          {"AStopTokenThatIsIncluded", ids("a!"), "", "a", "a!", 2, 2, kStopToken, included_token}};
}
INSTANTIATE_TEST_SUITE_P(Outputs, EndedOutputTest, ::testing::ValuesIn(EndedOutputs()),
                         [](const auto& info) { return info.param.name; });

TEST_F(OutputAssemblerTest, EventsWaitForMinChunkTokens) {
  plan_.min_chunk_tokens = 3;
  Make();
  AppendText("ab");
  TakeEvents();
  EXPECT_THAT(received_.positions, IsEmpty());
  AppendText("c");
  TakeEvents();
  EXPECT_EQ(received_.text, "abc");
  AppendText("d");
  TakeEvents();
  assembler_->Close(FinishReason::kLength, -1);
  TakeEvents();
  EXPECT_EQ(received_.text, "abcd");
  EXPECT_THAT(received_.positions, ElementsAre(kPrompt, kPrompt + 3));
}

TEST_F(OutputAssemblerTest, FinalOnlySendsOneEventAtTheEnd) {
  plan_.final_only = true;
  Make();
  AppendText("abc");
  TakeEvents();
  EXPECT_THAT(received_.positions, IsEmpty());
  assembler_->Close(FinishReason::kLength, -1);
  TakeEvents();
  EXPECT_EQ(received_.text, "abc");
  EXPECT_THAT(received_.positions, ElementsAre(kPrompt));
}

TEST_F(OutputAssemblerTest, FillsScoresAndAlternativesWhereThereAreSome) {
  Make();
  SampledToken token = Token('a');
  token.score = ScoredToken{'a', -0.5f, 2};
  token.top = {{'b', -0.25f, 1}, {'a', -0.5f, 2}};
  assembler_->Append(std::move(token));
  assembler_->Append(Token('c'));
  v1::GenerateTokens event;
  ASSERT_TRUE(assembler_->NextEvent(event));
  EXPECT_THAT(event, IsProto(R"(
      position: 10 text: "ac"
      tokens {
        id: 97 bytes: "a" logprob: -0.5 rank: 2 top { id: 98 logprob: -0.25 rank: 1 }
        top { id: 97 logprob: -0.5 rank: 2 } }
      tokens { id: 99 bytes: "c" })"));
}

TEST_F(OutputAssemblerTest, LargeOutputsAreCutIntoEvents) {
  plan_.final_only = true;
  Make();
  const int64_t tokens = 60'000;
  for (int64_t i = 0; i < tokens; ++i) {
    SampledToken token = Token('a');
    token.top.assign(2, ScoredToken{'a', -1.0f, 1});
    assembler_->Append(std::move(token));
  }
  assembler_->Close(FinishReason::kLength, -1);
  v1::GenerateTokens event;
  uint64_t next = kPrompt;
  std::string text;
  int events = 0;
  while (assembler_->NextEvent(event)) {
    EXPECT_EQ(event.position(), next);
    EXPECT_LE(event.ByteSizeLong(), static_cast<size_t>(2 * kMaxChunkBytes));
    next += static_cast<uint64_t>(event.tokens_size());
    text += event.text();
    event.Clear();
    ++events;
  }
  EXPECT_GT(events, 1);
  EXPECT_EQ(next, static_cast<uint64_t>(kPrompt + tokens));
  EXPECT_EQ(text, std::string(static_cast<size_t>(tokens), 'a'));
}

// However events are taken, the text is what decoding everything at once gives, up to the stop.
TEST_F(OutputAssemblerTest, TheTextDoesNotDependOnWhenEventsAreTaken) {
  std::mt19937 random(3);
  plan_.stop_strings = {"aab", "\xc3\xa9z"};
  for (int round = 0; round < 500; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 30; ++i) {
      const int32_t choices[] = {'a', 'a', 'b', 'z', 0xc3, 0xa9, kYz, kEosId};
      ids.push_back(choices[random() % 8]);
    }
    const std::string all = tokenizer_->Decode(ids);
    std::string wanted = all;
    size_t best_end = std::string::npos;
    std::optional<std::string> stopped;
    for (const std::string& stop : plan_.stop_strings) {
      const size_t at = all.find(stop);
      if (at == std::string::npos || at + stop.size() >= best_end) continue;
      best_end = at + stop.size();
      wanted = all.substr(0, at);
      stopped = stop;
    }
    Make();
    received_ = {};
    for (const int32_t id : ids) {
      assembler_->Append(Token(id));
      if (random() % 3 == 0) TakeEvents();
    }
    assembler_->Close(FinishReason::kLength, -1);
    TakeEvents();
    ASSERT_EQ(received_.text, wanted);
    EXPECT_EQ(assembler_->end().stop_string, stopped);
  }
}

class OutputRegionsTest : public OutputAssemblerTest {
 protected:
  OutputRegionsTest() {
    plan_.regions.emplace().format = *FindChatFormat(nullptr, *tokenizer_, "think", "hermes");
  }
  // "marker|" and "text", a region's name before what it holds, its end behind it.
  static std::string Shown(const RegionWriter::Events& events) {
    std::string text;
    for (const v1::RegionEvent& event : events) {
      switch (event.event_case()) {
        case v1::RegionEvent::kStarted:
          text += std::to_string(event.started().region_index());
          text += event.started().kind() == v1::REGION_KIND_REASONING ? "R("
                  : event.started().kind() == v1::REGION_KIND_TEXT
                      ? "T("
                      : event.started().tool_call().name() + "(";
          break;
        case v1::RegionEvent::kDelta:
          text += event.delta().text();
          break;
        case v1::RegionEvent::kFinished:
          text += event.finished().complete() ? ")" : ")!";
          break;
        case v1::RegionEvent::kMarker:
          text += "[" + event.marker() + "]";
          break;
        case v1::RegionEvent::EVENT_NOT_SET:
          ADD_FAILURE();
      }
    }
    return text;
  }
  std::string Regions() {
    RegionWriter::Events all;
    v1::GenerateTokens event;
    while (assembler_->NextEvent(event)) {
      EXPECT_TRUE(event.tokens_size() > 0 || !event.text().empty() || event.regions_size() > 0);
      all.MergeFrom(event.regions());
      event.Clear();
    }
    if (assembler_->ended()) {
      v1::GenerateFinished finished;
      assembler_->EndRegions(finished);
      all.MergeFrom(finished.regions());
    }
    return Shown(all);
  }
  static constexpr char kCall[] =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
};

TEST_F(OutputRegionsTest, TellsWhatTheTextIs) {
  plan_.final_only = true;
  Make();
  AppendText(std::string("<think>\nhm\n</think>\n\nok\n") + kCall);
  assembler_->Close(FinishReason::kLength, -1);
  EXPECT_EQ(Regions(),
            "[<think>\n]0R(hm)[\n</think>\n\n]1T(ok)[\n<tool_call>\n{\"name\": \"f\", "
            "\"arguments\": ]2f({\"a\": 1})[}\n</tool_call>]");
  const RegionCounts counts = assembler_->regions();
  EXPECT_EQ(counts.reasoning, 1);
  EXPECT_EQ(counts.text, 1);
  EXPECT_EQ(counts.complete_calls, 1);
  EXPECT_EQ(counts.cut_calls, 0);
  EXPECT_EQ(counts.reasoning_tokens, 2);
}

TEST_F(OutputRegionsTest, TheRestComesWithTheEnd) {
  Make();
  AppendText("a<tool");
  EXPECT_EQ(Regions(), "0T(a");
  assembler_->Close(FinishReason::kLength, -1);
  EXPECT_EQ(Regions(), "<tool)");
}

TEST_F(OutputRegionsTest, ACallWithinWhichTheOutputEndsIsCut) {
  plan_.stop_strings = {": 1"};
  plan_.final_only = true;
  Make();
  AppendText(kCall);
  ASSERT_TRUE(assembler_->ended());
  EXPECT_EQ(Regions(), "[<tool_call>\n{\"name\": \"f\", \"arguments\": ]0f({\"a\")!");
  EXPECT_EQ(assembler_->regions().cut_calls, 1);
}

TEST_F(OutputRegionsTest, AStopStringWithinAMarkerEndsTheOutputThere) {
  plan_.stop_strings = {"_call"};
  Make();
  AppendText(std::string("ok") + kCall);
  ASSERT_TRUE(assembler_->ended());
  TakeEvents();
  EXPECT_EQ(received_.text, "ok<tool");
}

TEST_F(OutputRegionsTest, WithoutTextAndTokensOnlyEventsThatTellSomething) {
  plan_.text = plan_.token_infos = false;
  Make();
  AppendText("<think>");
  v1::GenerateTokens event;
  AppendText("\n");
  while (assembler_->NextEvent(event)) event.Clear();
  AppendText("h");
  ASSERT_TRUE(assembler_->NextEvent(event));
  EXPECT_GT(event.regions_size(), 0);
  EXPECT_THAT(event.text(), IsEmpty());
  EXPECT_LE(event.position(), static_cast<uint64_t>(kPrompt + 8));
  EXPECT_FALSE(assembler_->NextEvent(event));
}

TEST_F(OutputRegionsTest, SpecialTokensAreTextWhereMarkersAre) {
  Make();
  assembler_->Append(Token(kBosId));
  AppendText("a");
  TakeEvents();
  EXPECT_EQ(received_.text, "a");
  plan_.regions->format.special_tokens = {"<bos>"};
  received_ = {};
  Make();
  assembler_->Append(Token(kBosId));
  AppendText("a");
  TakeEvents();
  EXPECT_EQ(received_.text, "<bos>a");
}

TEST(CallIdTest, FollowsFromPromptOutputAndPlace) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  const std::string id = CallId(CallSeed(prompt, 0), 0);
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
            std::string::npos);
  EXPECT_EQ(CallId(CallSeed(prompt, 0), 0), id);
  std::set<std::string> ids;
  for (int32_t last = 0; last < 100; ++last) {
    for (int64_t output = 0; output < 10; ++output) {
      for (int32_t call = 0; call < 10; ++call) {
        ids.insert(CallId(CallSeed(std::vector<int32_t>{1, last}, output), call));
      }
    }
  }
  EXPECT_EQ(ids.size(), 10'000u);
}

}  // namespace
}  // namespace tlm
