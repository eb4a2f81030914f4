// Formats log lines as JSON objects.
#ifndef TLM_SERVER_OBSERVE_JSON_FORMATTER_H_
#define TLM_SERVER_OBSERVE_JSON_FORMATTER_H_

#include <spdlog/formatter.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace tlm {

// {"ts":"2026-01-02T03:04:05.678Z","level":"info","msg":"...", fields of the event}. Stateless.
class JsonFormatter final : public spdlog::formatter {
 public:
  // Additional members of the lines that this thread logs until the next call; null: none.
  static void SetFields(const nlohmann::ordered_json* fields);

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override;
  std::unique_ptr<spdlog::formatter> clone() const override;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_JSON_FORMATTER_H_
