#include "model/base/json.h"

#include <utility>

#include "model/base/errors.h"
#include "model/base/json_builder.h"

namespace tlm {

absl::Status CheckNoZeroByte(std::string_view text) {
  const size_t zero = text.find('\0');
  if (zero == text.npos) return absl::OkStatus();
  return InvalidArgument("is not valid JSON at {}", LineAndColumn(text, zero));
}

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int max_depth) {
  TLM_RETURN_IF_ERROR(CheckNoZeroByte(text));
  JsonBuilder builder(text, max_depth);
  if (!nlohmann::json::sax_parse(text, &builder)) return std::move(builder).status();
  return std::move(builder).value();
}

}  // namespace tlm
