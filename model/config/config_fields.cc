#include "model/config/knobs.h"

namespace tlm {

std::string Knobs::Key(KnobNames names) {
  known_.insert(names.begin(), names.end());
  std::string key;
  for (const char* name : names) {
    if (!fields_.Has(name)) continue;
    if (key.empty()) {
      key = name;
    } else {
      twice_ = key + " and " + name;
    }
  }
  return key.empty() ? *names.begin() : key;
}

absl::StatusOr<int64_t> Knobs::Dimension(KnobNames names, int64_t limit,
                                         std::optional<int64_t> otherwise) {
  const std::string key = Key(names);
  if (otherwise.has_value()) return fields_.Dimension(key, limit, *otherwise);
  return fields_.Dimension(key, limit);
}

void Knobs::Allow(std::span<const char* const> names) { known_.insert(names.begin(), names.end()); }

absl::Status Knobs::RefuseUnknown() const {
  if (!twice_.empty()) return InvalidArgument("{} are two names of one setting", twice_);
  for (const std::string& key : fields_.Keys()) {
    if (known_.contains(key) || key.starts_with('_')) continue;
    return InvalidArgument("{}{} is no key of this configuration, known are {}", fields_.prefix(),
                           Quoted(key), fmt::join(known_, ", "));
  }
  return absl::OkStatus();
}

std::string Knobs::LowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

absl::Status Knobs::NoSuchWord(const std::string& key, const std::string& value,
                               const std::vector<std::string>& words) const {
  return InvalidArgument("{}{} is {}, it must be one of {}", fields_.prefix(), key, Quoted(value),
                         fmt::join(words, ", "));
}

}  // namespace tlm
