#include "model/base/program/man_page.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tlm {
namespace {

constexpr size_t kLineColumns = 76;

// Escapes characters that man(7) interprets or replaces.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      case '`':
        escaped += "\\(ga";
        break;
      case '"':
        escaped += "\\(dq";
        break;
      case '^':
        escaped += "\\(ha";
        break;
      case '~':
        escaped += "\\(ti";
        break;
      default:
        escaped += c;
    }
  }
  // A request begins with a dot (or a quote, which is escaped) at the beginning of a line.
  if (escaped.starts_with('.')) escaped.insert(0, "\\&");
  return escaped;
}

}  // namespace

std::string ManPageDate() {
  int64_t seconds = 0;
  const char* const epoch = std::getenv("SOURCE_DATE_EPOCH");
  const bool given = epoch != nullptr && absl::SimpleAtoi(epoch, &seconds);
  return absl::FormatTime("%Y-%m-%d", given ? absl::FromUnixSeconds(seconds) : absl::Now(),
                          absl::UTCTimeZone());
}

ManPage::ManPage(const ManPageHead& head) {
  std::string title;
  for (const char c : head.name) title += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 32) : c;
  text_ = fmt::format(".TH \"{}\" {} \"{}\" \"{}\" \"User Commands\"\n", Escaped(title),
                      head.section, head.date, Escaped(head.source));
  if (head.section == 8) {
    text_.replace(text_.rfind("User Commands"), 13, "System Administration");
  }
}

void ManPage::Section(std::string_view title) {
  after_heading_ = true;
  text_ += fmt::format(".SH \"{}\"\n", Escaped(title));
}

void ManPage::Subsection(std::string_view title) {
  after_heading_ = true;
  text_ += fmt::format(".SS \"{}\"\n", Escaped(title));
}

void ManPage::Text(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string paragraph;
  std::string example;
  const auto flush = [&] {
    if (!paragraph.empty()) {
      BeginParagraph();
      Filled(paragraph);
    }
    if (!example.empty()) {
      BeginParagraph();
      text_ += ".RS 4\n.nf\n" + example + ".fi\n.RE\n";
    }
    paragraph.clear();
    example.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.starts_with("  ");
    if (line.empty() || (indented ? !paragraph.empty() : !example.empty())) flush();
    if (line.empty()) continue;
    if (indented) {
      example += Escaped(std::string_view(line).substr(2)) + '\n';
    } else {
      paragraph += line + ' ';
    }
  }
  flush();
}

void ManPage::Synopsis(std::string_view name, std::string_view arguments) {
  BeginParagraph();
  text_ += fmt::format("\\fB{}\\fR \\fI{}\\fR\n", Escaped(name), Escaped(arguments));
}

void ManPage::Item(std::string_view term, std::string_view value, std::string_view meaning) {
  after_heading_ = false;
  text_ += fmt::format(".TP\n\\fB{}\\fR", Escaped(term));
  if (!value.empty()) text_ += fmt::format("=\\fI{}\\fR", Escaped(value));
  text_ += '\n';
  Filled(meaning);
}

// A heading begins a paragraph by itself.
void ManPage::BeginParagraph() {
  if (!after_heading_) text_ += ".PP\n";
  after_heading_ = false;
}

// Adds a paragraph as words, broken into lines.
void ManPage::Filled(std::string_view paragraph) {
  std::istringstream words{std::string(paragraph)};
  std::string line;
  for (std::string word; words >> word;) {
    word = Escaped(word);
    if (!line.empty() && line.size() + 1 + word.size() > kLineColumns) {
      text_ += line + '\n';
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) text_ += line + '\n';
}

}  // namespace tlm
