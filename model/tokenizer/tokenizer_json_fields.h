// Typed access to the members of an object of tokenizer.json. `where` is the object's own name with
// a dot, for messages: "model." gives "model.vocab is 3, it must be an object". A member that is
// null counts as absent. Every error is INVALID_ARGUMENT.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_FIELDS_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// A member, or nullptr when it is absent. `object` may be of any type.
const nlohmann::json* FindMember(const nlohmann::json& object, std::string_view key);

// "model.vocab is 3, it must be an object"
absl::Status WrongJsonType(std::string_view where, std::string_view key,
                           const nlohmann::json& value, std::string_view wanted);

absl::StatusOr<bool> ReadBool(const nlohmann::json& object, std::string_view where,
                              std::string_view key, bool otherwise);
// A whole number in [0, max]; 0 when absent.
absl::StatusOr<size_t> ReadCount(const nlohmann::json& object, std::string_view where,
                                 std::string_view key, size_t max);
// Empty when absent.
absl::StatusOr<std::string> ReadString(const nlohmann::json& object, std::string_view where,
                                       std::string_view key);
// These two must be there.
absl::StatusOr<const nlohmann::json*> ReadObject(const nlohmann::json& object,
                                                 std::string_view where, std::string_view key);
absl::StatusOr<const nlohmann::json*> ReadArray(const nlohmann::json& object,
                                                std::string_view where, std::string_view key);
// A token id in [0, kMaxTokenIds); `name` is what the message calls it.
absl::StatusOr<int32_t> ReadTokenId(const nlohmann::json& value, std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_FIELDS_H_
