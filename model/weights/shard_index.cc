#include "model/weights/shard_index.h"

#include <set>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

bool IsPlainFileName(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  constexpr std::string_view kForbidden("/\\\0", 3);
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.size() <= 255 &&
         name.find_first_of(kForbidden) == name.npos;
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(text));
  if (!index.is_object()) return InvalidArgument("is {}, not a JSON object", index.type_name());
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end()) return InvalidArgument("weight_map is missing");
  if (!weight_map->is_object()) {
    return InvalidArgument("weight_map is {}, not an object", weight_map->type_name());
  }
  std::map<std::string, std::string> files;
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      return InvalidArgument("weight_map: the file of tensor {} is {}, not a string",
                             Quoted(tensor), file.type_name());
    }
    const std::string& name = file.get_ref<const std::string&>();
    if (!IsPlainFileName(name)) {
      return InvalidArgument(
          "weight_map: the file of tensor {} is {}, it must be a plain name that ends in "
          "'.safetensors'",
          Quoted(tensor), Quoted(name));
    }
    names.insert(name);
    if (names.size() > kMaxShards) {
      return InvalidArgument("weight_map names more than {} files", kMaxShards);
    }
    files.emplace(tensor, name);
  }
  if (files.empty()) return InvalidArgument("weight_map is empty");
  return files;
}

}  // namespace tlm
