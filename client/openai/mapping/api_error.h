// Errors as OpenAI's API reports them.
#ifndef TLM_CLIENT_OPENAI_MAPPING_API_ERROR_H_
#define TLM_CLIENT_OPENAI_MAPPING_API_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/openai/mapping/json_body.h"

namespace tlm::openai {

// {"error": {"message", "type", "param", "code"}} and the HTTP status with it.
struct ApiError {
  int status = 500;
  std::string message;
  std::string type;   // "invalid_request_error", "rate_limit_error", ...
  std::string param;  // the field at fault; empty = null
  std::string
      code;  // "model_not_found", or the server's reason, such as "QUEUE_FULL"; empty = null
  std::optional<absl::Duration> retry_after;
};

// Converts a status of this library or of client/cpp:
//
//   INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION   400 invalid_request_error
//   UNAUTHENTICATED                                       401 authentication_error
//   PERMISSION_DENIED                                     403 permission_error
//   NOT_FOUND                                             404 invalid_request_error
//   ALREADY_EXISTS, ABORTED                               409 conflict_error
//   RESOURCE_EXHAUSTED                                    429 rate_limit_error
//     reason MESSAGE_TOO_LARGE                            413 invalid_request_error
//     reason CONSTRAINT_TOO_LARGE                         400 invalid_request_error
//   CANCELLED                                             499 cancelled
//   UNIMPLEMENTED                                         501 invalid_request_error
//   UNAVAILABLE                                           503 server_error
//   DEADLINE_EXCEEDED                                     504 timeout_error
//   others                                                500 server_error
//
// `param` is the field in OpenAI's name if the server named one of its own.
ApiError ApiErrorOf(const absl::Status& status);

// 404 with the code `model_not_found`.
absl::Status ModelNotFound(const std::string& model);

// Returns {"error": {...}}.
Json ErrorJson(const ApiError& error);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_API_ERROR_H_
