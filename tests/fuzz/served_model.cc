#include "tests/fuzz/served_model.h"

#include <utility>

#include "model/base/errors.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

// Short, so that what it renders fits the context.
constexpr char kTemplate[] =
    "{%- for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}{% endfor %}"
    "{%- if enable_thinking is defined and enable_thinking is false %} /no_think{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

ServedModel* MakeModel() {
  nlohmann::json json = SmallTokenizerJson({{"t", "h"}, {"th", "e"}});
  json["added_tokens"] = {AddedTokenJson(258, "<|im_start|>", true),
                          AddedTokenJson(259, "<|im_end|>", true)};
  auto chat = ChatTemplate::Parse(kTemplate, nlohmann::json::object());
  TLM_CHECK(chat.ok());
  auto* model = new ServedModel(MakeServedModel(MakeTokenizer(json).release()));
  model->chat = std::move(*chat).release();
  const auto format = FindChatFormat(model->chat, *model->tokenizer, "think", "hermes");
  TLM_CHECK(format.ok());
  model->chat_format = *format;
  return model;
}

}  // namespace

const ServedModel& FuzzServedModel() {
  static const ServedModel* const model = MakeModel();
  return *model;
}

uint64_t FuzzRandom() {
  static uint64_t next = 0;
  return ++next;
}

}  // namespace tlm
