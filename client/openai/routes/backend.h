// The servers of one model.
#ifndef TLM_CLIENT_OPENAI_ROUTES_BACKEND_H_
#define TLM_CLIENT_OPENAI_ROUTES_BACKEND_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/openai/mapping/request.h"
#include "client/openai/routes/replica_load.h"

namespace tlm::openai {

// Thread-safe.
class Backend {
 public:
  // `name` is the model's name in requests; empty = the name that the servers report. Returns the
  // errors of Client::Connect.
  static absl::StatusOr<std::unique_ptr<Backend>> Connect(const std::string& name,
                                                          const std::vector<std::string>& targets,
                                                          const client::ClientOptions& options);

  client::Client& client() { return *client_; }
  // One per target.
  const std::vector<std::unique_ptr<ReplicaLoad>>& loads() const { return loads_; }
  // The configured name; may be empty.
  const std::string& name() const { return name_; }
  // Whether every target is on this machine.
  bool is_local() const;

  // Returns the properties of the model, at most kFresh old. The errors of ModelInfo.
  static constexpr absl::Duration kFresh = absl::Seconds(30);
  absl::StatusOr<ModelTraits> Traits(const client::CallOptions& options);
  // Asks again next time: the servers may have been restarted with another model.
  void ForgetTraits();

  // Returns the bytes of a token; of an unknown one, or if the server does not answer, "".
  std::string TokenBytesOf(uint32_t id, const client::CallOptions& options);

 private:
  Backend(std::string name, std::unique_ptr<client::Client> client)
      : name_(std::move(name)), client_(std::move(client)) {}

  const std::string name_;
  const std::unique_ptr<client::Client> client_;
  std::vector<std::unique_ptr<ReplicaLoad>> loads_;
  std::mutex mutex_;
  std::optional<ModelTraits> traits_;                      // guarded by mutex_
  absl::Time traits_at_;                                   // guarded by mutex_
  std::unordered_map<uint32_t, std::string> token_bytes_;  // guarded by mutex_
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_BACKEND_H_
