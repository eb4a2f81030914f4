// Reads the responses of a streaming call one by one.
#ifndef TLM_CLIENT_CPP_SERVER_STREAM_H_
#define TLM_CLIENT_CPP_SERVER_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/status.h"

namespace tlm::client {

// Use:
// while (stream->Read(&response)) Use(response);
// absl::Status status = stream->Finish();
//
// Not thread-safe, except Cancel. The destructor cancels the call.
template <typename Response>
class ServerStream {
 public:
  using Reader = grpc::ClientReader<Response>;

  // Client calls this. Starts the call with `start(context)`, which returns its reader. Starting
  // may block until the server is up, so `cancel` is registered before.
  template <typename Start>
  ServerStream(std::unique_ptr<grpc::ClientContext> context, CancelToken* cancel,
               const Start& start)
      : context_(std::move(context)),
        registration_(cancel, context_.get()),
        reader_(start(context_.get())) {}

  ~ServerStream() {
    if (!status_) {
      context_->TryCancel();
      Finish().IgnoreError();
    }
  }
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;

  // Waits for the next response; false at the end of the stream, successful or not.
  bool Read(Response* response) { return !status_ && reader_->Read(response); }

  // Drops the remaining responses; returns the status of the call.
  absl::Status Finish() {
    if (!status_) {
      Response dropped;
      while (reader_->Read(&dropped)) {
      }
      status_ = FromGrpcStatus(reader_->Finish());
    }
    return *status_;
  }

  // Ends the call; Finish then returns CANCELLED. Thread-safe.
  void Cancel() { context_->TryCancel(); }

  // Gives access to the server's metadata: initial after the first Read, trailing after Finish.
  const grpc::ClientContext& context() const { return *context_; }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  CancelToken::Registration registration_;
  std::unique_ptr<Reader> reader_;
  std::optional<absl::Status> status_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_SERVER_STREAM_H_
