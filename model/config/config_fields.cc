#include "model/config/config_fields.h"

namespace tlm {

std::string ConfigFields::Key(FieldNames names) {
  known_.insert(names.begin(), names.end());
  std::string key;
  for (const char* name : names) {
    if (!json_.Has(name)) continue;
    if (key.empty()) {
      key = name;
    } else {
      twice_ = key + " and " + name;
    }
  }
  return key.empty() ? *names.begin() : key;
}

absl::StatusOr<int64_t> ConfigFields::Dimension(FieldNames names, int64_t limit,
                                                std::optional<int64_t> otherwise) {
  const std::string key = Key(names);
  if (otherwise.has_value()) return json_.Dimension(key, limit, *otherwise);
  return json_.Dimension(key, limit);
}

void ConfigFields::Allow(std::span<const char* const> names) {
  known_.insert(names.begin(), names.end());
}

absl::Status ConfigFields::RefuseUnknown() const {
  if (!twice_.empty()) return InvalidArgument("{} are two names of one setting", twice_);
  for (const std::string& key : json_.Keys()) {
    if (known_.contains(key) || key.starts_with('_')) continue;
    return InvalidArgument("{}{} is no key of this configuration, known are {}", json_.prefix(),
                           Quoted(key), fmt::join(known_, ", "));
  }
  return absl::OkStatus();
}

std::string ConfigFields::LowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

absl::Status ConfigFields::NoSuchWord(const std::string& key, const std::string& value,
                                      const std::vector<std::string>& words) const {
  return InvalidArgument("{}{} is {}, it must be one of {}", json_.prefix(), key, Quoted(value),
                         fmt::join(words, ", "));
}

}  // namespace tlm
