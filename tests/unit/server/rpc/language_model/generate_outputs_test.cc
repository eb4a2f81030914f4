// Generate with several outputs, and with scores of the prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class GenerateOutputsTest : public GenerateTest {
 protected:
  GenerateOutputsTest() { request_.mutable_sampling()->set_num_sequences(3); }

  void PushStarts() {
    for (size_t i = 0; i < streams_.size(); ++i) PushStart(i);
  }
  void EndAll() {
    for (size_t i = 0; i < streams_.size(); ++i) PushEnd(EndedWith(FinishReason::kLength), i);
    EXPECT_TRUE(ReadToTheEnd().ok());
  }
};

TEST_F(GenerateOutputsTest, EveryOutputHasItsTokenStreamAndItsEvents) {
  request_.mutable_output()->set_timing(true);
  Start();
  ASSERT_EQ(streams_.size(), 3u);
  EXPECT_EQ(engine_.WaitForRequest().generate()->output_index, 0u);
  PushStarts();
  PushText("a", 0);
  PushText("bb", 1);
  PushText("ccc", 2);
  EndAll();
  EXPECT_EQ(kinds_.front(), Event::kStarted);
  EXPECT_EQ(kinds_.back(), Event::kSummary);
  EXPECT_EQ(std::count(kinds_.begin(), kinds_.end(), Event::kStarted), 1);
  EXPECT_EQ(std::count(kinds_.begin(), kinds_.end(), Event::kSummary), 1);
  EXPECT_THAT(texts_, ElementsAre("a", "bb", "ccc"));
  std::vector<uint32_t> finished;
  for (const auto& end : finished_) finished.push_back(end.output_index());
  EXPECT_THAT(finished, UnorderedElementsAre(0u, 1u, 2u));
  EXPECT_EQ(summary_.usage().prompt_tokens(), 5u);
  EXPECT_EQ(summary_.usage().completion_tokens(), 6u);
  EXPECT_EQ(summary_.timing().total().nanos(), 321'000'000);
}

TEST_F(GenerateOutputsTest, StartedWaitsForTheFirstOutput) {
  Start();
  PushStart(1);
  PushText("b", 1);
  PushStart(0);
  EXPECT_EQ(Read().event_case(), Event::kStarted);
  EXPECT_EQ(Read().tokens().output_index(), 1u);
  EndAll();
}

TEST_F(GenerateOutputsTest, OutputsTakeTurns) {
  request_.mutable_output()->set_final_only(true);
  request_.mutable_output()->set_token_ids(true);
  Start();
  PushStarts();
  EXPECT_EQ(Read().event_case(), Event::kStarted);
  SampledToken token = Token('x');
  token.top.assign(20, ScoredToken{'x', -1.0f, 1});
  for (size_t i = 0; i < 3; ++i) {
    for (int n = 0; n < 3000; ++n) Push(token, i);  // more than one event
  }
  for (size_t i = 0; i < 3; ++i) streams_[i]->PushEnd(EndedWith(FinishReason::kLength));
  FakeEngine::Deliver(*stream_);
  std::vector<uint32_t> order;
  v1::GenerateResponse event;
  while (reader_->Read(&event)) {
    if (event.has_tokens()) order.push_back(event.tokens().output_index());
  }
  EXPECT_TRUE(reader_->Finish().ok());
  ASSERT_GE(order.size(), 6u);
  order.resize(6);
  EXPECT_THAT(order, ElementsAre(0u, 1u, 2u, 0u, 1u, 2u));
}

TEST_F(GenerateOutputsTest, AStopStringEndsItsOwnOutputOnly) {
  request_.mutable_stopping()->add_stop_strings("STOP");
  Start();
  PushStarts();
  PushText("one STOP", 1);
  engine_.WaitUntilDetached(*streams_[1]);
  EXPECT_FALSE(streams_[0]->detached());
  PushEnd(FailedWith(Cancelled("detached")), 1);
  PushText("zero", 0);
  PushText("two", 2);
  PushEnd(EndedWith(FinishReason::kLength), 0);
  EXPECT_FALSE(streams_[2]->detached());
  ReadToTheEndAfter(EndedWith(FinishReason::kLength), 2);
  EXPECT_THAT(texts_, ElementsAre("zero", "one ", "two"));
  EXPECT_EQ(summary_.usage().completion_tokens(), 15u);
}

TEST_F(GenerateOutputsTest, OneFailureEndsTheCallAndLetsGoOfTheRest) {
  Start();
  PushStarts();
  PushText("ab", 0);
  PushEnd(FailedWith(DataLoss("non-finite logits")), 2);
  engine_.WaitUntilDetached(*streams_[0]);
  engine_.WaitUntilDetached(*streams_[1]);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(texts_[0], "ab");
  EXPECT_EQ(Trailer("tlm-completion-tokens"), "2");
  // The engine's later results are ignored.
  PushEnd(FailedWith(Cancelled("detached")), 0);
  PushEnd(FailedWith(Cancelled("detached")), 1);
}

TEST_F(GenerateOutputsTest, ThePromptIsCountedOnce) {
  request_.mutable_sampling()->set_num_sequences(2);
  request_.mutable_output()->set_resource_usage(true);
  Start();
  for (size_t i = 0; i < 2; ++i) PushStart(i);
  PushText("ab", 0);
  PushText("abcd", 1);
  StreamEnd first = EndedWith(FinishReason::kLength);
  first.steps = 2;  // the prompt, one decode
  StreamEnd second = EndedWith(FinishReason::kLength);
  second.steps = 3;  // three decodes, the first beside that of the other output
  second.kv_blocks_peak = 1;
  PushEnd(first, 0);
  ReadToTheEndAfter(second, 1);
  // Positions 0 .. 4, then 5 alone and 5 .. 7; one shared row and 1 + 3 others.
  EXPECT_EQ(summary_.resources().flops(),
            (5 + 1 + 3) * kLayerFlops + (15 + 6 + 6 + 7 + 8) * kAttentionFlops + 5 * kHeadFlops);
  EXPECT_EQ(summary_.resources().kv_blocks_peak(), 3u);
  EXPECT_EQ(summary_.resources().weight_bytes_read(), 4 * kStepWeightBytes);
}

TEST_F(GenerateOutputsTest, GuessesAreSummedOverTheOutputs) {
  request_.mutable_sampling()->set_num_sequences(2);
  request_.mutable_output()->set_resource_usage(true);
  Start();
  for (size_t i = 0; i < 2; ++i) {
    PushStart(i);
    PushText("abcd", i);
    StreamEnd end = EndedWith(FinishReason::kLength);
    end.steps = i == 0 ? 3 : 2;  // the prompt's, and two that give three tokens
    end.speculation = {.drafted = 5, .accepted = 2, .steps_saved = 1};
    PushEnd(end, i);
  }
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(summary_.speculation(),
              IsProto("drafted_tokens: 10 accepted_tokens: 4 steps_saved: 2"));
  EXPECT_EQ(summary_.resources().weight_bytes_read(), 3 * kStepWeightBytes);
}

TEST_F(GenerateOutputsTest, WithoutGuessesNoneAreTold) {
  request_.mutable_sampling()->set_num_sequences(1);
  request_.mutable_speculation()->set_mode(v1::SpeculationOptions::OFF);
  Start();
  EXPECT_EQ(engine_.WaitForRequest().generate()->max_draft_tokens, 0);
  PushStart();
  EndAll();
  EXPECT_FALSE(summary_.has_speculation());
  // Nor by a server that does not guess.
  request_.clear_speculation();
  model_.limits.engine.speculation = Speculation::kOff;
  Start(1);
  PushStart();
  EndAll();
  EXPECT_FALSE(summary_.has_speculation());
}

TEST_F(GenerateOutputsTest, TokensWithoutADrawCostNoHead) {
  request_.mutable_sampling()->set_num_sequences(1);
  request_.mutable_output()->set_resource_usage(true);
  Start();
  PushStart();
  PushText("abcdef");
  StreamEnd end = EndedWith(FinishReason::kLength);
  end.forced_tokens = 3;      // "b", and "ef", behind
  end.uncomputed_tokens = 2;  // "d", of which "ef" ended the output
  ReadToTheEndAfter(end);
  // Positions 0 .. 4, then 5 .. 7; rows for "a", "c" and "d".
  EXPECT_EQ(summary_.resources().flops(),
            (5 + 3) * kLayerFlops + (15 + 6 + 7 + 8) * kAttentionFlops + 3 * kHeadFlops);
}

class PromptLogprobsTest : public GenerateTest {
 protected:
  PromptLogprobsTest() {
    request_.mutable_output()->set_prompt_logprobs(true);
    request_.mutable_output()->set_top_logprobs(1);
  }
  void PushScored(int64_t index, int32_t id) {
    SampledToken token = Token(id);
    token.score = ScoredToken{id, -1.5f * static_cast<float>(index), 2};
    token.top = {{'z', -0.25f, 1}};
    stream_->PushScored({index, token});
  }
  v1::GeneratePrompt ReadPrompt() {
    const v1::GenerateResponse event = Read();
    EXPECT_TRUE(event.has_prompt());
    return event.prompt();
  }
};

TEST_F(PromptLogprobsTest, TheFirstTokenHasNone) {
  request_.set_prompt("abc");
  Start();
  EXPECT_TRUE(engine_.WaitForRequest().generate()->score_prompt);
  PushStart();
  PushScored(1, 'b');
  PushScored(2, 'c');
  PushText("x");
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_EQ(Read().event_case(), Event::kStarted);
  std::vector<v1::TokenInfo> infos;
  std::vector<v1::GenerateResponse> events;
  v1::GenerateResponse event;
  while (reader_->Read(&event)) {
    if (event.has_prompt()) {
      EXPECT_EQ(event.prompt().offset(), infos.size());
      EXPECT_TRUE(events.empty()) << "a prompt event after others";
      infos.insert(infos.end(), event.prompt().tokens().begin(), event.prompt().tokens().end());
    } else {
      events.push_back(event);
    }
  }
  EXPECT_TRUE(reader_->Finish().ok());
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_THAT(infos[0], IsProto(R"(id: 97 bytes: "a")"));
  EXPECT_THAT(infos[2], IsProto(R"(
      id: 99 bytes: "c" logprob: -3 rank: 2 top { id: 122 logprob: -0.25 rank: 1 })"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].tokens().text(), "x");
}

TEST_F(PromptLogprobsTest, NoTokensGoBeforeTheWholePrompt) {
  request_.set_prompt("ab");
  request_.mutable_sampling()->set_num_sequences(2);
  Start();
  PushStart(0);
  EXPECT_EQ(Read().event_case(), Event::kStarted);
  EXPECT_EQ(ReadPrompt().tokens_size(), 1);
  // Those of another output overtake the scores, which come through the first token stream.
  PushText("y", 1);
  PushScored(1, 'b');
  FakeEngine::Deliver(*stream_);
  EXPECT_EQ(ReadPrompt().offset(), 1u);
  EXPECT_EQ(Read().tokens().text(), "y");
  PushEnd(EndedWith(FinishReason::kLength), 0);
  ReadToTheEndAfter(EndedWith(FinishReason::kLength), 1);
}

TEST_F(PromptLogprobsTest, APromptOfOneTokenHasOneEvent) {
  request_.set_prompt("a");
  Start();
  PushStart();
  PushText("x");
  ReadToTheEndAfter();
  EXPECT_THAT(kinds_, ElementsAre(Event::kStarted, Event::kPrompt, Event::kTokens, Event::kFinished,
                                  Event::kSummary));
}

TEST_F(PromptLogprobsTest, ATimeLimitWithinThePromptEndsItsEventsToo) {
  request_.set_prompt("abc");
  Start();
  PushStart();
  PushScored(1, 'b');
  ReadToTheEndAfter(EndedWith(FinishReason::kTimeLimit));
  EXPECT_EQ(kinds_.front(), Event::kStarted);
  EXPECT_EQ(kinds_[1], Event::kPrompt);
  EXPECT_EQ(kinds_[kinds_.size() - 2], Event::kFinished);
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_EQ(summary_.usage().completion_tokens(), 0u);
}

}  // namespace
}  // namespace tlm
