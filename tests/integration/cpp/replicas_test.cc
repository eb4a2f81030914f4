// Streams over real replicas that are killed while they serve.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "model/base/mutex.h"
#include "tests/support/server_process.h"

namespace tlm {
namespace {

// Counts what all streams receive, so that a killer can wait for progress instead of time.
class Progress {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++events_;
    changed_.NotifyAll();
  }
  void End() {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  // Waits for `events` more; false when the end comes before.
  bool WaitFor(int64_t events) {
    MutexLock lock(&mutex_);
    const int64_t goal = events_ + events;
    while (events_ < goal && !ended_) changed_.Wait(&mutex_);
    return !ended_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t events_ TLM_GUARDED_BY(mutex_) = 0;
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
};

// Replicas of the bundled model that keep their ports over restarts.
class Replicas {
 public:
  explicit Replicas(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      servers_.push_back(ServerProcess::Serve({"--threads=1"}));
      ports_.push_back(servers_.back()->port());
    }
  }

  std::vector<std::string> targets() const {
    std::vector<std::string> targets;
    for (const int port : ports_) targets.push_back("127.0.0.1:" + std::to_string(port));
    return targets;
  }

  void Kill(size_t index) {
    servers_[index]->Signal(SIGKILL);
    EXPECT_EQ(servers_[index]->Wait(), -SIGKILL);
  }
  void Restart(size_t index) {
    servers_[index] =
        ServerProcess::Serve({"--threads=1", "--port=" + std::to_string(ports_[index])});
  }

 private:
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<int> ports_;
};

// The i-th of many different requests, all sampled at temperature 1.
v1::GenerateRequest RequestOf(int i) {
  const char* const prompts[] = {"The king", "Once", "O Romeo, Romeo! wherefore art", "Citizen:\n"};
  v1::GenerateRequest request;
  request.set_prompt(prompts[i % 4]);
  request.set_request_id("stream " + std::to_string(i));
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(1);
  sampling.set_seed(static_cast<uint64_t>(i));
  if (i % 3 == 0) sampling.set_frequency_penalty(0.5f);
  if (i % 5 == 0) sampling.set_repetition_penalty(1.2f);
  if (i % 10 == 7) sampling.set_num_sequences(2);
  v1::StoppingCriteria& stopping = *request.mutable_stopping();
  stopping.set_max_new_tokens(static_cast<uint32_t>(60 + i % 60));
  stopping.set_ignore_eos(i % 2 == 0);
  if (i % 4 == 1) {
    for (const char* stop : {"the", "\n\n", "he w"}) stopping.add_stop_strings(stop);
    stopping.set_min_new_tokens(40);
    stopping.set_include_stop_in_output(i % 8 == 1);
  }
  v1::OutputOptions& output = *request.mutable_output();
  output.set_token_ids(i % 2 == 1);
  output.set_logprobs(i % 6 == 0);
  output.set_top_logprobs(i % 12 == 0 ? 3 : 0);
  output.set_prompt_logprobs(i % 9 == 0);
  output.set_min_chunk_tokens(static_cast<uint32_t>(i % 3));
  return request;
}

struct Stream {
  absl::Status status;
  client::GenerateCollector collector;
  int starts = 0;
  int resumes = 0;
};

// `on_event` is told how many events have come.
Stream ReadStream(client::Client* client, const v1::GenerateRequest& request,
                  const client::CallOptions& options, const std::function<void(int)>& on_event) {
  Stream result;
  const auto stream = client->StartGenerate(request, options);
  v1::GenerateResponse event;
  for (int events = 1; stream->Read(&event); ++events) {
    on_event(events);
    result.starts += event.has_started() ? 1 : 0;
    result.status.Update(result.collector.Add(event));
  }
  result.resumes = stream->resumes();
  result.status.Update(stream->Finish());
  result.status.Update(result.collector.CheckComplete());
  return result;
}

// All of it, but for what depends on when and where it ran.
std::string Everything(const Stream& stream) {
  client::GenerateResult result = stream.collector.result();
  result.started.clear_request_id();
  result.started.clear_queue_time();
  result.started.clear_cached_prompt_tokens();
  result.summary.mutable_usage()->clear_cached_prompt_tokens();
  std::string text = result.started.ShortDebugString() + "\n";
  for (const v1::TokenInfo& token : result.prompt) text += token.ShortDebugString() + "\n";
  for (const client::Output& output : result.outputs) {
    text += output.text + "\n";
    for (const v1::TokenInfo& token : output.tokens) text += token.ShortDebugString() + "\n";
    text += output.finished.ShortDebugString() + "\n";
  }
  return text + result.summary.ShortDebugString();
}

std::vector<Stream> ReadStreams(client::Client* client, int count, Progress* progress) {
  constexpr int kAtATime = 24;
  std::vector<Stream> streams(static_cast<size_t>(count));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kAtATime; ++i) {
    threads.emplace_back([&] {
      for (int stream = next++; stream < count; stream = next++) {
        streams[static_cast<size_t>(stream)] =
            ReadStream(client, RequestOf(stream), {}, [progress](int) { progress->Add(); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  progress->End();
  return streams;
}

std::unique_ptr<client::Client> ClientOf(const Replicas& replicas) {
  auto client = client::Client::Connect(replicas.targets());
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

TEST(ReplicasTest, KilledReplicasChangeNoStream) {
  constexpr int kStreams = 200;
  Replicas replicas(3);
  const auto client = ClientOf(replicas);
  Progress undisturbed_progress;
  const std::vector<Stream> undisturbed =
      ReadStreams(client.get(), kStreams, &undisturbed_progress);

  Progress progress;
  std::atomic<int> kills{0};
  std::thread killer([&] {
    std::mt19937 random(7);
    while (progress.WaitFor(50 + random() % 500)) {
      const size_t victim = random() % 3;
      replicas.Kill(victim);
      replicas.Restart(victim);
      ++kills;
    }
  });
  const std::vector<Stream> disturbed = ReadStreams(client.get(), kStreams, &progress);
  killer.join();

  int interrupted = 0;
  for (int i = 0; i < kStreams; ++i) {
    ASSERT_TRUE(undisturbed[i].status.ok()) << i << ": " << undisturbed[i].status;
    ASSERT_EQ(undisturbed[i].resumes, 0);
    EXPECT_TRUE(disturbed[i].status.ok()) << i << ": " << disturbed[i].status;
    EXPECT_EQ(disturbed[i].starts, 1);
    EXPECT_EQ(disturbed[i].collector.result().started.request_id(), RequestOf(i).request_id());
    EXPECT_EQ(Everything(disturbed[i]), Everything(undisturbed[i])) << i;
    interrupted += disturbed[i].resumes > 0 ? 1 : 0;
  }
  RecordProperty("kills", kills);
  RecordProperty("interrupted", interrupted);
  std::cout << kills << " kills interrupted " << interrupted << " of " << kStreams << " streams\n";
  EXPECT_GE(interrupted, 50);
}

TEST(ReplicasTest, TheOnlyReplicaIsWaitedFor) {
  Replicas replicas(1);
  const auto client = ClientOf(replicas);
  v1::GenerateRequest request = RequestOf(8);
  request.clear_request_id();
  // More than the connection holds while nobody reads: the kill comes before the end.
  request.mutable_stopping()->set_max_new_tokens(800);
  request.mutable_output()->set_top_logprobs(20);
  const Stream undisturbed = ReadStream(client.get(), request, {}, [](int) {});
  client::CallOptions options;
  options.resume.patience = ServerProcess::kPatience;
  const Stream disturbed = ReadStream(client.get(), request, options, [&](int events) {
    if (events != 10) return;
    replicas.Kill(0);
    replicas.Restart(0);
  });
  EXPECT_TRUE(disturbed.status.ok()) << disturbed.status;
  EXPECT_EQ(disturbed.resumes, 1);
  EXPECT_EQ(Everything(disturbed), Everything(undisturbed));
}

}  // namespace
}  // namespace tlm
