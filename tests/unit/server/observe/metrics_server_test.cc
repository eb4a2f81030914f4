#include "server/observe/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <vector>

#include "server/observe/process_figures.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection from this machine, closed at the end.
class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) { send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  void EndOfSending() { shutdown(fd_, SHUT_WR); }
  // What comes until the server closes the connection.
  std::string Read() {
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
    return answer;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    auto server = MetricsServer::Start({"127.0.0.1", 0}, metrics_, state_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Ask(const std::string& line, const std::string& headers = "") {
    Client client(server_->port());
    client.Send(line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
    return client.Read();
  }

  Metrics metrics_;
  ServerState state_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, AnswersMetricsInPrometheusFormat) {
  const std::string answer = Ask("GET /metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("tlm_state{state=\"starting\"} 1\n"));
}

TEST_F(MetricsServerTest, HeadHasTheHeaderAlone) {
  const std::string answer = Ask("HEAD /healthz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 9\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(MetricsServerTest, HealthAndReadinessFollowTheState) {
  struct Case {
    LifeState state;
    std::string health, ready, body;
  };
  const Case cases[] = {{LifeState::kStarting, "200", "503", "starting"},
                        {LifeState::kServing, "200", "200", "serving"},
                        {LifeState::kNotServing, "503", "503", "not_serving"},
                        {LifeState::kDraining, "200", "503", "draining"},
                        {LifeState::kStopped, "200", "503", "stopped"}};
  for (const Case& c : cases) {
    state_.Set(c.state);
    EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 " + c.health)) << c.body;
    EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 " + c.ready)) << c.body;
    EXPECT_THAT(Ask("GET /readyz"), HasSubstr("\r\n\r\n" + c.body + "\n"));
  }
}

TEST_F(MetricsServerTest, TheRootListsThePaths) {
  const std::string answer = Ask("GET /");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
    EXPECT_THAT(answer, HasSubstr(path));
    EXPECT_THAT(Ask(std::string("GET ") + path), Not(StartsWith("HTTP/1.1 404"))) << path;
  }
  EXPECT_THAT(Ask("POST /"), StartsWith("HTTP/1.1 405"));
}

TEST_F(MetricsServerTest, KnowsNoOtherPathsAndNoFiles) {
  for (const char* path : {"/metrics/", "/healthz/x", "/../etc/passwd", "/etc/passwd",
                           "/%2e%2e/etc/passwd", "/metricsx"}) {
    EXPECT_THAT(Ask(std::string("GET ") + path), StartsWith("HTTP/1.1 404")) << path;
  }
  EXPECT_THAT(Ask("GET /healthz?verbose=1"), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, TakesGetAndHeadAloneAndGivesNoCrossOriginPermission) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string answer =
        Ask(std::string(method) + " /metrics",
            "Origin: http://evil.example\r\nAccess-Control-Request-Method: GET\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow-Origin"))) << method;
  }
}

TEST_F(MetricsServerTest, OneRequestAConnection) {
  Client client(server_->port());
  const std::string request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
  client.Send(request + request);
  const std::string answer = client.Read();
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << answer;
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
}

TEST_F(MetricsServerTest, TakesARequestInPiecesOfAClientThatEndsSending) {
  Client client(server_->port());
  for (const char* piece : {"G", "ET /heal", "thz HTTP/1.0\r", "\nHost: x\r\n\r", "\n"}) {
    client.Send(piece);
  }
  client.EndOfSending();
  EXPECT_THAT(client.Read(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(MetricsServerTest, RefusesWhatIsNoRequestOrTooLong) {
  for (const std::string& bad :
       {std::string("nonsense\r\n\r\n"), "GET /metrics HTTP/1.1\r\nX: " + std::string(8192, 'x'),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)}) {
    Client client(server_->port());
    client.Send(bad);
    EXPECT_THAT(client.Read(), Not(HasSubstr(" 200 ")));
  }
  EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200"));
}

// Clients that want no answer, in every way of hanging.
std::vector<std::unique_ptr<Client>> HungClients(int count, int port) {
  const char* const sent[] = {"", "GET /metrics HTTP/1.1\r\nX-", "GET /metr"};
  std::vector<std::unique_ptr<Client>> hung;
  for (int i = 0; i < count; ++i) {
    hung.push_back(std::make_unique<Client>(port));
    hung.back()->Send(sent[i % std::size(sent)]);
  }
  return hung;
}

TEST_F(MetricsServerTest, ProbesAreAnsweredWhileHundredsHang) {
  state_.Set(LifeState::kServing);
  const double before = ReadProcessFigures().open_fds;
  const auto hung = HungClients(400, server_->port());
  ASSERT_TRUE(hung.back()->connected());
  const auto start = std::chrono::steady_clock::now();
  for (const char* path : {"/healthz", "/readyz", "/metrics"}) {
    EXPECT_THAT(Ask(std::string("GET ") + path), StartsWith("HTTP/1.1 200")) << path;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::cout << "answered in " << taken.count() << " s with 400 clients that hang\n";
  EXPECT_LT(taken.count(), 20);  // a request's half second for each of them would be 200
  // Their own ends, and at most the server's threads and line.
  EXPECT_LE(ReadProcessFigures().open_fds, before + 400 + 200 + 20 + 2);
}

TEST_F(MetricsServerTest, AFewThatHangAreCutOffByAndBeforeTheEnd) {
  for (const bool ends : {false, true}) {
    const auto hung = HungClients(3, server_->port());
    EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200"));
    if (ends) server_.reset();
    for (const auto& client : hung) EXPECT_THAT(client->Read(), Not(HasSubstr(" 200 ")));
  }
}

TEST_F(MetricsServerTest, APortInUseIsAnError) {
  EXPECT_THAT(MetricsServer::Start({"127.0.0.1", server_->port()}, metrics_, state_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("127.0.0.1:")));
}

}  // namespace
}  // namespace tlm
