#include "model/jinja/json_value.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_builder.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

using nlohmann::json;

absl::StatusOr<Value> FromUnsigned(uint64_t value) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (value > kMax) return InvalidArgument("integer {}, the limit is {}", value, kMax);
  return static_cast<int64_t>(value);
}

// Builds the value from the events of nlohmann::json::sax_parse.
class ValueBuilder {
 public:
  ValueBuilder(Heap* heap, std::string_view text) : heap_(heap), text_(text) {}

  absl::Status status() && { return std::move(status_); }
  Value value() && { return std::move(root_); }

  bool null() { return Add(None{}); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(FromUnsigned(value)); }
  bool number_float(double value, const std::string& digits) {
    // The parser reads an integer beyond 64 bits as a double.
    if (digits.find_first_of(".eE") != digits.npos) return Add(value);
    return Refuse(InvalidArgument("integer {} does not fit 64 bits", Quoted(digits)));
  }
  bool string(std::string& value) { return Add(heap_->MakeText(std::move(value))); }
  bool binary(json::binary_t&) { return Refuse(InvalidArgument("holds binary data")); }
  bool start_object(size_t) { return Open(); }
  bool start_array(size_t) { return Open(); }

  bool key(std::string& name) {
    absl::StatusOr<Value> key = heap_->MakeText(std::move(name));
    if (!key.ok()) return Refuse(key.status());
    Level& level = open_.back();
    // The name lives as long as the value, which the heap or `members` owns.
    const std::string_view bytes = std::get<TextPtr>(*key)->bytes;
    const auto [place, is_new] = level.places.emplace(bytes, level.members.size());
    level.place = place->second;
    if (is_new) level.members.emplace_back(*std::move(key), None{});
    return true;
  }
  bool end_object() {
    Level level = Close();
    return Add(heap_->MakeDict(std::move(level.members)));
  }
  bool end_array() {
    Level level = Close();
    return Add(heap_->MakeList(std::move(level.items)));
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) {
    return Refuse(JsonError(text_, position, error));
  }

 private:
  // An array or an object that is not complete yet.
  struct Level {
    std::vector<Value> items;                             // in an array
    Dict::Members members;                                // in an object
    std::unordered_map<std::string_view, size_t> places;  // indices of the keys in `members`
    size_t place = 0;                                     // index of the member just named
  };

  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool Add(absl::StatusOr<Value> value) {
    if (value.ok()) status_ = heap_->Step();
    if (!value.ok()) status_ = value.status();
    if (!status_.ok()) return false;
    Place() = *std::move(value);
    return true;
  }

  // Returns the place of the next value: the root, the member just named, or the end of the open
  // array.
  Value& Place() {
    if (open_.empty()) return root_;
    Level& level = open_.back();
    return level.members.empty() ? level.items.emplace_back() : level.members[level.place].second;
  }

  bool Open() {
    if (static_cast<int>(open_.size()) >= kMaxJsonDepth) {
      return Refuse(InvalidArgument("nests deeper than the limit of {} levels", kMaxJsonDepth));
    }
    open_.emplace_back();
    return true;
  }

  Level Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return level;
  }

  Heap* const heap_;
  const std::string_view text_;
  absl::Status status_;
  Value root_;
  std::vector<Level> open_;
};

absl::StatusOr<Value> FromArray(Heap* heap, const json& source) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(source.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(source.size());
  for (const json& element : source) {
    TLM_ASSIGN_OR_RETURN(Value item, FromJson(heap, element));
    items.push_back(std::move(item));
  }
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> FromObject(Heap* heap, const json& source) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(source.size() * 2 * sizeof(Value)));
  Dict::Members members;
  members.reserve(source.size());
  for (const auto& [name, element] : source.items()) {
    TLM_ASSIGN_OR_RETURN(Value key, TextFrom(heap, name));
    TLM_ASSIGN_OR_RETURN(Value value, FromJson(heap, element));
    members.emplace_back(std::move(key), std::move(value));
  }
  return heap->MakeDict(std::move(members));
}

}  // namespace

absl::StatusOr<Value> ParseJson(Heap* heap, std::string_view text) {
  TLM_RETURN_IF_ERROR(CheckNoZeroByte(text));
  TLM_RETURN_IF_ERROR(heap->Work(text.size()));
  ValueBuilder builder(heap, text);
  if (!json::sax_parse(text, &builder)) return std::move(builder).status();
  return std::move(builder).value();
}

absl::StatusOr<Value> FromJson(Heap* heap, const json& source) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.Enter());
  switch (source.type()) {
    case json::value_t::null:
      return None{};
    case json::value_t::boolean:
      return source.get<bool>();
    case json::value_t::number_integer:
      return source.get<int64_t>();
    case json::value_t::number_unsigned:
      return FromUnsigned(source.get<uint64_t>());
    case json::value_t::number_float:
      return source.get<double>();
    case json::value_t::string:
      return TextFrom(heap, source.get_ref<const std::string&>());
    case json::value_t::array:
      return FromArray(heap, source);
    case json::value_t::object:
      return FromObject(heap, source);
    default:
      return InvalidArgument("a JSON value of no type");
  }
}

absl::StatusOr<Value> TextFrom(Heap* heap, std::string_view text) {
  if (!IsValidUtf8(text)) return InvalidArgument("a text is not valid UTF-8");
  return heap->MakeText(std::string(text));
}

}  // namespace tlm::jinja
