// What clients get from the real server: many at once, alone, and by different ways.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/server_process.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

struct Generated {
  grpc::Status status;
  std::string text;
  std::vector<v1::TokenInfo> tokens;
  v1::GenerateFinished finished;
  v1::GenerateSummary summary;
};

v1::GenerateRequest RequestFor(const std::string& prompt, uint32_t max_new_tokens, uint64_t seed) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_logprobs(true);
  return request;
}

class StreamsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = ServerProcess::Serve().release();
    stub_ = v1::LanguageModel::NewStub(
                grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()))
                .release();
  }
  static void TearDownTestSuite() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    EXPECT_THAT(server_->output(), HasSubstr("kv_blocks_used=0"));
    delete stub_;
    delete server_;
  }

  // `cancel_after`: events to read before the call is cancelled; -1 = never.
  static Generated Generate(const v1::GenerateRequest& request, int cancel_after = -1) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    Generated result;
    v1::GenerateResponse event;
    for (int events = 0; reader->Read(&event); ++events) {
      if (events == cancel_after) context.TryCancel();
      result.text += event.tokens().text();
      for (const v1::TokenInfo& token : event.tokens().tokens()) result.tokens.push_back(token);
      if (event.has_finished()) result.finished = event.finished();
      if (event.has_summary()) result.summary = event.summary();
    }
    result.status = reader->Finish();
    return result;
  }
  static std::vector<uint32_t> IdsOf(const Generated& generated) {
    std::vector<uint32_t> ids;
    for (const v1::TokenInfo& token : generated.tokens) ids.push_back(token.id());
    return ids;
  }

  static ServerProcess* server_;
  static v1::LanguageModel::Stub* stub_;
};
ServerProcess* StreamsTest::server_ = nullptr;
v1::LanguageModel::Stub* StreamsTest::stub_ = nullptr;

TEST_F(StreamsTest, ManyStreamsSomeCancelledGiveTheTokensTheyGiveAlone) {
  constexpr int kStreams = 32;
  const std::vector<std::string> prompts = {"The king", "Once", "O Romeo, Romeo! wherefore art",
                                            "First Citizen:\n"};
  const auto request = [&](int i) {
    return RequestFor(prompts[static_cast<size_t>(i) % prompts.size()], 48,
                      static_cast<uint64_t>(i));
  };
  std::vector<Generated> crowded(kStreams);
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] { crowded[i] = Generate(request(i), i % 3 == 0 ? i % 7 : -1); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i) {
    if (i % 3 == 0) {
      // It may have been over before the cancellation arrived.
      const grpc::StatusCode code = crowded[i].status.error_code();
      EXPECT_TRUE(code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::OK) << code;
      continue;
    }
    ASSERT_TRUE(crowded[i].status.ok()) << crowded[i].status.error_message();
    EXPECT_EQ(crowded[i].tokens.size(), 48u);
    const Generated alone = Generate(request(i));
    EXPECT_EQ(IdsOf(crowded[i]), IdsOf(alone)) << i;
    EXPECT_EQ(crowded[i].text, alone.text);
  }
}

TEST_F(StreamsTest, ForwardGivesTheLogprobsThatGenerateReports) {
  v1::GenerateRequest request = RequestFor("The king", 20, 5);
  const Generated generated = Generate(request);
  ASSERT_TRUE(generated.status.ok());

  v1::TokenizeRequest tokenize;
  tokenize.set_text("The king");
  v1::TokenizeResponse prompt;
  grpc::ClientContext tokenize_context;
  ASSERT_TRUE(stub_->Tokenize(&tokenize_context, tokenize, &prompt).ok());

  v1::ForwardRequest forward;
  auto* ids = forward.add_sequences()->mutable_ids();
  ids->CopyFrom(prompt.token_ids());
  for (const v1::TokenInfo& token : generated.tokens) ids->Add(token.id());
  forward.set_all(true);
  forward.set_values(v1::ROW_VALUES_LOG_PROBABILITIES);
  grpc::ClientContext context;
  const auto reader = stub_->Forward(&context, forward);
  v1::ForwardResponse event;
  uint32_t vocab_size = 0;
  uint32_t rows = 0;
  std::string data;
  while (reader->Read(&event)) {
    if (event.has_header()) vocab_size = event.header().vocab_size();
    EXPECT_EQ(event.rows().sequence_index(), 0u);
    rows += event.rows().row_count();
    data += event.rows().data();
  }
  ASSERT_TRUE(reader->Finish().ok());
  ASSERT_EQ(rows, static_cast<uint32_t>(ids->size()));
  ASSERT_EQ(data.size(), size_t{rows} * vocab_size * sizeof(float));
  for (size_t i = 0; i < generated.tokens.size(); ++i) {
    const v1::TokenInfo& token = generated.tokens[i];
    const size_t row = static_cast<size_t>(prompt.token_ids_size()) + i - 1;
    float logprob;
    std::memcpy(&logprob, data.data() + (row * vocab_size + token.id()) * sizeof(float),
                sizeof(logprob));
    // The logits are the same bits; the two sums of exponentials may round differently.
    EXPECT_NEAR(logprob, token.logprob(), 1e-6 * (1.0 + std::abs(token.logprob()))) << i;
  }
}

TEST_F(StreamsTest, ASlowForwardReaderDelaysNoOtherCallAndGetsEveryRow) {
  constexpr int kSequences = 24;
  constexpr int kTokens = 1000;
  v1::ForwardRequest request;  // 200 MB of rows, three times what the server keeps for a call
  for (int i = 0; i < kSequences; ++i) {
    request.add_sequences()->mutable_ids()->Resize(kTokens, static_cast<uint32_t>(i));
  }
  request.set_all(true);
  grpc::ClientContext context;
  const auto reader = stub_->Forward(&context, request);
  v1::ForwardResponse event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.header().rows_total(), static_cast<uint64_t>(kSequences * kTokens));

  EXPECT_TRUE(Generate(RequestFor("The king", 10, 1)).status.ok());

  std::vector<uint32_t> rows(kSequences);
  while (reader->Read(&event)) {
    if (!event.has_rows()) continue;
    const v1::ForwardRows& piece = event.rows();
    EXPECT_EQ(piece.first_position(), rows[piece.sequence_index()]);
    rows[piece.sequence_index()] += piece.row_count();
    EXPECT_LE(event.ByteSizeLong(), size_t{1} << 20);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(rows, ::testing::Each(static_cast<uint32_t>(kTokens)));
}

TEST_F(StreamsTest, AContextThatFillsUpEndsTheOutput) {
  v1::GenerateRequest request = RequestFor("x", 1, 3);
  request.clear_stopping();
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_prompt_token_ids()->mutable_ids()->Resize(1020, 5);
  const Generated generated = Generate(request);
  ASSERT_TRUE(generated.status.ok()) << generated.status.error_message();
  EXPECT_EQ(generated.finished.reason(), v1::FINISH_REASON_CONTEXT_LENGTH);
  EXPECT_EQ(generated.summary.usage().completion_tokens(), 4u);
}

}  // namespace
}  // namespace tlm
