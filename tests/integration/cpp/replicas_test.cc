// Streams over real replicas that are killed while they serve.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "tests/integration/cpp/replica_streams.h"
#include "tests/support/server_process.h"

namespace tlm {
namespace {

std::vector<Stream> ReadStreams(client::Client* client, int count, Progress* progress) {
  constexpr int kAtATime = 24;
  client::CallOptions options;
  options.resume.max_resumes = 1000;  // slow replicas are killed more often within a stream
  std::vector<Stream> streams(static_cast<size_t>(count));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kAtATime; ++i) {
    threads.emplace_back([&] {
      for (int stream = next++; stream < count; stream = next++) {
        streams[static_cast<size_t>(stream)] =
            ReadStream(client, RequestOf(stream), options, [progress](int) { progress->Add(); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  progress->End();
  return streams;
}

std::unique_ptr<client::Client> ClientOf(const Replicas& replicas,
                                         client::Balance balance = client::Balance::kRoundRobin) {
  client::ClientOptions options;
  options.balance = balance;
  auto client = client::Client::Connect(replicas.targets(), options);
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
      replicas.Start(victim);
      ++kills;
    }
  });
  const std::vector<Stream> disturbed = ReadStreams(client.get(), kStreams, &progress);
  killer.join();

  int interrupted = 0, calls = 0;
  for (int i = 0; i < kStreams; ++i) {
    ASSERT_TRUE(undisturbed[i].status.ok()) << i << ": " << undisturbed[i].status;
    ASSERT_EQ(undisturbed[i].resumes, 0);
    EXPECT_TRUE(disturbed[i].status.ok()) << i << ": " << disturbed[i].status;
    EXPECT_EQ(disturbed[i].starts, 1);
    EXPECT_EQ(disturbed[i].collector.result().started.request_id(), RequestOf(i).request_id());
    EXPECT_EQ(Everything(disturbed[i]), Everything(undisturbed[i])) << i;
    interrupted += disturbed[i].resumes > 0 ? 1 : 0;
    for (const client::Output& output : disturbed[i].collector.result().outputs) {
      calls += static_cast<int>(output.tool_calls.size());
    }
  }
  RecordProperty("kills", kills);
  RecordProperty("interrupted", interrupted);
  std::cout << kills << " kills interrupted " << interrupted << " of " << kStreams << " streams\n";
  EXPECT_GE(interrupted, 25);
  EXPECT_GE(calls, 10);
}

TEST(ReplicasTest, TheOnlyReplicaIsWaitedFor) {
  Replicas replicas(1);
  const auto client = ClientOf(replicas);
  v1::GenerateRequest request = RequestOf(8);
  request.clear_request_id();
  // More than an unread connection buffers: the kill comes before the end.
  request.mutable_stopping()->set_max_new_tokens(800);
  request.mutable_output()->set_top_logprobs(20);
  const Stream undisturbed = ReadStream(client.get(), request, {}, [](int) {});
  client::CallOptions options;
  options.resume.timeout = ServerProcess::kPatience;
  const Stream disturbed = ReadStream(client.get(), request, options, [&](int events) {
    if (events != 10) return;
    replicas.Kill(0);
    replicas.Start(0);
  });
  EXPECT_TRUE(disturbed.status.ok()) << disturbed.status;
  EXPECT_EQ(disturbed.resumes, 1);
  EXPECT_EQ(Everything(disturbed), Everything(undisturbed));
}

// Where a request went, and what it found there.
struct Placed {
  size_t target = 0;
  uint32_t cached_tokens = 0;
};

// Asks about the `document`th of many texts that are each several blocks of the cache long.
Placed AskAbout(client::Client* client, int document) {
  v1::GenerateRequest request;
  std::string text = "Document " + std::to_string(document) + ":";
  for (int word = 0; word < 200; ++word) text += " " + std::to_string((document + 7) * word);
  request.set_prompt(text.substr(0, 500));
  request.mutable_stopping()->set_max_new_tokens(1);
  const auto stream = client->StartGenerate(request, {});
  Placed placed;
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    if (event.has_started()) placed.cached_tokens = event.started().cached_prompt_tokens();
  }
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  placed.target = stream->target();
  return placed;
}

constexpr int kDocuments = 30;

TEST(ReplicasTest, AffinityFindsWhatRequestsHaveInCommonInTheCache) {
  const Replicas replicas(3);
  const auto client = ClientOf(replicas, client::Balance::kPrefixAffinity);
  std::vector<size_t> home;
  for (int i = 0; i < kDocuments; ++i) home.push_back(AskAbout(client.get(), i).target);
  EXPECT_EQ(std::set<size_t>(home.begin(), home.end()).size(), 3u);
  for (int i = 0; i < kDocuments; ++i) {
    const Placed again = AskAbout(client.get(), i);
    EXPECT_EQ(again.target, home[i]) << i;
    EXPECT_GT(again.cached_tokens, 0u) << i;
  }
}

}  // namespace
}  // namespace tlm
