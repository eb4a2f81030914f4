// An engine without its threads: a clock that stands still, a scripted model, steps on demand.
#ifndef TLM_TESTS_UNIT_SERVER_BATCHING_LOOP_BENCH_H_
#define TLM_TESTS_UNIT_SERVER_BATCHING_LOOP_BENCH_H_

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/ops.h"
#include "server/batching/engine_loop.h"
#include "server/batching/request_queue.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/fake_clock.h"
#include "tests/support/scripted_model.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {

// The end that the reader must have received, once.
inline StreamEnd OnlyEnd(const CollectingReader& reader) {
  const CollectingReader::Collected collected = reader.collected();
  EXPECT_EQ(collected.ends.size(), 1);
  return collected.ends.empty() ? StreamEnd() : collected.ends[0];
}

using Reader = std::shared_ptr<CollectingReader>;
using Readers = std::vector<Reader>;

struct LoopSetup {
  int64_t blocks = 64;
  int64_t max_context = 512;
  int64_t max_logits_rows = 32;
  int64_t max_draft_rows = 24;
  // Without a pace, as the clock stands still unless a test moves it, and without guesses.
  EngineOptions options = {.max_decode_stretch = 0, .speculation = Speculation::kOff};
  bool own_thread = false;  // the model computes on one
  int max_launched = 1;     // batches at a time

  // The same with another value of one option.
  template <typename T>
  LoopSetup With(T EngineOptions::*option, std::type_identity_t<T> value) const {
    LoopSetup setup = *this;
    setup.options.*option = value;
    return setup;
  }
};
template <typename T>
LoopSetup SetupWith(T EngineOptions::*option, std::type_identity_t<T> value) {
  return LoopSetup().With(option, value);
}

class LoopBench {
 public:
  explicit LoopBench(const LoopSetup& setup = {}, DraftSource* drafts = nullptr)
      : model({.max_tokens = setup.options.max_batch_tokens,
               .max_sequences = setup.options.max_running_requests,
               .max_logits_rows = setup.max_logits_rows,
               .max_context = setup.max_context,
               .max_draft_rows = setup.max_draft_rows},
              setup.blocks, setup.max_launched),
        queue(std::make_shared<RequestQueue>(
            QueueLoad{setup.options.max_queued_requests, setup.options.max_queued_tokens})),
        loop(model, setup.options, clock, queue, /*metrics=*/nullptr, /*kv_events=*/nullptr,
             drafts) {
    if (setup.own_thread) model.ComputeOnOwnThread();
  }

  // As Engine::Submit does.
  Reader Submit(Request request, int64_t capacity = TokenStream::kUnbounded, bool paused = false) {
    return SubmitOutputs(std::move(request), 1, paused, capacity)[0];
  }

  // A request for several outputs; one reader for each.
  Readers SubmitOutputs(Request request, int64_t outputs, bool paused = false,
                        int64_t capacity = TokenStream::kUnbounded) {
    Readers readers;
    for (int64_t i = 0; i < outputs; ++i) {
      readers.push_back(CollectingReader::Create(capacity, paused));
      Request alone = request;
      if (alone.generate() != nullptr) alone = OnlyOutput(request, static_cast<uint32_t>(i));
      submitted_.push_back({std::move(alone), readers.back()});
      if (i > 0) request.branch_streams.push_back(readers.back()->stream());
    }
    request.stream = readers[0]->stream();
    const int64_t cached = (stats.kv_blocks_used + stats.kv_blocks_cached) * kBlockTokens;
    const absl::Status status = queue->Push(std::move(request), clock.Now(), cached);
    EXPECT_TRUE(status.ok()) << status;
    ++requests_;
    return readers;
  }

  // One step; its news are delivered.
  bool Step() {
    const bool computed = loop.Step();
    Deliver();
    return computed;
  }
  void StepUntilNothingCanBeDone() {
    while (Step()) {
    }
  }
  void Deliver() {
    EngineLoop::Report report = loop.TakeReport();
    ended += report.ended;
    stats = report.stats;
    const std::set<std::shared_ptr<TokenStream>> streams(report.streams.begin(),
                                                         report.streams.end());
    for (const auto& stream : streams) {
      if (const auto listener = stream->listener()) listener->OnStreamReady();
    }
  }

  // The output has ended well and is what its request gives alone.
  void ExpectAsAlone(const Reader& reader) const {
    const CollectingReader::Collected collected = reader->collected();
    EXPECT_EQ(collected.starts.size(), 1);
    EXPECT_TRUE(OnlyEnd(*reader).status.ok()) << OnlyEnd(*reader).status;
    for (const Submitted& submitted : submitted_) {
      if (submitted.reader != reader) continue;
      tlm::ExpectAsAlone(collected, submitted.request, model.limits().max_context);
    }
  }
  // Every request has ended, and has left nothing.
  void ExpectNothingLeft() const {
    EXPECT_EQ(ended, requests_);
    EXPECT_EQ(stats.finished_requests, requests_);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(stats.running_requests, 0);
    EXPECT_EQ(stats.waiting_requests, 0);
    EXPECT_EQ(queue->waiting().requests, 0);
    EXPECT_EQ(queue->waiting().prompt_tokens, 0);
  }
  // Steps until every request has ended: all outputs but `others` as alone.
  void Finish(const std::set<Reader>& others = {}) {
    StepUntilNothingCanBeDone();
    for (const Submitted& submitted : submitted_) {
      if (!others.contains(submitted.reader)) ExpectAsAlone(submitted.reader);
    }
    ExpectNothingLeft();
  }

  FakeClock clock;
  ScriptedModel model;
  std::shared_ptr<RequestQueue> queue;
  EngineLoop loop;
  EngineStats stats;  // after the last step
  int64_t ended = 0;

 private:
  struct Submitted {
    Request request;  // for this output alone
    Reader reader;
  };

  std::vector<Submitted> submitted_;
  int64_t requests_ = 0;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_LOOP_BENCH_H_
