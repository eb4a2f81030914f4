// Reads the JSON files of a model directory.
#ifndef TLM_MODEL_CONFIG_JSON_FILE_H_
#define TLM_MODEL_CONFIG_JSON_FILE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// Parses a JSON object. INVALID_ARGUMENT when ParseJson returns it, and for any other value.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text);

// Reads a JSON object from a file. NOT_FOUND when there is no file, FAILED_PRECONDITION when it
// cannot be read, INVALID_ARGUMENT also when it is over 16 MiB; all name it.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_JSON_FILE_H_
