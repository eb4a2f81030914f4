#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_builder.h"
#include "model/tokenizer/tokenizer_json_component.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

// Handles the events within the two members and passes the others on. Ends the parse if a member
// has an unusual form.
class TablesBuilder {
 public:
  explicit TablesBuilder(std::string_view text) : builder_(text, kMaxJsonDepth) {}

  bool has_unusual_form() const { return has_unusual_form_; }
  absl::Status status() && { return std::move(builder_).status(); }
  TokenizerJson tables() && {
    tables_.root = std::move(builder_).value();
    return std::move(tables_);
  }

  bool null() { return place_ == kElsewhere ? builder_.null() : GiveUp(); }
  bool boolean(bool value) { return place_ == kElsewhere ? builder_.boolean(value) : GiveUp(); }
  bool number_integer(int64_t value) {
    return place_ == kElsewhere ? builder_.number_integer(value) : GiveUp();
  }
  bool number_unsigned(uint64_t value) {
    if (place_ == kElsewhere) return builder_.number_unsigned(value);
    if (place_ != kVocab || value >= static_cast<uint64_t>(kMaxTokenIds)) return GiveUp();
    tables_.vocab->back().second = static_cast<int32_t>(value);
    return true;
  }
  bool number_float(double value, const std::string& text) {
    return place_ == kElsewhere ? builder_.number_float(value, text) : GiveUp();
  }
  bool binary(nlohmann::json::binary_t& value) { return builder_.binary(value); }

  bool string(std::string& value) {
    if (place_ == kElsewhere) return builder_.string(value);
    if (place_ == kMerge) {
      if (parts_ >= 2) return GiveUp();
      (parts_++ == 0 ? tables_.merges->back().first : tables_.merges->back().second) =
          std::move(value);
      return true;
    }
    if (place_ != kMerges) return GiveUp();
    if (IsMergesVersion(value)) return true;
    std::optional<std::pair<std::string, std::string>> merge = SplitMerge(value);
    if (!merge.has_value()) return GiveUp();
    tables_.merges->push_back(*std::move(merge));
    return true;
  }

  bool key(std::string& name) {
    if (place_ == kVocab) {
      tables_.vocab->emplace_back(std::move(name), 0);
      return true;
    }
    if (depth_ == 1) in_model_ = name == "model";
    member_ = depth_ == 2 && in_model_ ? MemberOf(name) : kElsewhere;
    return builder_.key(name);
  }

  bool start_object(size_t size) {
    if (place_ != kElsewhere) return GiveUp();
    if (!builder_.start_object(size)) return false;
    ++depth_;
    if (std::exchange(member_, kElsewhere) == kVocab) Enter(tables_.vocab.emplace(), kVocab);
    return true;
  }
  bool end_object() {
    place_ = kElsewhere;
    --depth_;
    return builder_.end_object();
  }

  bool start_array(size_t size) {
    if (place_ == kMerges) {
      tables_.merges->emplace_back();
      parts_ = 0;
      place_ = kMerge;
      return true;
    }
    if (place_ != kElsewhere) return GiveUp();
    if (!builder_.start_array(size)) return false;
    ++depth_;
    if (std::exchange(member_, kElsewhere) == kMerges) Enter(tables_.merges.emplace(), kMerges);
    return true;
  }
  bool end_array() {
    if (place_ == kMerge) {
      place_ = kMerges;
      return parts_ == 2 || GiveUp();
    }
    place_ = kElsewhere;
    --depth_;
    return builder_.end_array();
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) {
    return builder_.parse_error(position, token, error);
  }

 private:
  enum Place { kElsewhere, kVocab, kMerges, kMerge };

  static Place MemberOf(std::string_view name) {
    return name == "vocab" ? kVocab : name == "merges" ? kMerges : kElsewhere;
  }

  template <typename Table>
  void Enter(Table& table, Place place) {
    constexpr size_t kUsualTokens = size_t{1} << 18;
    table.reserve(kUsualTokens);
    place_ = place;
  }

  bool GiveUp() {
    has_unusual_form_ = true;
    return false;
  }

  JsonBuilder builder_;
  TokenizerJson tables_;
  bool has_unusual_form_ = false;
  int depth_ = 0;              // depth of the objects and arrays passed to the builder
  bool in_model_ = false;      // the member of the outermost object is "model"
  Place member_ = kElsewhere;  // the place inside the value of the last key
  Place place_ = kElsewhere;
  int parts_ = 0;  // number of parts of the merge
};

bool HasDuplicates(const std::vector<std::pair<std::string, int32_t>>& vocab) {
  absl::flat_hash_set<std::string_view> seen;
  seen.reserve(vocab.size());
  for (const auto& [token, id] : vocab) {
    if (!seen.insert(token).second) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<TokenizerJson> ParseTokenizerTables(std::string_view text) {
  TLM_RETURN_IF_ERROR(CheckNoZeroByte(text));
  TablesBuilder builder(text);
  if (nlohmann::json::sax_parse(text, &builder)) {
    TokenizerJson result = std::move(builder).tables();
    if (!result.vocab.has_value() || !HasDuplicates(*result.vocab)) return result;
  } else if (!builder.has_unusual_form()) {
    return std::move(builder).status();
  }
  TokenizerJson result;
  TLM_ASSIGN_OR_RETURN(result.root, ParseJson(text));
  return result;
}

std::optional<std::pair<std::string, std::string>> SplitMerge(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) return std::nullopt;
  return std::pair(std::string(text.substr(0, space)), std::string(text.substr(space + 1)));
}

bool IsMergesVersion(std::string_view text) { return text.starts_with("#version"); }

}  // namespace tlm
