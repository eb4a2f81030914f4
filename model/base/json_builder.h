// Building JSON values from a parser's events.
#ifndef TLM_MODEL_BASE_JSON_BUILDER_H_
#define TLM_MODEL_BASE_JSON_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm {

// The parser's error as INVALID_ARGUMENT: "is not valid JSON at line 3, column 14". `position`
// counts from 1.
inline absl::Status JsonError(std::string_view text, size_t position,
                              const nlohmann::json::exception& error) {
  constexpr int kOutOfRange = 406;
  return InvalidArgument("{} at {}",
                         error.id == kOutOfRange ? "number out of range" : "is not valid JSON",
                         LineAndColumn(text, position == 0 ? 0 : position - 1));
}

// Builds the value from the events of nlohmann::json::sax_parse and keeps ParseJson's promises. A
// handler that consumes some of the events itself forwards the rest.
class JsonBuilder {
 public:
  // `text` is for messages.
  JsonBuilder(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

  absl::Status status() && { return std::move(status_); }
  nlohmann::json value() && { return std::move(root_); }

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(value); }
  bool number_float(double value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return Refuse(InvalidArgument("holds binary data")); }
  bool start_object(size_t) { return Open(nlohmann::json::value_t::object); }
  bool start_array(size_t) { return Open(nlohmann::json::value_t::array); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    const auto [member, added] =
        open_.back()->get_ref<nlohmann::json::object_t&>().emplace(std::move(name), nullptr);
    if (!added) return Refuse(InvalidArgument("key {} occurs twice", Quoted(member->first)));
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    return Refuse(JsonError(text_, position, error));
  }

 private:
  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  // Puts the value into its place: the root, the member just named, or the end of the open array.
  nlohmann::json* Place(nlohmann::json value) {
    nlohmann::json* place = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      place = &open_.back()->back();
    } else if (!open_.empty()) {
      place = member_;
    }
    *place = std::move(value);
    return place;
  }

  bool Add(nlohmann::json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(nlohmann::json::value_t type) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Refuse(InvalidArgument("nests deeper than the limit of {} levels", max_depth_));
    }
    open_.push_back(Place(type));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view text_;
  const int max_depth_;
  absl::Status status_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // the arrays and objects around the current place
  nlohmann::json* member_ = nullptr;   // member of the innermost object that is named but has no
                                       // value yet
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_JSON_BUILDER_H_
