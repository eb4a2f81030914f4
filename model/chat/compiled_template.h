// The templates that ChatTemplate makes.
#ifndef TLM_MODEL_CHAT_COMPILED_TEMPLATE_H_
#define TLM_MODEL_CHAT_COMPILED_TEMPLATE_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "model/chat/chat_template.h"
#include "model/jinja/ast.h"
#include "model/jinja/heap.h"

namespace tlm {

class CompiledTemplate final : public ChatTemplate {
 public:
  // As ChatTemplate::Parse. `clock` is what strftime_now reads; it outlives the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              const nlohmann::json& variables,
                                                              Clock* clock);

  absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages,
                                     bool add_generation_prompt,
                                     const nlohmann::json& arguments) const override;

 private:
  using Variables = std::vector<std::pair<std::string, jinja::Value>>;

  CompiledTemplate(jinja::Block block, nlohmann::json variables, Clock* clock);

  absl::Status CheckArguments(const nlohmann::json& arguments) const;
  absl::StatusOr<Variables> MakeVariables(jinja::Heap* heap, std::span<const ChatMessage> messages,
                                          bool add_generation_prompt,
                                          const nlohmann::json& arguments) const;

  const jinja::Block block_;
  const nlohmann::json variables_;
  Clock* const clock_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_COMPILED_TEMPLATE_H_
