// Writes manual pages in the format of man(7) from plain texts.
#ifndef TLM_MODEL_BASE_PROGRAM_MAN_PAGE_H_
#define TLM_MODEL_BASE_PROGRAM_MAN_PAGE_H_

#include <string>
#include <string_view>

namespace tlm {

struct ManPageHead {
  std::string name;  // "tlm-server"
  int section = 1;
  std::string date;    // "2026-02-28"
  std::string source;  // "tlm 1.0"
};

// Returns the date of a page in UTC: SOURCE_DATE_EPOCH of the environment, so that builds can be
// repeated (reproducible-builds.org), otherwise today.
std::string ManPageDate();

// Builds a page in order. Texts are plain: requests in them are escaped.
// Thread-compatible.
class ManPage {
 public:
  explicit ManPage(const ManPageHead& head);

  void Section(std::string_view title);
  void Subsection(std::string_view title);

  // Adds paragraphs, with empty lines between them. Lines that begin with two spaces are an example
  // and stay as they are.
  void Text(std::string_view text);

  // Adds a paragraph: `name` in bold, `arguments` in italics.
  void Synopsis(std::string_view name, std::string_view arguments);

  // Adds a term in bold and, indented, its meaning. A `value` that is not empty follows in italics
  // after an equals sign.
  void Item(std::string_view term, std::string_view value, std::string_view meaning);

  const std::string& text() const { return text_; }

 private:
  void BeginParagraph();
  void Filled(std::string_view paragraph);

  std::string text_;
  bool after_heading_ = false;
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_PROGRAM_MAN_PAGE_H_
