// OutputAssembler: a stream that was cut behind any event and continued from its token ids is the
// undisturbed one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/output/output_assembler.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kPrompt = 10;
constexpr int32_t kAbStop = kFirstWordId;
constexpr int32_t kYz = kFirstWordId + 1;

// What a client has put together.
struct Received {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<v1::RegionEvent> regions = {};  // what grows was joined
};

void AddRegions(const RegionWriter::Events& events, std::vector<v1::RegionEvent>& regions) {
  for (const v1::RegionEvent& event : events) {
    v1::RegionEvent* const last = regions.empty() ? nullptr : &regions.back();
    if (event.has_delta() && last != nullptr && last->has_delta()) {
      EXPECT_EQ(event.delta().region_index(), last->delta().region_index());
      last->mutable_delta()->mutable_text()->append(event.delta().text());
      last->mutable_delta()->mutable_arguments_json()->append(event.delta().arguments_json());
    } else if (!event.marker().empty() && last != nullptr && !last->marker().empty()) {
      last->mutable_marker()->append(event.marker());
    } else {
      regions.push_back(event);
    }
  }
}

std::string TextOf(const std::vector<v1::RegionEvent>& regions) {
  std::string text;
  for (const v1::RegionEvent& event : regions) text += event.delta().text() + event.marker();
  return text;
}

// One output, the engine's part scripted by the tokens it samples.
class Stream {
 public:
  Stream(const Tokenizer* tokenizer, const OutputPlan& plan, const GenerateWork& work,
         std::vector<int32_t> script)
      : assembler(plan, work, tokenizer, kPrompt), stop_(work.stop), script_(std::move(script)) {}

  absl::Status Resume(const Received& from) {
    received = from;
    drawn_ = from.ids.size();
    return assembler.Replay(from.ids);
  }
  // Draws one token, or ends the output if nothing more is to be drawn.
  void Step() {
    if (!EndsAfter(drawn_)) {
      SampledToken token;
      token.id = script_[drawn_++];
      token.top = top;
      assembler.Append(std::move(token));
    }
    if (!EndsAfter(drawn_)) return;
    closed_ = true;
    const int32_t last = drawn_ == 0 ? -1 : script_[drawn_ - 1];
    if (Matches(drawn_)) {
      const bool eos = stop_.ending_ids.IsEos(last);
      return assembler.Close(eos ? FinishReason::kEos : FinishReason::kStopToken, last);
    }
    assembler.Close(FinishReason::kLength, -1);
  }
  bool done() const { return closed_ || assembler.ended(); }
  // Takes the events that are due and calls `cut` behind each.
  template <typename Cut>
  void TakeEvents(Cut cut) {
    v1::GenerateTokens event;
    while (assembler.NextEvent(event)) {
      EXPECT_EQ(event.position(), kPrompt + received.ids.size());
      for (const v1::TokenInfo& info : event.tokens()) {
        received.ids.push_back(static_cast<int32_t>(info.id()));
      }
      received.text += event.text();
      AddRegions(event.regions(), received.regions);
      event.Clear();
      cut(received);
    }
  }
  void TakeEvents() {
    TakeEvents([](const Received&) {});
  }
  // Behind the last event.
  void Finish() {
    v1::GenerateFinished finished;
    assembler.EndRegions(finished);
    AddRegions(finished.regions(), received.regions);
  }
  void Run() {
    while (!done()) Step();
    TakeEvents();
  }

  OutputAssembler assembler;
  Received received;
  std::vector<ScoredToken> top;  // of every token drawn

 private:
  // As Sequence::Append: by the `count`th token.
  bool Matches(size_t count) const {
    return static_cast<int64_t>(count) > stop_.min_new_tokens &&
           stop_.ending_ids.Contains(script_[count - 1]);
  }
  bool EndsAfter(size_t count) const { return count == script_.size() || Matches(count); }

  const StopCriteria stop_;
  const std::vector<int32_t> script_;
  size_t drawn_ = 0;
  bool closed_ = false;
};

class OutputResumeTest : public ::testing::Test {
 protected:
  OutputResumeTest() {
    plan_.token_infos = true;
    work_.stop.ending_ids = EndingIds({kEosId});
  }

  Stream Make(const std::vector<int32_t>& script) const {
    return Stream(tokenizer_.get(), plan_, work_, script);
  }

  // Runs the stream to its end; returns all of its cuts, and the stream whole.
  std::vector<Received> CutsOf(Stream& stream) {
    std::vector<Received> cuts = {Received()};
    const auto add = [&cuts](const Received& cut) { cuts.push_back(cut); };
    while (!stream.done()) {
      stream.Step();
      if (random_() % 3 > 0) stream.TakeEvents(add);
    }
    stream.TakeEvents(add);
    return cuts;
  }

  void ExpectSame(const Stream& resumed, const Stream& whole) {
    EXPECT_EQ(resumed.received.ids, whole.received.ids);
    EXPECT_EQ(resumed.received.text, whole.received.text);
    EXPECT_EQ(resumed.assembler.completion_tokens(), whole.assembler.completion_tokens());
    ASSERT_TRUE(resumed.assembler.ended());
    EXPECT_EQ(resumed.assembler.end().reason, whole.assembler.end().reason);
    EXPECT_EQ(resumed.assembler.end().matched_token, whole.assembler.end().matched_token);
    EXPECT_EQ(resumed.assembler.end().stop_string, whole.assembler.end().stop_string);
    ASSERT_EQ(resumed.received.regions.size(), whole.received.regions.size());
    for (size_t i = 0; i < whole.received.regions.size(); ++i) {
      EXPECT_EQ(resumed.received.regions[i].DebugString(), whole.received.regions[i].DebugString());
    }
    EXPECT_EQ(resumed.assembler.regions().reasoning_tokens,
              whole.assembler.regions().reasoning_tokens);
  }

  // Cuts the script's stream after every event and continues it; returns how many cuts there were.
  int64_t ContinueEveryCut(const Tokenizer* tokenizer, const std::vector<int32_t>& script,
                           RegionCounts* counts = nullptr) {
    Stream whole(tokenizer, plan_, work_, script);
    const std::vector<Received> cuts = CutsOf(whole);
    whole.Finish();
    if (counts != nullptr) counts->Add(whole.assembler.regions());
    if (plan_.text && plan_.regions.has_value()) {
      EXPECT_EQ(TextOf(whole.received.regions), whole.received.text);
    }
    for (const Received& cut : cuts) {
      SCOPED_TRACE(cut.ids.size());
      Stream resumed(tokenizer, plan_, work_, script);
      EXPECT_THAT(resumed.Resume(cut), IsOk());
      EXPECT_EQ(resumed.assembler.replayed_tokens(), static_cast<int64_t>(cut.ids.size()));
      CutsOf(resumed);
      resumed.Finish();
      ExpectSame(resumed, whole);
    }
    return std::ssize(cuts);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer({"abSTOP", "yz"});
  OutputPlan plan_;
  GenerateWork work_;
  std::mt19937 random_{7};
};

TEST_F(OutputResumeTest, EveryCutContinuesTheUndisturbedStream) {
  const int32_t choices[] = {'a',  'a',  'b', 'S', 'T',     0xe2,   0x82,  0xac,
                             0xc3, 0xa9, '!', kYz, kAbStop, kBosId, kEosId};
  const std::vector<std::string> stops = {"aab",           "\xc3\xa9y", "ST", "STOPyz",
                                          "b\xef\xbf\xbd", "zy",        "ba"};
  int64_t resumed_streams = 0;
  for (int round = 0; round < 8000; ++round) {
    std::vector<int32_t> script(1 + random_() % 24);
    const size_t width = random_() % 4 == 0 ? 15 : 14;
    for (int32_t& id : script) id = choices[random_() % width];
    plan_.stop_strings.clear();
    for (size_t i = random_() % 4; i > 0; --i) {
      plan_.stop_strings.push_back(stops[random_() % stops.size()]);
    }
    plan_.include_stop = random_() % 2 == 0;
    plan_.text = random_() % 8 > 0;
    plan_.min_chunk_tokens = 1 + static_cast<int64_t>(random_() % 3);
    work_.stop.min_new_tokens = random_() % 3 == 0 ? static_cast<int64_t>(random_() % 6) : 0;
    work_.stop.ending_ids = random_() % 3 == 0 ? EndingIds({kEosId}, {'!'}) : EndingIds({kEosId});
    // What ends an output is not drawn before the minimum.
    for (size_t i = 0; i < script.size() && static_cast<int64_t>(i) < work_.stop.min_new_tokens;
         ++i) {
      if (script[i] == '!' || script[i] == kEosId) script[i] = 'a';
    }
    resumed_streams += ContinueEveryCut(tokenizer_.get(), script);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(resumed_streams, 20'000);
}

// With regions: those of the undisturbed stream, wherever it was cut. Their text is the output's.
TEST_F(OutputResumeTest, RegionsContinueBehindEveryCut) {
  const std::vector<std::string> words = {"<think>",        "</think>",
                                          "<tool_call>",    "</tool_call>",
                                          "{\"name\": \"f", "\", \"arguments\": ",
                                          "{\"a\": 1}",     "}\n"};
  const std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer(words);
  std::vector<int32_t> choices = {'a', '<', '{', '}', '\n', '\n', ' ', '"', 0xe2, kBosId};
  for (size_t i = 0; i < words.size(); ++i) {
    choices.insert(choices.end(), 2, kFirstWordId + static_cast<int32_t>(i));
  }
  const std::string call_text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  RegionCounts counts;
  for (int round = 0; round < 2000; ++round) {
    RegionPlan& regions = plan_.regions.emplace();
    regions.format = *FindChatFormat(nullptr, *tokenizer, "think", "hermes");
    // Then special tokens are text.
    if (random_() % 2 == 0) regions.format.special_tokens = {"<bos>"};
    regions.begins_in_reasoning = random_() % 4 == 0;
    plan_.text = random_() % 4 > 0;
    plan_.include_stop = random_() % 2 == 0;
    plan_.min_chunk_tokens = 1 + static_cast<int64_t>(random_() % 3);
    plan_.final_only = random_() % 8 == 0;
    plan_.stop_strings.clear();
    if (random_() % 4 == 0) plan_.stop_strings = {"a}", "k>\n<"};
    std::vector<int32_t> script(1 + random_() % 24);
    for (int32_t& id : script) id = choices[random_() % choices.size()];
    // A call, or the beginning of one.
    if (random_() % 2 == 0) {
      const size_t bytes =
          random_() % 4 == 0 ? call_text.size() - random_() % 30 : call_text.size();
      const auto ids = *tokenizer->Encode(call_text.substr(0, bytes), /*add_special_tokens=*/false);
      const size_t place = bytes < call_text.size() ? script.size() : random_() % script.size();
      script.insert(script.begin() + static_cast<int64_t>(place), ids.begin(), ids.end());
    }
    ContinueEveryCut(tokenizer.get(), script, &counts);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  // All of it came up.
  EXPECT_GT(counts.reasoning, 100);
  EXPECT_GT(counts.text, 1000);
  EXPECT_GT(counts.complete_calls, 100);
  EXPECT_GT(counts.cut_calls, 10);
  EXPECT_GT(counts.reasoning_tokens, 1000);
}

// The text a client has is a matter of how many tokens it has: whenever they were sent.
TEST_F(OutputResumeTest, TheTextSentFollowsFromTheTokensSent) {
  plan_.stop_strings = {"STOP", "ba"};
  const std::vector<int32_t> script = {'a', 'b', 0xe2, 0x82, 0xac, kBosId, 'S', 'T', 'b', 'b', 'a'};
  std::vector<std::optional<std::string>> texts(script.size() + 1);
  for (int round = 0; round < 200; ++round) {
    Stream stream = Make(script);
    for (const Received& cut : CutsOf(stream)) {
      std::optional<std::string>& text = texts[cut.ids.size()];
      if (text.has_value()) {
        EXPECT_EQ(*text, cut.text);
      } else {
        text = cut.text;
      }
    }
  }
}

// The tokens of a run in which a stop string may have begun fill more than an event: the next one
// ends where nothing is settled, and the stream can be continued behind it all the same.
TEST_F(OutputResumeTest, AnEventThatIsFullBeforeATokenIsSettled) {
  plan_.stop_strings = {"ab!"};
  std::vector<int32_t> script = {'x', 'a'};
  script.resize(5000, kBosId);
  script.insert(script.end(), {'b', 'c', 'd'});
  const std::vector<ScoredToken> top(20, ScoredToken{'a', -1.0f, 1});
  Stream whole = Make(script);
  whole.top = top;
  std::vector<Received> cuts;
  while (!whole.done()) whole.Step();
  whole.TakeEvents([&cuts](const Received& cut) { cuts.push_back(cut); });
  ASSERT_GT(cuts.size(), 2u);
  EXPECT_EQ(cuts[0].text, "x");
  EXPECT_EQ(whole.received.text, "xabcd");
  for (const Received& cut : cuts) {
    Stream resumed = Make(script);
    resumed.top = top;
    ASSERT_THAT(resumed.Resume(cut), IsOk());
    resumed.Run();
    ExpectSame(resumed, whole);
  }
}

TEST_F(OutputResumeTest, NothingButTheEndIsSentOfAStreamThatHadAllItsTokens) {
  const std::vector<int32_t> script = {'a', 0xe2};
  Stream whole = Make(script);
  whole.Run();
  EXPECT_EQ(whole.received.text, "a\xef\xbf\xbd");
  Stream resumed = Make(script);
  ASSERT_THAT(resumed.Resume(whole.received), IsOk());
  resumed.Step();
  v1::GenerateTokens event;
  EXPECT_FALSE(resumed.assembler.NextEvent(event));
  ExpectSame(resumed, whole);
}

TEST_F(OutputResumeTest, AStopStringInTheLastTokenEndsTheOutputAtOnce) {
  plan_.stop_strings = {"STOP"};
  Stream stream = Make({'x', kAbStop, 'q'});
  ASSERT_THAT(stream.Resume({{'x', kAbStop}, "xab"}), IsOk());
  EXPECT_TRUE(stream.assembler.ended());
  EXPECT_EQ(stream.assembler.end().stop_string, "STOP");
  EXPECT_EQ(stream.assembler.completion_tokens(), 2);
  v1::GenerateTokens event;
  EXPECT_FALSE(stream.assembler.NextEvent(event));
}

TEST_F(OutputResumeTest, IdsBehindAStopStringAreRefused) {
  plan_.stop_strings = {"STOP"};
  Stream behind = Make({});
  EXPECT_THAT(behind.Resume({{'x', kAbStop, 'q'}, ""}),
              IsInvalidArgument("resume.generated_token_ids has 3 entries"));
  // A server would not have sent the string's own tokens.
  Stream within = Make({});
  EXPECT_THAT(within.Resume({{'S', 'T', 'O', 'P'}, ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  plan_.include_stop = true;
  Stream included = Make({});
  EXPECT_THAT(included.Resume({{'S', 'T', 'O', 'P'}, "STOP"}), IsOk());
}

TEST_F(OutputResumeTest, WithoutATokenizerIdsAlone) {
  plan_.text = false;
  Stream stream(nullptr, plan_, work_, {5, 6, 7});
  ASSERT_THAT(stream.Resume({{5, 6}, ""}), IsOk());
  stream.Run();
  EXPECT_THAT(stream.received.ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(stream.received.text, IsEmpty());
}

}  // namespace
}  // namespace tlm
