#include "client/cli/base/session.h"

#include <utility>

#include "client/cli/base/connection.h"
#include "client/cli/base/report.h"

namespace tlm::cli {

absl::StatusOr<std::unique_ptr<client::Client>> ConnectFromFlags(Console* console) {
  const auto options = ClientOptionsFromFlags(console);
  if (!options.ok()) return options.status();
  return client::Client::Connect(TargetsFromFlags(), *options);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(std::string_view command, Console* console) {
  // The constructor is private, and make_unique cannot call it.
  std::unique_ptr<Session> session(new Session(command, console));
  auto client = ConnectFromFlags(console);
  if (!client.ok()) return client.status();
  session->client_ = *std::move(client);
  return session;
}

client::CallOptions Session::call_options() {
  client::CallOptions options;
  options.timeout = TimeoutFromFlags();
  options.cancel = interrupt_.token();
  return options;
}

int Session::Finish(const absl::Status& status) {
  if (status.ok()) return kSuccess;
  if (interrupt_.exit_code() != 0 && absl::IsCancelled(status)) {
    console_->err << "tlm: " << command_ << ": interrupted" << std::endl;
    return interrupt_.exit_code();
  }
  return ReportError(command_, status, console_);
}

}  // namespace tlm::cli
