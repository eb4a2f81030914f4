// Typed access to the members of an untrusted JSON object; no member goes unnoticed.
#ifndef TLM_CLIENT_OPENAI_MAPPING_FIELDS_H_
#define TLM_CLIENT_OPENAI_MAPPING_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/openai/mapping/json_body.h"

namespace tlm::openai {

// What the objects of a body share.
struct Reading {
  absl::Status status;          // the first error
  bool ignore_unknown = false;  // unknown members are no error
};

// Reads one object, which must outlive it. A member that is null counts as absent.
//
// The first error of an object and of the objects within it goes to the `Reading` that they share;
// after it every function returns nothing. Errors are INVALID_ARGUMENT and name the field, the
// value and the allowed values; FieldOf (model/base/errors.h) returns the field.
class Fields {
 public:
  // `path` names the object in messages: "" for the body, "messages[2]", "response_format".
  Fields(const Json& object, std::string path, Reading* reading);

  // Opens a value that need not be an object; that is then an error, and the result is empty.
  static Fields Open(const Json& value, const std::string& path, Reading* reading);

  bool ok() const { return reading_->status.ok(); }
  Reading* reading() const { return reading_; }
  // Returns the member's path.
  std::string Name(std::string_view key) const;
  // Sets the error "NAME MESSAGE" unless there is one already.
  void Fail(std::string_view key, std::string_view message);

  // Returns the member, or nullptr when it is absent.
  const Json* Find(std::string_view key);
  bool Has(std::string_view key) { return Find(key) != nullptr; }

  // These return nullopt when the member is absent.
  std::optional<bool> Bool(std::string_view key);
  std::optional<std::string> String(std::string_view key);
  // One of these strings.
  std::optional<std::string> OneOf(std::string_view key,
                                   std::initializer_list<std::string_view> allowed);
  // A number that a float can hold.
  std::optional<float> Float(std::string_view key);
  // A whole number, also written with a fraction of zeros, in [lowest, highest].
  std::optional<int64_t> Integer(std::string_view key, int64_t lowest, int64_t highest);
  std::optional<uint32_t> Uint32(std::string_view key, uint32_t lowest = 0,
                                 uint32_t highest = std::numeric_limits<uint32_t>::max());
  // 64 bits, signed or unsigned: -1 is 2^64 - 1.
  std::optional<uint64_t> Bits64(std::string_view key);
  std::optional<Fields> Object(std::string_view key);
  // Returns the elements of an array of at most `max_size`; nullptr when the member is absent.
  const std::vector<Json>* Array(std::string_view key, size_t max_size);
  // Returns the strings of an array, or a single string.
  std::vector<std::string> Strings(std::string_view key, size_t max_size);
  std::vector<uint32_t> Ids(std::string_view key, size_t max_size);

  // Accepts a member that changes nothing here.
  void NoEffect(std::initializer_list<std::string_view> keys);
  // Refuses a member with a reason, such as "is not supported", unless it has a value that requests
  // nothing: false, an empty array or object, or `neutral`.
  void Refuse(std::string_view key, std::string_view reason, const Json& neutral = nullptr);
  // Refuses every member that no function was asked for, unless Reading::ignore_unknown.
  void RefuseUnknown();

 private:
  void WrongType(std::string_view key, const Json& value, std::string_view wanted);

  const Json* object_;
  std::string path_;
  Reading* reading_;
  std::set<std::string, std::less<>> read_;
};

// Reads token ids. Sets an error of the field `name` for anything but an array of at most
// `max_size` whole numbers of 32 bits.
std::vector<uint32_t> IdsOf(const Json& value, const std::string& name, size_t max_size,
                            Reading* reading);

// Returns a value for a message: a string is cut, a container is shown only by its kind.
std::string Shown(const Json& value);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_FIELDS_H_
