// Optional flags as optional fields.
#ifndef TLM_CLIENT_CLI_BASE_SET_FROM_FLAG_H_
#define TLM_CLIENT_CLI_BASE_SET_FROM_FLAG_H_

#include <optional>

#include "absl/flags/flag.h"

namespace tlm::cli {

// Sets a field if its flag was given.
template <typename Message, typename Value>
void SetFromFlag(Message* message, void (Message::*setter)(Value),
                 const absl::Flag<std::optional<Value>>& flag) {
  if (const std::optional<Value> value = absl::GetFlag(flag)) (message->*setter)(*value);
}

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_SET_FROM_FLAG_H_
