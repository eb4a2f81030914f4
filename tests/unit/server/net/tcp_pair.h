#ifndef TLM_TESTS_UNIT_SERVER_NET_TCP_PAIR_H_
#define TLM_TESTS_UNIT_SERVER_NET_TCP_PAIR_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace tlm {

// Both ends of a TCP connection.
class TcpPair {
 public:
  TcpPair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(listener, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener, 1);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&address), size), 0);
    server = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    close(listener);
  }
  ~TcpPair() {
    CloseClient();
    CloseServer();
  }
  TcpPair(const TcpPair&) = delete;
  TcpPair& operator=(const TcpPair&) = delete;

  void CloseClient() {
    if (client_ >= 0) close(client_);
    client_ = -1;
  }
  void CloseServer() {
    if (server >= 0) close(server);
    server = -1;
  }
  int client() const { return client_; }
  // From the client to the server, which reads it.
  void Send(size_t bytes) {
    const std::string data(size_t{64} << 10, 'x');
    std::string received(data.size(), ' ');
    for (size_t sent = 0; sent < bytes; sent += data.size()) {
      EXPECT_EQ(send(client_, data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
      for (size_t read = 0; read < data.size();) {
        const ssize_t now = recv(server, received.data(), received.size(), 0);
        if (now > 0) read += static_cast<size_t>(now);
      }
    }
  }
  bool IsCut() {
    char byte = 0;
    return recv(server, &byte, 1, 0) == 0;
  }

  int server = -1;  // does not block

 private:
  int client_ = -1;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_NET_TCP_PAIR_H_
