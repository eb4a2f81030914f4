// Texts of config.json files.
#ifndef TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_
#define TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/config/config_reader.h"
#include "tests/support/status_matchers.h"

namespace tlm {

// `base` with the members of `changes` put in; a member "absent" is taken out instead.
inline std::string With(const std::string& base, const std::string& changes) {
  nlohmann::json config = nlohmann::json::parse(base);
  const nlohmann::json changed = nlohmann::json::parse(changes);
  for (const auto& [key, value] : changed.items()) {
    if (value == "absent") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump();
}

inline constexpr auto kBad = absl::StatusCode::kInvalidArgument;
inline constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

// A change that makes a configuration one to refuse, and what the message must hold.
struct Refusal {
  std::string change;
  std::string message;
  absl::StatusCode code = kBad;
};

inline void ExpectRefused(const std::string& base, const std::vector<Refusal>& refusals) {
  for (const auto& [change, message, code] : refusals) {
    EXPECT_THAT(ParseModelConfig(With(base, change)), StatusIs(code, ::testing::HasSubstr(message)))
        << change;
  }
}

// The configuration, which must be one to accept.
inline ModelConfig Parsed(const std::string& text) {
  const auto config = ParseModelConfig(text);
  EXPECT_THAT(config, IsOk()) << text;
  return config.value_or(ModelConfig());
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_
