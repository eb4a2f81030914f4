#include "client/cli/chat_request.h"

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/sampling_flags.h"
#include "client/cli/base/template_arguments.h"

using tlm::cli::TemplateArguments;

ABSL_FLAG(TemplateArguments, template_argument, {},
          "NAME=JSON, a variable of the chat template: enable_thinking=false; repeatable");
ABSL_FLAG(bool, timing, false, "print counts and speed after each answer");

namespace tlm::cli {

absl::StatusOr<v1::GenerateRequest> ChatRequestFromFlags() {
  v1::GenerateRequest request;
  if (absl::Status status = SetGenerationFromFlags(&request); !status.ok()) return status;
  request.mutable_output()->set_timing(absl::GetFlag(FLAGS_timing));
  const TemplateArguments arguments = absl::GetFlag(FLAGS_template_argument);
  if (!arguments.values.fields().empty()) {
    *request.mutable_chat()->mutable_template_arguments() = arguments.values;
  }
  return request;
}

}  // namespace tlm::cli
