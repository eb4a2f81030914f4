// Makes the spans of a call, by OpenTelemetry's semantic conventions for gRPC and generative AI.
#ifndef TLM_SERVER_RPC_OTLP_CALL_SPANS_H_
#define TLM_SERVER_RPC_OTLP_CALL_SPANS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "opentelemetry/proto/common/v1/common.pb.h"
#include "opentelemetry/proto/trace/v1/trace.pb.h"
#include "server/observe/call_summary.h"
#include "server/rpc/call/call_record.h"

namespace tlm {

namespace otlp_common = opentelemetry::proto::common::v1;
namespace otlp_trace = opentelemetry::proto::trace::v1;

// Adds "key": `value` to the attributes.
void AddAttribute(std::string_view key, std::string_view value,
                  google::protobuf::RepeatedPtrField<otlp_common::KeyValue>& attributes);

// Returns the span of a call of `method`, "package.Service/Call", that ended at `end` on the wall
// clock, followed by one span for each of its phases. They contain no text of prompts or outputs
// and no error messages. server/observe/README.md lists the attributes.
std::vector<otlp_trace::Span> SpansOf(const CallRecord& record, const CallSummary& summary,
                                      const std::string& method, absl::Time end);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OTLP_CALL_SPANS_H_
