#include "server/rpc/facades/abort.h"

#include <fmt/format.h>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr int64_t kMaxIds = 1024;

}  // namespace

absl::Status AbortedByClient() {
  return WithReason(Aborted("the client ended the call"), "ABORTED_BY_CLIENT");
}

absl::StatusOr<int64_t> AbortOwnCalls(
    const RpcContext& rpc, const Principal& caller,
    const google::protobuf::RepeatedPtrField<std::string>& request_ids) {
  TLM_RETURN_IF_ERROR(CheckCount("request_ids", request_ids.size(), kMaxIds));
  const int64_t limit = rpc.model.limits.max_request_id_bytes;
  for (int i = 0; i < request_ids.size(); ++i) {
    const auto bytes = static_cast<int64_t>(request_ids[i].size());
    if (bytes > limit) {
      return BadField(fmt::format("request_ids[{}]", i), "has {} bytes, the limit is {}", bytes,
                      limit);
    }
  }
  int64_t calls = 0;
  for (const std::string& id : request_ids) {
    calls += rpc.calls.Abort(id, caller.tenant, AbortedByClient());
  }
  return calls;
}

}  // namespace tlm
