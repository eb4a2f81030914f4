#include "model/base/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/base/errors.h"

namespace tlm {
namespace {

// Builds the value from the parser's events, which nlohmann's own builder would do as well, but
// without keeping the last of two equal keys and without a limit on depth.
class StrictBuilder {
 public:
  StrictBuilder(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

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
    const std::string where = LineAndColumn(text_, position == 0 ? 0 : position - 1);
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) return Refuse(InvalidArgument("number out of range at {}", where));
    return Refuse(InvalidArgument("is not valid JSON at {}", where));
  }

 private:
  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  // Where the next value goes: the root, the member just named, or the end of the open array.
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
  nlohmann::json* member_ = nullptr;   // of the innermost object, named but without a value yet
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int max_depth) {
  // nlohmann takes a zero byte for the end of the text and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return InvalidArgument("is not valid JSON at {}", LineAndColumn(text, zero));
  }
  StrictBuilder builder(text, max_depth);
  if (!nlohmann::json::sax_parse(text, &builder)) return std::move(builder).status();
  return std::move(builder).value();
}

std::string LineAndColumn(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - line_start + 1);
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 100;
  size_t length = std::min(text.size(), kMaxBytes);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; };
  while (length > 0 && length < text.size() && continues(text[length])) --length;
  std::string result = "'";
  for (const char c : text.substr(0, length)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return result + (length < text.size() ? "...'" : "'");
}

}  // namespace tlm
