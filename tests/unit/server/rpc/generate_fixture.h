// A Generate call on a fake engine: the test pushes what the engine would.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_GENERATE_FIXTURE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_GENERATE_FIXTURE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/proto.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {

inline StreamEnd EndedWith(FinishReason reason, int32_t matched = -1) {
  StreamEnd end;
  end.reason = reason;
  end.matched_token = matched;
  end.queue_time = absl::Milliseconds(1);
  end.prefill_time = absl::Milliseconds(20);
  end.decode_time = absl::Milliseconds(300);
  end.kv_blocks_peak = 2;
  end.steps = 3;
  return end;
}

inline StreamEnd FailedWith(absl::Status status) {
  StreamEnd end;
  end.status = std::move(status);
  return end;
}

inline SampledToken Token(int32_t id) {
  SampledToken token;
  token.id = id;
  return token;
}

class GenerateTest : public RpcTest {
 protected:
  using Event = v1::GenerateResponse::EventCase;

  explicit GenerateTest(bool with_tokenizer = true, int64_t max_context = 64)
      : RpcTest(with_tokenizer, max_context) {
    request_.set_prompt("hello");
    request_.set_add_special_tokens(false);
  }

  void Call(
      std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>()) {
    kinds_.clear();
    texts_.assign(1, "");
    finished_.clear();
    reader_.reset();
    context_ = std::move(context);
    reader_ = stub_->Generate(context_.get(), request_);
  }
  // Of a call that ends without the engine.
  grpc::Status Refusal() {
    Call();
    return ReadToTheEnd();
  }
  // Starts the call and waits until it is queued.
  void Start(size_t index = 0) {
    Call();
    const Request& queued = engine_.WaitForRequest(index);
    stream_ = queued.stream;
    streams_ = {stream_};
    streams_.insert(streams_.end(), queued.branch_streams.begin(), queued.branch_streams.end());
  }
  void PushStart(size_t output = 0) {
    streams_[output]->PushStart({.queue_time = absl::Milliseconds(5), .cached_prompt_tokens = 0});
    FakeEngine::Deliver(*streams_[output]);
  }
  // Waits for room, as the engine does, once the token stream is full.
  void Push(SampledToken token, size_t output = 0) {
    TokenStream& stream = *streams_[output];
    if (stream.Room() == 0) {
      FakeEngine::Deliver(stream);
      engine_.WaitForRoom(stream);
    }
    stream.PushToken(std::move(token));
  }
  void PushText(std::string_view text, size_t output = 0) {
    for (const int32_t id : ByteIds(text)) Push(Token(id), output);
    FakeEngine::Deliver(*streams_[output]);
  }
  void PushEnd(StreamEnd end, size_t output = 0) {
    streams_[output]->PushEnd(std::move(end));
    FakeEngine::Deliver(*streams_[output]);
  }
  v1::GenerateResponse Read() {
    v1::GenerateResponse event;
    EXPECT_TRUE(reader_->Read(&event));
    return event;
  }
  // The engine ends the output; the rest of the stream has no fault.
  void ReadToTheEndAfter(StreamEnd end = EndedWith(FinishReason::kLength), size_t output = 0) {
    PushEnd(std::move(end), output);
    EXPECT_TRUE(ReadToTheEnd().ok());
  }
  // Reads the rest of the stream, of which it keeps the kinds and the texts.
  grpc::Status ReadToTheEnd() {
    v1::GenerateResponse event;
    texts_.resize(streams_.size());
    while (reader_->Read(&event)) {
      kinds_.push_back(event.event_case());
      if (event.has_tokens()) texts_[event.tokens().output_index()] += event.tokens().text();
      if (event.has_finished()) finished_.push_back(event.finished());
      if (event.has_summary()) summary_ = event.summary();
    }
    return reader_->Finish();
  }
  std::string Trailer(const std::string& name) {
    const auto& trailers = context_->GetServerTrailingMetadata();
    const auto found = trailers.find(name);
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  v1::GenerateRequest request_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  std::shared_ptr<TokenStream> stream_;                // of the first output
  std::vector<std::shared_ptr<TokenStream>> streams_;  // of all outputs
  std::vector<Event> kinds_;
  std::vector<std::string> texts_{""};  // by output
  std::vector<v1::GenerateFinished> finished_;
  v1::GenerateSummary summary_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_GENERATE_FIXTURE_H_
