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

namespace tlm {

// The end that the reader must have received, once.
inline StreamEnd OnlyEnd(const CollectingReader& reader) {
  const CollectingReader::Collected collected = reader.collected();
  EXPECT_EQ(collected.ends.size(), 1);
  return collected.ends.empty() ? StreamEnd() : collected.ends[0];
}

struct LoopSetup {
  int64_t blocks = 64;
  int64_t max_context = 512;
  int64_t max_logits_rows = 32;
  int64_t max_draft_rows = 24;
  // Without a pace, as the clock stands still unless a test moves it, and without guesses.
  EngineOptions options = {.max_decode_stretch = 0, .speculation = Speculation::kOff};
  bool own_thread = false;  // the model computes on one
  int max_launched = 1;     // batches at a time
};
template <typename T>
LoopSetup SetupWith(T EngineOptions::*option, std::type_identity_t<T> value) {
  LoopSetup setup;
  setup.options.*option = value;
  return setup;
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
  std::shared_ptr<CollectingReader> Submit(Request request,
                                           int64_t capacity = TokenStream::kUnbounded,
                                           bool paused = false) {
    auto reader = CollectingReader::Create(capacity, paused);
    request.stream = reader->stream();
    const int64_t cached = (stats.kv_blocks_used + stats.kv_blocks_cached) * kBlockTokens;
    const absl::Status status = queue->Push(std::move(request), clock.Now(), cached);
    EXPECT_TRUE(status.ok()) << status;
    return reader;
  }

  // A request for several outputs; one reader for each.
  std::vector<std::shared_ptr<CollectingReader>> SubmitOutputs(
      Request request, int64_t outputs, bool paused = false,
      int64_t capacity = TokenStream::kUnbounded) {
    std::vector<std::shared_ptr<CollectingReader>> readers(1);
    for (int64_t i = 1; i < outputs; ++i) {
      readers.push_back(CollectingReader::Create(capacity, paused));
      request.branch_streams.push_back(readers.back()->stream());
    }
    readers[0] = Submit(std::move(request), capacity, paused);
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

  FakeClock clock;
  ScriptedModel model;
  std::shared_ptr<RequestQueue> queue;
  EngineLoop loop;
  EngineStats stats;  // after the last step
  int64_t ended = 0;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_LOOP_BENCH_H_
