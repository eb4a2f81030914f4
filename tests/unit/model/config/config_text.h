// Texts of config.json files.
#ifndef TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_
#define TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

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

// A change that makes a configuration one to refuse, and what the message must hold.
struct Refusal {
  std::string name;
  std::string base;
  std::string change;
  absl::StatusCode code;
  std::string message;
};
inline void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

inline void ExpectRefused(const Refusal& refusal) {
  EXPECT_THAT(ParseModelConfig(With(refusal.base, refusal.change)),
              StatusIs(refusal.code, ::testing::HasSubstr(refusal.message)));
}

inline inline
}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CONFIG_CONFIG_TEXT_H_
