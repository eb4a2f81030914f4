// A request and its answer, between the HTTP server's threads and the thread that answers.
#ifndef TLM_CLIENT_OPENAI_HTTP_EXCHANGE_H_
#define TLM_CLIENT_OPENAI_HTTP_EXCHANGE_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cpp/cancel_token.h"

namespace tlm::openai {

struct HttpRequest {
  std::string method;  // "GET", "POST"; "HEAD" is "GET"
  std::string path;    // decoded, without the query: "/v1/models"
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case; of several, the last
  std::string body;

  // Returns "" if there is none.
  std::string Header(const std::string& lower_case_name) const;
};

struct ResponseHead {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The answer is either complete (Respond) or a stream (BeginStream, Write ..., End). One thread
// calls these at a time, except Write, which several threads may call at once.
//
// The stream's buffer is bounded: Write waits until the client has read enough of it.
class Exchange {
 public:
  // Bytes of a stream that wait for the client; one Write may exceed it.
  static constexpr size_t kMaxBuffered = size_t{256} << 10;

  // `resume` continues the connection if it is suspended; it is called with the lock held.
  Exchange(HttpRequest request, std::function<void()> resume)
      : request_(std::move(request)), resume_(std::move(resume)) {}

  const HttpRequest& request() const { return request_; }
  HttpRequest& mutable_request() { return request_; }

  // Is cancelled when the client closes the connection.
  client::CancelToken* cancel() { return &cancel_; }
  bool gone() const { return cancel_.cancelled(); }

  void Respond(ResponseHead head, std::string body);
  void BeginStream(ResponseHead head);
  // Waits while the buffer is full. False when the client is gone: the bytes are dropped.
  bool Write(std::string_view bytes);
  void End();

  // The status that was answered; 0 before.
  int status() const;

  // For the HTTP server.
  //
  // Returns the head once it is known; the connection is then not suspended. nullopt = `suspend`
  // was called: the connection continues with the function `resume`.
  std::optional<ResponseHead> HeadOrSuspend(const std::function<void()>& suspend);
  bool is_stream() const;
  // Returns the body of a complete answer.
  std::string TakeBody();
  // Copies up to `size` bytes of the stream. 0 = none now, `suspend` was called; -1 = the end.
  long Read(char* out, size_t size, const std::function<void()>& suspend);
  // The client closed the connection.
  void OnGone();

 private:
  void ResumeLocked();

  HttpRequest request_;
  const std::function<void()> resume_;
  client::CancelToken cancel_;

  mutable std::mutex mutex_;
  std::condition_variable writable_;
  // Guarded by mutex_.
  std::optional<ResponseHead> head_;
  bool stream_ = false;
  bool ended_ = false;
  bool gone_ = false;
  bool suspended_ = false;
  std::string buffer_;
  size_t read_ = 0;  // bytes of buffer_ that were sent
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_HTTP_EXCHANGE_H_
