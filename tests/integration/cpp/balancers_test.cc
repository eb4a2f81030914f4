// Rolling restarts of two replicas behind the balancers of deploy/balancers, under load.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "model/base/mutex.h"
#include "tests/integration/cpp/replica_streams.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

constexpr size_t kReplicas = 2;
constexpr int kStreams = 50;

std::string Local(int port) { return "127.0.0.1:" + std::to_string(port); }

void ReplaceAll(std::string* text, const std::string& from, const std::string& to) {
  EXPECT_NE(text->find(from), std::string::npos) << from;
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at)) {
    text->replace(at, from.size(), to);
    at += to.size();
  }
}

// The balancer of deploy/balancers, with its addresses and places changed to the test's.
class Balancer {
 public:
  Balancer(const std::string& name, const Replicas& replicas) : port_(FreePort()), name_(name) {
    std::ostringstream text;
    text << std::ifstream(std::string(std::getenv("TLM_SOURCE_DIR")) + "/deploy/balancers/" +
                          (is_nginx() ? "nginx.conf" : "haproxy.cfg"))
                .rdbuf();
    std::string config = text.str();
    ReplaceAll(&config, "127.0.0.1:50050", Local(port_));
    ReplaceAll(&config, "127.0.0.1:50051", Local(replicas.port(0)));
    ReplaceAll(&config, "127.0.0.1:50052", Local(replicas.port(1)));
    if (is_nginx()) {
      ReplaceAll(&config, "/run/nginx.pid", dir_.File("pid"));
      ReplaceAll(&config, "http {", "http {\n" + TemporaryPaths());
    } else {
      ReplaceAll(&config, " 9464", " " + std::to_string(replicas.metrics_port(0)));
      ReplaceAll(&config, " 9465", " " + std::to_string(replicas.metrics_port(1)));
    }
    const std::string file = dir_.Write("config", config);
    std::vector<std::string> argv = {Program(name), "-db", "-f", file};
    if (is_nginx()) {
      argv = {Program(name), "-e", "stderr", "-c", file, "-g", "daemon off; master_process off;"};
    }
    process_.emplace(argv);
  }

  static std::string Program(const std::string& name) { return "/usr/sbin/" + name; }

  std::string target() const { return Local(port_); }
  std::string output() { return process_->output(); }
  // Returns when the balancer has noticed that replica `index` is back for the `times`th time.
  void WaitUntilBack(size_t index, int times) {
    if (is_nginx()) return;  // finds out by itself with every call
    // The log has a line of its own for it, besides the warning.
    const std::string up = std::string("\nServer replicas/") + (index == 0 ? "a" : "b") + " is UP";
    EXPECT_TRUE(process_->WaitForOutput(up, times)) << process_->output();
  }

 private:
  bool is_nginx() const { return name_ == "nginx"; }
  // The distribution's paths need root to write.
  std::string TemporaryPaths() const {
    std::string lines;
    for (const char* const kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      lines += std::string(kind) + "_temp_path " + dir_.File(kind) + ";\n";
    }
    return lines;
  }

  const TempDir dir_;
  const int port_;
  const std::string name_;
  std::optional<Process> process_;
};

client::CallOptions Plain() {
  client::CallOptions options;
  options.wait_for_ready = true;  // the balancer may not listen yet
  options.timeout = ServerProcess::kPatience;
  options.resume.max_resumes = 0;
  return options;
}

v1::GenerateRequest LongRequestOf(int i, uint32_t tokens) {
  v1::GenerateRequest request = RequestOf(i);
  // Two replicas may have a request of that name at once.
  request.clear_request_id();
  request.mutable_stopping()->clear_stop_strings();
  request.mutable_stopping()->clear_min_new_tokens();
  request.mutable_stopping()->set_max_new_tokens(tokens - static_cast<uint32_t>(i));
  request.mutable_sampling()->clear_num_sequences();
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_min_chunk_tokens(4);
  return request;
}

// Does the same things over and over on many threads until Stop(), or until one goes wrong.
class Load {
 public:
  ~Load() { Stop(); }
  void Run(int threads, std::function<absl::Status(int thread)> call) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, call, i] {
        while (!stop_) {
          const absl::Status status = call(i);
          ++calls_;
          if (!status.ok()) Note(status);
        }
      });
    }
  }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int calls() const { return calls_; }
  std::vector<std::string> failures() {
    MutexLock lock(&mutex_);
    return failures_;
  }

 private:
  void Note(const absl::Status& status) {
    MutexLock lock(&mutex_);
    failures_.push_back(status.ToString());
    stop_ = true;
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::vector<std::thread> threads_;
  Mutex mutex_;
  std::vector<std::string> failures_ TLM_GUARDED_BY(mutex_);
};

class BalancersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Balancer::Program(GetParam()))) {
      GTEST_SKIP() << "no " << Balancer::Program(GetParam());
    }
  }

  // Replicas with these flags, their balancer, and what streams of about so many tokens are.
  void Start(std::vector<std::string> flags, uint32_t tokens) {
    tokens_ = tokens;
    replicas_ = std::make_unique<Replicas>(kReplicas, std::move(flags));
    balancer_ = std::make_unique<Balancer>(GetParam(), *replicas_);
    auto client = client::Client::Connect({balancer_->target()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    std::vector<std::thread> readers;
    for (int i = 0; i < kStreams; ++i) {
      readers.emplace_back([this, i] { expected_[i] = Read(i, Plain()); });
    }
    for (std::thread& reader : readers) reader.join();
    for (const Stream& stream : expected_) {
      ASSERT_TRUE(stream.status.ok()) << stream.status << balancer_->output();
    }
  }
  Stream Read(int i, const client::CallOptions& options) {
    return ReadStream(client_.get(), LongRequestOf(i, tokens_), options, [](int) {});
  }
  // The i-th stream, which must be what it was undisturbed.
  absl::Status ReadAgain(int i, const client::CallOptions& options) {
    const Stream stream = Read(i, options);
    resumes_ += stream.resumes;
    if (!stream.status.ok()) return stream.status;
    if (Everything(stream) == Everything(expected_[i])) return absl::OkStatus();
    return absl::DataLossError("stream " + std::to_string(i) + " is another one");
  }
  absl::Status GenerateShort() {
    v1::GenerateRequest request;
    request.set_prompt("The king");
    request.mutable_stopping()->set_max_new_tokens(4);
    request.mutable_output()->set_final_only(true);
    const Stream stream = ReadStream(client_.get(), request, Plain(), [](int) {});
    return stream.status;
  }
  absl::Status Forward() {
    v1::ForwardRequest request;
    for (const uint32_t id : {1u, 2u, 3u}) request.add_sequences()->add_ids(id);
    return client_->Forward(request, Plain()).status();
  }
  void RestartEachTwice() {
    for (int round = 1; round <= 2; ++round) {
      for (size_t i = 0; i < kReplicas; ++i) {
        replicas_->End(i);
        replicas_->Start(i);
        balancer_->WaitUntilBack(i, round);
      }
    }
  }

  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<Balancer> balancer_;
  std::unique_ptr<client::Client> client_;
  uint32_t tokens_ = 0;
  std::array<Stream, kStreams> expected_;  // undisturbed
  std::atomic<int> resumes_{0};
};

TEST_P(BalancersTest, ARollingRestartLosesNoRequestOfAPlainClient) {
  Start({"--withdrawal_grace=1200ms", "--drain_timeout=60s"}, 200);
  Load load;
  load.Run(kStreams, [this](int i) { return ReadAgain(i, Plain()); });
  load.Run(4, [this](int) { return GenerateShort(); });
  load.Run(4, [this](int) { return Forward(); });
  RestartEachTwice();
  load.Stop();
  EXPECT_EQ(load.failures(), std::vector<std::string>()) << balancer_->output();
  EXPECT_EQ(resumes_, 0);
  std::cout << load.calls() << " calls\n";
}

TEST_P(BalancersTest, ARollingRestartThatCutsStreamsLosesNoTokenOfAResumingClient) {
  // Streams that take longer than the grace.
  Start({"--withdrawal_grace=1200ms", "--drain_timeout=50ms"}, 950);
  client::CallOptions resuming;
  resuming.resume.max_resumes = 100;
  resuming.resume.timeout = ServerProcess::kPatience;
  Load load;
  load.Run(kStreams, [this, resuming](int i) { return ReadAgain(i, resuming); });
  RestartEachTwice();
  load.Stop();
  EXPECT_EQ(load.failures(), std::vector<std::string>()) << balancer_->output();
  EXPECT_GE(resumes_, kStreams / 2);
  std::cout << load.calls() << " streams, resumed " << resumes_ << " times\n";
}

TEST_P(BalancersTest, CallsOfOneAffinityFindTheirPrefixInTheCache) {
  Start({}, 60);
  for (int key = 0; key < 12; ++key) {
    v1::GenerateRequest request;
    for (uint32_t i = 0; i < 200; ++i) {
      request.mutable_prompt_token_ids()->add_ids((i * 7 + static_cast<uint32_t>(key)) % 250 + 1);
    }
    request.mutable_stopping()->set_max_new_tokens(1);
    client::CallOptions options = Plain();
    options.metadata.emplace_back("tlm-affinity", "key " + std::to_string(key));
    for (int time = 0; time < 3; ++time) {
      const Stream stream = ReadStream(client_.get(), request, options, [](int) {});
      ASSERT_TRUE(stream.status.ok()) << stream.status;
      EXPECT_EQ(stream.collector.result().started.cached_prompt_tokens() > 0, time > 0) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Balancers, BalancersTest, ::testing::Values("nginx", "haproxy"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tlm
