#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "model/base/errors.h"
#include "server/rpc/language_model/handlers.h"
#include "tests/support/proto.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int64_t kVocab = 300;

// A row that tells where it comes from.
LogitsRow Row(int64_t position, float value) {
  return {position, std::vector<float>(static_cast<size_t>(kVocab), value)};
}

StreamEnd Complete() {
  StreamEnd end;
  end.reason = FinishReason::kRowsComplete;
  return end;
}

class ForwardHandlerTest : public RpcTest {
 protected:
  explicit ForwardHandlerTest(int64_t max_context = 64) : RpcTest(true, max_context) {}

  void AddSequence(int tokens) { request_.add_sequences()->mutable_ids()->Resize(tokens, 5); }
  void Start() {
    context_ = std::make_unique<grpc::ClientContext>();
    reader_ = stub_->Forward(context_.get(), request_);
  }
  // Computes what the request at `index` asks for: its rows hold index + position / 100.
  void Compute(size_t index) {
    Request& request = engine_.WaitForRequest(index);
    for (const int64_t position : request.forward()->positions) {
      request.stream->PushRow(
          Row(position, static_cast<float>(index) + static_cast<float>(position) / 100.0f));
    }
    request.stream->PushEnd(Complete());
    FakeEngine::Deliver(*request.stream);
  }
  // Computes the requests [begin, end) on another thread, for calls that queue more as they are
  // read.
  std::thread ComputeAside(size_t begin, size_t end) {
    return std::thread([=, this] {
      for (size_t i = begin; i < end; ++i) Compute(i);
    });
  }
  // Reads everything; rows as (sequence, position) with the first value of each.
  grpc::Status ReadToTheEnd() {
    v1::ForwardResponse event;
    while (reader_->Read(&event)) {
      if (event.has_header()) header_ = event.header();
      if (event.has_summary()) summary_ = event.summary();
      if (!event.has_rows()) continue;
      const v1::ForwardRows& rows = event.rows();
      EXPECT_LE(event.ByteSizeLong(), size_t{1} << 20);
      row_messages_.push_back(rows.row_count());
      const size_t row_bytes = rows.data().size() / rows.row_count();
      for (uint32_t i = 0; i < rows.row_count(); ++i) {
        float value;
        std::memcpy(&value, rows.data().data() + i * row_bytes, sizeof(value));
        rows_.emplace_back(rows.sequence_index(), rows.first_position() + i);
        values_.push_back(value);
      }
    }
    return reader_->Finish();
  }

  v1::ForwardRequest request_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::ForwardResponse>> reader_;
  v1::ForwardHeader header_;
  v1::ForwardSummary summary_;
  std::vector<uint32_t> row_messages_;
  std::vector<std::pair<uint32_t, uint32_t>> rows_;
  std::vector<float> values_;
};

TEST_F(ForwardHandlerTest, SendsHeaderRowsInOrderAndSummary) {
  AddSequence(2);
  AddSequence(3);
  request_.set_all(true);
  Start();
  // Computed in the other order.
  Compute(1);
  Compute(0);
  ASSERT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(header_, HasFields(R"(rows_total: 5 vocab_size: 300 row_width: 300
      dtype: DATA_TYPE_FLOAT32 values: ROW_VALUES_LOGITS fingerprint: "f00d")"));
  EXPECT_THAT(rows_, ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 0), Pair(1, 1), Pair(1, 2)));
  EXPECT_THAT(values_, ElementsAre(0.0f, 0.01f, 1.0f, 1.01f, 1.02f));
  EXPECT_EQ(summary_.usage().prompt_tokens(), 5u);
}

TEST_F(ForwardHandlerTest, RowsThatAreNotNeighboursComeInMessagesOfTheirOwn) {
  AddSequence(6);
  for (const uint32_t index : {1, 2, 5}) request_.mutable_indices()->add_indices(index);
  Start();
  Compute(0);
  ASSERT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(rows_, ElementsAre(Pair(0, 1), Pair(0, 2), Pair(0, 5)));
  EXPECT_THAT(row_messages_, ElementsAre(2, 1));
}

TEST_F(ForwardHandlerTest, QueuesAWindowOfSequencesAtATime) {
  const size_t count = kForwardWindow + 4;
  for (size_t i = 0; i < count; ++i) AddSequence(1);
  Start();
  engine_.WaitForRequest(kForwardWindow - 1);
  EXPECT_EQ(engine_.submitted(), kForwardWindow);
  std::thread engine_side = ComputeAside(0, count);
  EXPECT_TRUE(ReadToTheEnd().ok());
  engine_side.join();
  EXPECT_THAT(rows_, SizeIs(count));
}

TEST_F(ForwardHandlerTest, AFullQueueDelaysTheRestOfTheCall) {
  for (int i = 0; i < kForwardWindow + 2; ++i) AddSequence(1);
  Start();
  engine_.WaitForRequest(kForwardWindow - 1);
  engine_.set_submit_status(WithReason(ResourceExhausted("full"), "QUEUE_FULL"));
  Compute(0);
  v1::ForwardResponse event;
  ASSERT_TRUE(reader_->Read(&event));  // header
  ASSERT_TRUE(reader_->Read(&event));  // the first row
  engine_.WaitForRefusal();
  engine_.set_submit_status(absl::OkStatus());
  std::thread engine_side = ComputeAside(1, kForwardWindow + 2);
  EXPECT_TRUE(ReadToTheEnd().ok());
  engine_side.join();
  EXPECT_THAT(rows_, SizeIs(kForwardWindow + 1));
}

TEST_F(ForwardHandlerTest, NonFiniteRowsAreDataLoss) {
  AddSequence(1);
  Start();
  TokenStream& stream = *engine_.WaitForRequest(0).stream;
  stream.PushRow(Row(0, std::numeric_limits<float>::quiet_NaN()));
  stream.PushEnd(Complete());
  FakeEngine::Deliver(stream);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::DATA_LOSS);
}

TEST_F(ForwardHandlerTest, WhatWasCachedIsToldAndCostsNothing) {
  AddSequence(6);
  AddSequence(5);
  Start();
  for (const size_t i : {0, 1}) {
    engine_.WaitForRequest(i).stream->PushStart(
        {.queue_time = absl::ZeroDuration(), .cached_prompt_tokens = 4});
    Compute(i);
  }
  ASSERT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(summary_.usage().cached_prompt_tokens(), 8u);
  // Of the first sequence positions 4 and 5, of the second 4; a row of each.
  EXPECT_EQ(summary_.resources().flops(),
            3 * kLayerFlops + (5 + 6 + 5) * kAttentionFlops + 2 * kHeadFlops);
}

class LongForwardTest : public ForwardHandlerTest {
 protected:
  LongForwardTest() : ForwardHandlerTest(/*max_context=*/4000) {}
};

TEST_F(LongForwardTest, RowsAreCutIntoMessagesBelowOneMebibyte) {
  AddSequence(4000);  // 4.8 MB
  request_.set_all(true);
  Start();
  Compute(0);
  ASSERT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(rows_, SizeIs(4000));
  EXPECT_THAT(row_messages_, SizeIs(5));
}

TEST_F(LongForwardTest, TheTokenStreamsOfACallAreBoundedByBytes) {
  for (int i = 0; i < 20; ++i) AddSequence(4000);
  request_.set_all(true);
  Start();
  engine_.WaitForRequest(kForwardWindow - 1);
  int64_t rows = 0;
  for (size_t i = 0; i < kForwardWindow; ++i) {
    const int64_t room = engine_.WaitForRequest(i).stream->Room();
    EXPECT_GE(room, 1);
    rows += room;
  }
  EXPECT_LE(rows * kVocab * 4, kForwardBufferBytes);
}

}  // namespace
}  // namespace tlm
