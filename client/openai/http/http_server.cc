#include "client/openai/http/http_server.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <list>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/openai/http/connection_table.h"
#include "client/openai/http/listen_socket.h"
#include "client/openai/mapping/api_error.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm::openai {
namespace {

constexpr char kClosingHeader[] = "Connection";

struct DestroyResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using ResponsePtr = std::unique_ptr<MHD_Response, DestroyResponse>;

// Counts the exchanges that exist.
struct Live {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<std::weak_ptr<Exchange>> exchanges;  // guarded by mutex
};

// A request on a connection, from its request line to the end of its answer.
struct Pending {
  uint64_t connection_id = 0;
  bool begun = false;    // the headers were read
  bool refused = false;  // the body is dropped; `refusal` is the answer
  absl::Status refusal;
  HttpRequest request;
  size_t reserved = 0;  // bytes of the budget of all bodies
  std::shared_ptr<Exchange> exchange;
};

// What a stream reads from.
struct Source {
  std::shared_ptr<Exchange> exchange;
  MHD_Connection* connection;
};

ssize_t ReadStream(void* data, uint64_t, char* out, size_t size) {
  auto* const source = static_cast<Source*>(data);
  const long count =
      source->exchange->Read(out, size, [source] { MHD_suspend_connection(source->connection); });
  return count < 0 ? static_cast<ssize_t>(MHD_CONTENT_READER_END_OF_STREAM)
                   : static_cast<ssize_t>(count);
}

void FreeSource(void* data) { delete static_cast<Source*>(data); }

MHD_Result AddHeader(void* data, MHD_ValueKind, const char* key, const char* value) {
  std::string name(key);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  (*static_cast<std::map<std::string, std::string>*>(data))[name] = value == nullptr ? "" : value;
  return MHD_YES;
}

MHD_Result AddArgument(void* data, MHD_ValueKind, const char* key, const char* value) {
  (*static_cast<std::map<std::string, std::string>*>(data))[key] = value == nullptr ? "" : value;
  return MHD_YES;
}

class MicroHttpServer final : public HttpServer {
 public:
  MicroHttpServer(const HttpOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), live_(std::make_shared<Live>()) {}

  ~MicroHttpServer() override {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);  // closes the listener, unless it quiesced
    if (quiesced_ >= 0) close(quiesced_);
  }

  absl::Status Start() {
    TLM_ASSIGN_OR_RETURN(const int listener, ListenOn(options_.host, options_.port));
    port_ = PortOf(listener);
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    std::vector<MHD_OptionItem> tls_items;
    if (!options_.certificate.empty()) {
      flags |= MHD_USE_TLS;
      tls_items.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, options_.certificate.data()});
      tls_items.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, options_.key.data()});
    }
    tls_items.push_back({MHD_OPTION_END, 0, nullptr});
    const auto timeout =
        static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(options_.idle_timeout)));
    // The logger is the first option: errors of later ones are reported to it.
    daemon_ =
        MHD_start_daemon(flags, 0, nullptr, nullptr, &MicroHttpServer::Access, this,              //
                         MHD_OPTION_EXTERNAL_LOGGER, &MicroHttpServer::Log, this,                 //
                         MHD_OPTION_LISTEN_SOCKET, listener,                                      //
                         MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,                                    //
                         MHD_OPTION_THREAD_POOL_SIZE, static_cast<unsigned>(options_.threads),    //
                         MHD_OPTION_CONNECTION_LIMIT, options_.max_connections,                   //
                         MHD_OPTION_CONNECTION_TIMEOUT, timeout,                                  //
                         MHD_OPTION_NOTIFY_CONNECTION, &MicroHttpServer::NotifyConnection, this,  //
                         MHD_OPTION_NOTIFY_COMPLETED, &MicroHttpServer::NotifyCompleted, this,    //
                         MHD_OPTION_URI_LOG_CALLBACK, &MicroHttpServer::BeginRequest, this,       //
                         MHD_OPTION_ARRAY, tls_items.data(), MHD_OPTION_END);
    if (daemon_ != nullptr) return absl::OkStatus();
    std::lock_guard<std::mutex> lock(log_mutex_);
    return InvalidArgument("the HTTP server could not start: {}",
                           log_.empty() ? "no reason was given" : OneLine(log_));
  }

  int port() const override { return port_; }
  size_t connections() const override { return table_.size(); }
  size_t exchanges() const override {
    std::lock_guard<std::mutex> lock(live_->mutex);
    return live_->exchanges.size();
  }

  void Stop(absl::Duration drain_timeout) override {
    stopping_ = true;
    quiesced_ = MHD_quiesce_daemon(daemon_);
    const auto none_left = [this] { return live_->exchanges.empty(); };
    {
      std::unique_lock<std::mutex> lock(live_->mutex);
      if (live_->changed.wait_for(lock, absl::ToChronoMilliseconds(drain_timeout), none_left)) {
        return;
      }
    }
    std::vector<std::shared_ptr<Exchange>> running;
    {
      std::lock_guard<std::mutex> lock(live_->mutex);
      for (const auto& exchange : live_->exchanges) running.push_back(exchange.lock());
    }
    for (const auto& exchange : running) {
      if (exchange != nullptr) exchange->OnGone();
    }
    running.clear();
    table_.ShutDownAll();
    std::unique_lock<std::mutex> lock(live_->mutex);
    live_->changed.wait(lock, none_left);
  }

 private:
  static MicroHttpServer& Self(void* data) { return *static_cast<MicroHttpServer*>(data); }

  static void Log(void* data, const char* format, va_list arguments) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, arguments);
    MicroHttpServer& self = Self(data);
    std::lock_guard<std::mutex> lock(self.log_mutex_);
    self.log_ = text;
  }

  static uint64_t IdOf(MHD_Connection* connection) {
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == nullptr ? 0 : reinterpret_cast<uintptr_t>(info->socket_context);
  }

  // A connection without a request for longer than this is not idle, which libmicrohttpd would
  // have noticed: it sends its request byte by byte.
  absl::Time IdleDeadline() const {
    return absl::Now() + options_.idle_timeout + options_.request_timeout;
  }

  static void NotifyConnection(void* data, MHD_Connection* connection, void** socket_context,
                               MHD_ConnectionNotificationCode code) {
    MicroHttpServer& self = Self(data);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
      self.table_.Remove(reinterpret_cast<uintptr_t>(*socket_context));
      return;
    }
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int on = 1;
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // libmicrohttpd keeps a pointer for each socket: here the key in the table.
    *socket_context =  // NOLINTNEXTLINE(performance-no-int-to-ptr)
        reinterpret_cast<void*>(self.table_.Add(info->connect_fd, self.IdleDeadline()));
  }

  static void* BeginRequest(void* data, const char*, MHD_Connection* connection) {
    MicroHttpServer& self = Self(data);
    auto pending = std::make_unique<Pending>();
    pending->connection_id = IdOf(connection);
    self.table_.SetDeadline(pending->connection_id, absl::Now() + self.options_.request_timeout);
    return pending.release();
  }

  static void NotifyCompleted(void* data, MHD_Connection*, void** request_context,
                              MHD_RequestTerminationCode) {
    MicroHttpServer& self = Self(data);
    const std::unique_ptr<Pending> pending(static_cast<Pending*>(*request_context));
    *request_context = nullptr;
    if (pending == nullptr) return;
    self.table_.Unwatch(pending->connection_id);
    self.table_.SetDeadline(pending->connection_id, self.IdleDeadline());
    self.bodies_ -= pending->reserved;
    // Nothing reads the exchange any more, also if the answer was not sent to its end.
    if (pending->exchange != nullptr) pending->exchange->OnGone();
  }

  static MHD_Result Access(void* data, MHD_Connection* connection, const char* url,
                           const char* method, const char*, const char* upload, size_t* upload_size,
                           void** request_context) {
    MicroHttpServer& self = Self(data);
    auto* const pending = static_cast<Pending*>(*request_context);
    if (pending == nullptr) return MHD_NO;
    if (!pending->begun) {
      pending->begun = true;
      self.ReadHead(connection, url, method, pending);
      // A client that expects 100-continue has not sent the body yet, and never does.
      if (pending->refused && !pending->request.Header("expect").empty()) {
        return self.Refuse(connection, pending->refusal);
      }
      return MHD_YES;
    }
    if (*upload_size > 0) {
      self.AddToBody({upload, *upload_size}, pending);
      *upload_size = 0;
      return MHD_YES;
    }
    if (pending->exchange == nullptr) {
      self.table_.SetDeadline(pending->connection_id, absl::InfiniteFuture());
      if (pending->refused) return self.Refuse(connection, pending->refusal);
      self.Dispatch(connection, pending);
      self.handler_(self, pending->exchange);
    }
    return self.Answer(connection, pending);
  }

  void ReadHead(MHD_Connection* connection, const char* url, const char* method, Pending* pending) {
    HttpRequest& request = pending->request;
    request.method = method;
    if (request.method == "HEAD") request.method = "GET";
    request.path = url;
    MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHeader, &request.headers);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, &AddArgument, &request.query);
    const std::string length = request.Header("content-length");
    size_t bytes = 0;
    const auto parsed = std::from_chars(length.data(), length.data() + length.size(), bytes);
    if (parsed.ec != std::errc() && !length.empty()) bytes = options_.max_body_bytes + 1;
    if (bytes > options_.max_body_bytes) RefuseSize(pending);
  }

  void RefuseSize(Pending* pending) {
    pending->refused = true;
    pending->refusal = WithReason(
        ResourceExhausted("the body has more than {} bytes, the limit of --max_body_bytes",
                          options_.max_body_bytes),
        "MESSAGE_TOO_LARGE");
  }

  // Reads on without storing after a refusal: a client that is still sending does not see an
  // answer.
  void AddToBody(std::string_view bytes, Pending* pending) {
    if (pending->refused) return;
    std::string& body = pending->request.body;
    if (body.size() + bytes.size() > options_.max_body_bytes) {
      RefuseSize(pending);
    } else if ((bodies_ += bytes.size()) > options_.max_bodies_bytes) {
      pending->reserved += bytes.size();
      pending->refused = true;
      pending->refusal =
          WithRetryAfter(Unavailable("the bodies of all requests together exceed {} bytes",
                                     options_.max_bodies_bytes),
                         absl::Seconds(1));
    } else {
      pending->reserved += bytes.size();
      body.append(bytes);
    }
    if (pending->refused) std::string().swap(body);
  }

  void Dispatch(MHD_Connection* connection, Pending* pending) {
    const std::shared_ptr<Live> live = live_;
    std::lock_guard<std::mutex> lock(live->mutex);
    const auto place = live->exchanges.emplace(live->exchanges.end());
    pending->exchange =
        std::shared_ptr<Exchange>(new Exchange(std::move(pending->request),
                                               [connection] { MHD_resume_connection(connection); }),
                                  [live, place](Exchange* exchange) {
                                    delete exchange;
                                    std::lock_guard<std::mutex> relock(live->mutex);
                                    live->exchanges.erase(place);
                                    live->changed.notify_all();
                                  });
    *place = pending->exchange;
    table_.Watch(pending->connection_id, pending->exchange);
  }

  MHD_Result Answer(MHD_Connection* connection, Pending* pending) {
    const auto head =
        pending->exchange->HeadOrSuspend([connection] { MHD_suspend_connection(connection); });
    if (!head) return MHD_YES;
    ResponsePtr response;
    if (pending->exchange->is_stream()) {
      constexpr size_t kBlock = 16384;
      auto source = std::make_unique<Source>(Source{pending->exchange, connection});
      response.reset(MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlock, &ReadStream,
                                                       source.get(), &FreeSource));
      if (response != nullptr) static_cast<void>(source.release());
    } else {
      std::string body = pending->exchange->TakeBody();
      response.reset(
          MHD_create_response_from_buffer(body.size(), body.data(), MHD_RESPMEM_MUST_COPY));
    }
    return Queue(connection, *head, response.get());
  }

  MHD_Result Refuse(MHD_Connection* connection, const absl::Status& status) {
    const ApiError error = ApiErrorOf(status);
    std::string body = Written(ErrorJson(error));
    const ResponsePtr response(
        MHD_create_response_from_buffer(body.size(), body.data(), MHD_RESPMEM_MUST_COPY));
    return Queue(connection, {.status = error.status}, response.get());
  }

  MHD_Result Queue(MHD_Connection* connection, const ResponseHead& head, MHD_Response* response) {
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", head.content_type.c_str());
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : head.headers) {
      MHD_add_response_header(response, name.c_str(), value.c_str());
    }
    if (stopping_) MHD_add_response_header(response, kClosingHeader, "close");
    return MHD_queue_response(connection, static_cast<unsigned>(head.status), response);
  }

  HttpOptions options_;  // libmicrohttpd takes pointers to its texts
  const Handler handler_;
  const std::shared_ptr<Live> live_;
  ConnectionTable table_;
  std::atomic<size_t> bodies_{0};
  std::atomic<bool> stopping_{false};
  int quiesced_ = -1;  // the listener after Stop
  int port_ = 0;
  MHD_Daemon* daemon_ = nullptr;
  std::mutex log_mutex_;
  std::string log_;  // the last message; guarded by log_mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              Handler handler) {
  auto server = std::make_unique<MicroHttpServer>(options, std::move(handler));
  TLM_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace tlm::openai
