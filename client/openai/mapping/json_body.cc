#include "client/openai/mapping/json_body.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_builder.h"

namespace tlm::openai {
namespace {

// Builds the value from the events of sax_parse. nlohmann's own parser keeps the last of several
// members with one key, and searches an ordered object for every key that it adds.
class OrderedBuilder {
 public:
  explicit OrderedBuilder(std::string_view text) : text_(text) {}

  absl::Status status() const { return status_; }
  Json TakeValue() { return std::move(root_); }

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(value); }
  bool number_float(double value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return Refuse(InvalidArgument("holds binary data")); }
  bool start_object(size_t) { return Open(Json::value_t::object); }
  bool start_array(size_t) { return Open(Json::value_t::array); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    Container& container = open_.back();
    if (!container.keys.insert(name).second) {
      return Refuse(InvalidArgument("key {} occurs twice", Quoted(name)));
    }
    auto& members = container.value->get_ref<Json::object_t&>();
    members.emplace_back(std::move(name), nullptr);
    member_ = &members.back().second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    return Refuse(JsonError(text_, position, error));
  }

 private:
  struct Container {
    Json* value;
    std::unordered_set<std::string> keys = {};
  };

  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  Json* Place(Json value) {
    Json* place = &root_;
    if (!open_.empty() && open_.back().value->is_array()) {
      open_.back().value->push_back(nullptr);
      place = &open_.back().value->back();
    } else if (!open_.empty()) {
      place = member_;
    }
    *place = std::move(value);
    return place;
  }

  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json::value_t type) {
    if (open_.size() >= static_cast<size_t>(kMaxBodyDepth)) {
      return Refuse(InvalidArgument("nests deeper than the limit of {} levels", kMaxBodyDepth));
    }
    open_.push_back({Place(Json(type))});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view text_;
  absl::Status status_;
  Json root_;
  // The arrays and objects around the current place. A container does not grow while one of its
  // values is open, so the pointers stay valid.
  std::vector<Container> open_;
  Json* member_ = nullptr;  // the member that was named last
};

}  // namespace

absl::StatusOr<Json> ParseBody(std::string_view text) {
  TLM_RETURN_IF_ERROR(WithContext(CheckNoZeroByte(text), "the body"));
  OrderedBuilder builder(text);
  if (!Json::sax_parse(text, &builder)) return WithContext(builder.status(), "the body");
  Json value = builder.TakeValue();
  if (!value.is_object()) {
    return InvalidArgument("the body is {}, it must be a JSON object", value.type_name());
  }
  return value;
}

std::string Written(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tlm::openai
