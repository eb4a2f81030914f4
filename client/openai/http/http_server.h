// An HTTP/1.1 server on libmicrohttpd.
#ifndef TLM_CLIENT_OPENAI_HTTP_HTTP_SERVER_H_
#define TLM_CLIENT_OPENAI_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/openai/http/exchange.h"

namespace tlm::openai {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  int port = 0;                    // 0 = any free port
  // PEM texts; empty = no TLS.
  std::string certificate;
  std::string key;

  int threads = 2;  // that read and write
  // Further connections wait until one is closed.
  unsigned max_connections = 16384;
  size_t max_body_bytes = size_t{8} << 20;
  // Bodies of all requests that have not been answered yet; further ones get 503.
  size_t max_bodies_bytes = size_t{1} << 30;
  // A connection without any byte in or out for this long is closed: one that is kept alive, and
  // one whose client does not read.
  absl::Duration idle_timeout = absl::Seconds(120);
  // From the request line until the end of the body.
  absl::Duration request_timeout = absl::Seconds(60);
};

// Thread-safe. Requests that are too large are refused without the handler, with an error as
// OpenAI's API reports it.
class HttpServer {
 public:
  // Must not block. It, or a thread that it starts, answers each exchange exactly once. When the
  // client closes the connection (or only its sending side), the exchange's token is cancelled; it
  // must be answered all the same.
  using Handler = std::function<void(const HttpServer& server, std::shared_ptr<Exchange>)>;

  // Listens and serves. INVALID_ARGUMENT for a host that is no address, UNAVAILABLE if the port
  // cannot be opened, INVALID_ARGUMENT if libmicrohttpd refuses the certificate.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           Handler handler);
  // Stop must have been called, or no exchange runs.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // Open connections, and exchanges that have not been answered to the end.
  virtual size_t connections() const = 0;
  virtual size_t exchanges() const = 0;

  // Accepts no more connections; answers close theirs. Waits up to `drain_timeout` for the
  // exchanges, then cancels the others and waits for their end.
  virtual void Stop(absl::Duration drain_timeout) = 0;
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_HTTP_HTTP_SERVER_H_
