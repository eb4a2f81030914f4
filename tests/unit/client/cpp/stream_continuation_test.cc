#include "client/cpp/stream_continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "client/cpp/generate_collector.h"
#include "tests/support/proto.h"
#include "tests/unit/client/scripted_replica.h"

namespace tlm::client {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Taken = StreamContinuation::Taken;

const absl::Time kStart = absl::UnixEpoch();

v1::GenerateRequest Request(uint32_t max_new_tokens = 12) {
  v1::GenerateRequest request;
  request.set_prompt("p");
  request.mutable_sampling()->set_seed(3);
  request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  return request;
}

std::string Serialized(const google::protobuf::Message& message) {
  return message.SerializeAsString();
}

// What an application makes of a stream; checks on the way that it is one.
class Application {
 public:
  void Take(const v1::GenerateResponse& event) {
    if (event.has_tokens()) {
      CheckPosition(event.tokens());
      AddRegions(event.tokens().output_index(), event.tokens().regions());
    }
    if (event.has_finished()) {
      AddRegions(event.finished().output_index(), event.finished().regions());
      EXPECT_TRUE(finished_.insert(event.finished().output_index()).second);
    }
    EXPECT_EQ(event.has_started(), events_ == 0);
    ++events_;
    EXPECT_TRUE(collector_.Add(event).ok());
  }

  const GenerateResult& collected() const { return collector_.result(); }

  // All of it as text, but for the number of cached tokens in `started`.
  std::string Everything() {
    EXPECT_TRUE(collector_.CheckComplete().ok());
    GenerateResult result = collector_.result();
    EXPECT_EQ(result.summary.usage().cached_prompt_tokens(), result.started.cached_prompt_tokens());
    result.started.clear_cached_prompt_tokens();
    result.summary.mutable_usage()->clear_cached_prompt_tokens();
    std::string text = Serialized(result.started);
    for (const auto& [output, regions] : regions_) text += regions + "\n";
    for (const v1::TokenInfo& token : result.prompt) text += Serialized(token) + "\n";
    for (const Output& output : result.outputs) {
      text += output.text + "\n" + output.reasoning + "\n" + output.content + "\n";
      for (const ToolCall& call : output.tool_calls) {
        text += call.id + call.name + call.arguments_json + (call.complete ? "\n" : "...\n");
      }
      for (const v1::TokenInfo& token : output.tokens) text += Serialized(token) + "\n";
      v1::GenerateFinished finished = output.finished;
      finished.clear_regions();  // Part of them may have come earlier.
      text += Serialized(finished) + "\n";
    }
    return text + Serialized(result.summary);
  }

 private:
  void CheckPosition(const v1::GenerateTokens& tokens) {
    uint64_t& next = next_position_[tokens.output_index()];
    if (next == 0) next = kScriptedPromptTokens;
    EXPECT_GE(tokens.position(), next);
    EXPECT_TRUE(tokens.tokens_size() == 0 || tokens.position() == next);
    next = tokens.position() + static_cast<uint64_t>(tokens.tokens_size());
  }

  // In a form that does not tell where events ended.
  void AddRegions(uint32_t output,
                  const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events) {
    std::string& text = regions_[output];
    std::string& arguments = arguments_[output];
    for (const v1::RegionEvent& event : events) {
      if (event.has_started() || event.has_finished()) {
        text += arguments + "{" + event.ShortDebugString() + "}";
        arguments.clear();
      }
      text += event.marker() + event.delta().text();
      arguments += event.delta().arguments_json();
    }
  }

  GenerateCollector collector_;
  std::map<uint32_t, std::string> regions_;
  std::map<uint32_t, std::string> arguments_;
  std::map<uint32_t, uint64_t> next_position_;
  std::set<uint32_t> finished_;
  int events_ = 0;
};

v1::GenerateRequest RandomRequest(std::mt19937* random) {
  v1::GenerateRequest request = Request(1 + (*random)() % 24);
  request.mutable_sampling()->set_seed((*random)());
  if ((*random)() % 2 == 0) request.mutable_sampling()->set_num_sequences(1 + (*random)() % 3);
  request.mutable_output()->set_token_ids((*random)() % 2 == 0);
  request.mutable_output()->set_logprobs((*random)() % 2 == 0);
  request.mutable_output()->set_prompt_logprobs((*random)() % 2 == 0);
  request.mutable_output()->set_regions((*random)() % 2 == 0);
  return request;
}

TEST(StreamContinuationTest, AnyCutsGiveTheUndisturbedStream) {
  std::mt19937 random(1);
  size_t with_regions = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    v1::GenerateRequest request = RandomRequest(&random);
    Application undisturbed;
    for (const auto& event : ScriptedAnswer(request, &random)) undisturbed.Take(event);

    // The first call chooses the seed of the others.
    const uint64_t seed = request.sampling().seed();
    const bool chooses_seed = random() % 2 == 0;
    if (chooses_seed) request.mutable_sampling()->clear_seed();
    StreamContinuation continuation(request, kStart);
    Application application;
    bool first = true;
    for (int calls_left = random() % 5; calls_left >= 0; --calls_left) {
      v1::GenerateRequest sent = continuation.NextRequest(kStart, false);
      if (first && chooses_seed) sent.mutable_sampling()->set_seed(seed);
      std::vector<v1::GenerateResponse> events = ScriptedAnswer(sent, &random);
      if (calls_left > 0) events.resize(random() % events.size());
      if (!events.empty()) first = false;
      for (v1::GenerateResponse& event : events) {
        const auto taken = continuation.Take(&event);
        ASSERT_TRUE(taken.ok()) << taken.status();
        ASSERT_NE(*taken, Taken::kOtherModel);
        if (*taken == Taken::kDeliver) application.Take(event);
      }
    }
    ASSERT_EQ(application.Everything(), undisturbed.Everything()) << "trial " << trial;
    const Output& output = application.collected().outputs[0];
    if (!output.tool_calls.empty() && !output.reasoning.empty()) ++with_regions;
  }
  EXPECT_GT(with_regions, 200u);
}

class OneCutTest : public testing::Test {
 protected:
  // A first call of which `events` events arrived.
  void Receive(const v1::GenerateRequest& request, size_t events) {
    continuation_.emplace(request, kStart);
    answer_ = ScriptedAnswer(continuation_->NextRequest(kStart, false), &random_);
    ASSERT_GE(answer_.size(), events);
    for (size_t i = 0; i < events; ++i) {
      v1::GenerateResponse event = answer_[i];
      ASSERT_TRUE(continuation_->Take(&event).ok());
    }
  }
  v1::GenerateRequest Next() { return continuation_->NextRequest(kStart, false); }

  absl::StatusOr<Taken> Take(v1::GenerateResponse event) { return continuation_->Take(&event); }

  std::mt19937 random_{5};
  std::optional<StreamContinuation> continuation_;
  std::vector<v1::GenerateResponse> answer_;
};

TEST_F(OneCutTest, ResumesOneOutputFromItsIds) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->clear_seed();
  request.mutable_output()->set_prompt_logprobs(true);
  size_t events = 1;
  continuation_.emplace(request, kStart);
  answer_ = ScriptedAnswer(continuation_->NextRequest(kStart, false), &random_);
  while (!answer_[events].has_tokens()) ++events;
  for (size_t i = 0; i <= events; ++i) {
    v1::GenerateResponse event = answer_[i];
    ASSERT_TRUE(continuation_->Take(&event).ok());
  }
  const v1::GenerateRequest next = Next();
  EXPECT_EQ(next.resume().fingerprint(), kScriptedFingerprint);
  ASSERT_THAT(next.resume().generated_token_ids(), SizeIs(answer_[events].tokens().tokens_size()));
  EXPECT_EQ(next.resume().generated_token_ids(0), answer_[events].tokens().tokens(0).id());
  EXPECT_EQ(next.sampling().seed(), answer_[0].started().effective().seed());
  EXPECT_FALSE(next.output().prompt_logprobs());
  EXPECT_TRUE(next.output().token_ids());
  EXPECT_EQ(next.prompt(), "p");
}

TEST_F(OneCutTest, RepeatsTheRequestWhenNoTokensCame) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->clear_seed();
  request.mutable_sampling()->add_banned_token_ids(4);
  (*request.mutable_sampling()->mutable_logit_bias())[5] = 1;
  Receive(request, 1);
  const v1::GenerateRequest next = Next();
  EXPECT_FALSE(next.has_resume());
  EXPECT_EQ(next.sampling().seed(), answer_[0].started().effective().seed());
  EXPECT_THAT(next.sampling().banned_token_ids(), ElementsAre(4));
  EXPECT_THAT(next.sampling().logit_bias(), SizeIs(1));
}

TEST_F(OneCutTest, RepeatsTheRequestForSeveralOutputs) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_num_sequences(2);
  Receive(request, 4);
  EXPECT_FALSE(Next().has_resume());
}

TEST_F(OneCutTest, GoesOnFromTheApplicationsOwnResumePoint) {
  v1::GenerateRequest request = Request();
  const std::vector<v1::GenerateResponse> whole = [&] {
    v1::GenerateRequest ids = request;
    ids.mutable_output()->set_token_ids(true);
    return ScriptedAnswer(ids, &random_);
  }();
  for (const v1::TokenInfo& token : whole[1].tokens().tokens()) {
    request.mutable_resume()->add_generated_token_ids(token.id());
  }
  request.mutable_resume()->set_fingerprint(kScriptedFingerprint);
  Receive(request, 2);
  EXPECT_EQ(answer_[1].tokens().position(), whole[2].tokens().position());
  EXPECT_THAT(Next().resume().generated_token_ids(),
              SizeIs(whole[1].tokens().tokens_size() + answer_[1].tokens().tokens_size()));
}

TEST_F(OneCutTest, KnowsAReplicaOfAnotherModel) {
  Receive(Request(), 2);
  Next();
  v1::GenerateResponse other = answer_[0];
  other.mutable_started()->set_fingerprint("another");
  EXPECT_EQ(*Take(other), Taken::kOtherModel);
  Next();
  other = answer_[0];
  other.mutable_started()->set_prompt_token_count(8);
  EXPECT_EQ(*Take(other), Taken::kOtherModel);
  Next();
  EXPECT_EQ(*Take(answer_[0]), Taken::kDrop);
}

TEST_F(OneCutTest, RefusesWhatDoesNotContinueTheStream) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_num_sequences(2);
  const auto begin = [&] {
    random_.seed(5);
    Receive(request, 6);
    Next();
    EXPECT_EQ(*Take(answer_[0]), Taken::kDrop);
  };
  const auto refused = [&](const v1::GenerateResponse& event) {
    return Take(event).status().code() == absl::StatusCode::kInternal;
  };
  begin();
  EXPECT_TRUE(refused(answer_[0])) << "began twice";
  Next();
  EXPECT_TRUE(refused(answer_[1])) << "did not begin";

  v1::GenerateResponse event;
  // A copy: every beginning makes the answer anew.
  const v1::GenerateResponse tokens =
      *std::find_if(answer_.begin(), answer_.end(), [](const auto& e) { return e.has_tokens(); });
  begin();
  event = tokens;
  event.mutable_tokens()->set_position(event.tokens().position() + 1);
  EXPECT_TRUE(refused(event)) << "left a token out";
  begin();
  event = tokens;
  event.mutable_tokens()->mutable_tokens(0)->set_id(5000);
  EXPECT_TRUE(refused(event)) << "sent another token than before";
  begin();
  event = tokens;
  event.mutable_tokens()->set_output_index(2);
  EXPECT_TRUE(refused(event)) << "sent an output that was not announced";
  begin();
  event.mutable_finished()->set_output_index(tokens.tokens().output_index());
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(refused(event)) << "ended before what was received";
  begin();
  event.mutable_finished()->set_reason(v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_FALSE(refused(event)) << "ran out of time before what was received";
}

TEST_F(OneCutTest, DropsRegionsOfAnEndBeforeWhatWasReceived) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_num_sequences(2);
  request.mutable_output()->set_regions(true);
  Receive(request, 1);
  auto event = Proto<v1::GenerateResponse>(R"(tokens { position: 7 text: "ab"
      tokens { id: 1 }
      regions { started {} } regions { delta { text: "a" } } regions { finished {} }
      tokens { id: 1 }
      regions { started {} } regions { delta { text: "b" } } regions { finished {} }
      })");
  ASSERT_EQ(*Take(event), Taken::kDeliver);

  // The second attempt ends within the first region: nothing of that is new.
  Next();
  ASSERT_EQ(*Take(answer_[0]), Taken::kDrop);
  event = Proto<v1::GenerateResponse>(R"(finished { reason: FINISH_REASON_TIME_LIMIT
      regions { started {} } regions { delta { text: "a" } } regions { finished {} } })");
  ASSERT_EQ(*continuation_->Take(&event), Taken::kDeliver);
  EXPECT_THAT(event.finished().regions(), testing::IsEmpty());
}

TEST(StreamContinuationRequestTest, LeavesOnlyTheRestOfTheTimeLimit) {
  v1::GenerateRequest request = Request();
  request.mutable_scheduling()->mutable_soft_time_limit()->set_seconds(3);
  StreamContinuation continuation(request, kStart);
  EXPECT_EQ(continuation.NextRequest(kStart, false).scheduling().soft_time_limit().seconds(), 3);
  const auto next = continuation.NextRequest(kStart + absl::Milliseconds(1250), false);
  EXPECT_EQ(next.scheduling().soft_time_limit().seconds(), 1);
  EXPECT_EQ(next.scheduling().soft_time_limit().nanos(), 750'000'000);
  const auto late = continuation.NextRequest(kStart + absl::Seconds(9), false);
  EXPECT_EQ(late.scheduling().soft_time_limit().seconds(), 0);
  EXPECT_GT(late.scheduling().soft_time_limit().nanos(), 0);
}

TEST(StreamContinuationRequestTest, RenamesWhatTheServerStillKnows) {
  v1::GenerateRequest request = Request();
  request.set_request_id("job");
  StreamContinuation continuation(request, kStart);
  EXPECT_EQ(continuation.NextRequest(kStart, false).request_id(), "job");
  EXPECT_EQ(continuation.NextRequest(kStart, true).request_id(), "job~1");
  request.set_request_id(std::string(128, 'x'));
  StreamContinuation longest(request, kStart);
  longest.NextRequest(kStart, false);
  EXPECT_EQ(longest.NextRequest(kStart, true).request_id(), std::string(126, 'x') + "~1");
  StreamContinuation nameless(Request(), kStart);
  nameless.NextRequest(kStart, false);
  EXPECT_EQ(nameless.NextRequest(kStart, true).request_id(), "");
}

TEST(StreamContinuationRequestTest, PassesIdsOfAServerWithoutTokenizer) {
  StreamContinuation continuation(Request(), kStart);
  std::mt19937 random(1);
  auto events = ScriptedAnswer(continuation.NextRequest(kStart, false), &random);
  int ids = 0;
  for (v1::GenerateResponse& event : events) {
    if (event.has_tokens()) {
      event.mutable_tokens()->clear_text();
      for (auto& token : *event.mutable_tokens()->mutable_tokens()) token.clear_bytes();
    }
    EXPECT_EQ(*continuation.Take(&event), Taken::kDeliver);
    ids += event.tokens().tokens_size();
  }
  EXPECT_EQ(ids, 12);
}

}  // namespace
}  // namespace tlm::client
