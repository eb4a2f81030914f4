#include "model/config/json_file.h"

#include <cstddef>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"

namespace tlm {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;

}  // namespace

absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(nlohmann::json value, ParseJson(text));
  if (!value.is_object()) return InvalidArgument("is {}, not a JSON object", value.type_name());
  return value;
}

absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<nlohmann::json> object = ParseJsonObject(text);
  if (!object.ok()) return WithContext(object.status(), path);
  return object;
}

}  // namespace tlm
