// Published templates with random damage: whatever comes of them, it comes soon and as a status.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "model/jinja/limits.h"
#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

std::vector<std::string> ReadTemplates() {
  const char* const source_dir = std::getenv("TLM_SOURCE_DIR");
  const std::filesystem::path directory =
      std::filesystem::path(source_dir == nullptr ? "." : source_dir) /
      "tests/unit/model/chat/data";
  std::vector<std::string> templates;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    templates.push_back(text.str());
  }
  return templates;
}

// What templates are made of, to be put where it does not belong.
constexpr const char* kPieces[] = {"{{",
                                   "}}",
                                   "{%",
                                   "%}",
                                   "{#",
                                   "#}",
                                   "-%}",
                                   "{%-",
                                   "(",
                                   ")",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   "|",
                                   ".",
                                   ",",
                                   ":",
                                   "*",
                                   "**",
                                   "~",
                                   "+",
                                   "-",
                                   "//",
                                   "%",
                                   "==",
                                   "<",
                                   "=",
                                   "'",
                                   "\"",
                                   "\\",
                                   "\n",
                                   "not ",
                                   "in ",
                                   "is ",
                                   "and ",
                                   "if ",
                                   "else ",
                                   "endif",
                                   "endfor",
                                   "endmacro",
                                   "for x in messages",
                                   "set messages = messages * 9 ",
                                   "set x = x ~ x",
                                   "loop.last",
                                   "loop.nextitem",
                                   "messages",
                                   "message.content",
                                   "ns",
                                   "namespace()",
                                   "range(99999)",
                                   "[::-1]",
                                   "[9:]",
                                   "|tojson",
                                   "|list",
                                   "|map('list')",
                                   "|join",
                                   "|sort",
                                   "|int",
                                   "|length",
                                   ".split('')",
                                   ".format(1)",
                                   "* 999999999",
                                   "9223372036854775807",
                                   "1e308",
                                   "none",
                                   "true",
                                   "raise_exception",
                                   "break",
                                   "continue",
                                   "é",
                                   "🙂",
                                   "{% raw %}",
                                   "{% endraw %}",
                                   "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                                   "{% generation %}"};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  std::string Mutate(const std::vector<std::string>& templates) {
    std::string text = templates[Below(templates.size())];
    for (size_t i = 1 + Below(4); i > 0; --i) {
      const size_t at = Below(text.size());
      const size_t length = Below(std::min<size_t>(40, text.size() - at));
      switch (Below(5)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, text.substr(Below(text.size() - length), length));
          break;
        case 2:
          text.resize(at);
          break;
        case 3:
          text.replace(at, length, kPieces[Below(std::size(kPieces))]);
          break;
        default:
          text.insert(at, kPieces[Below(std::size(kPieces))]);
      }
      if (text.empty()) break;
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

TEST(MutationTest, DamagedTemplatesEndInAStatus) {
  const std::vector<std::string> templates = ReadTemplates();
  ASSERT_GE(templates.size(), 12u);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  Mutator mutator(20);
  int rendered = 0;
  int refused = 0;
  while (rendered + refused < 20000 && std::chrono::steady_clock::now() < deadline) {
    const std::string source = mutator.Mutate(templates);
    const auto text = RenderTemplate(source);
    if (text.ok()) {
      ++rendered;
      EXPECT_LE(text->size(), jinja::kMaxOutputBytes);
      continue;
    }
    ++refused;
    const absl::StatusCode code = text.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                code == absl::StatusCode::kUnimplemented ||
                code == absl::StatusCode::kResourceExhausted)
        << text.status() << "\n"
        << source;
  }
  EXPECT_GT(rendered, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace tlm
