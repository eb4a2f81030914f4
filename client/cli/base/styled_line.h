// Lines of text with emphasis, for a terminal.
#ifndef TLM_CLIENT_CLI_BASE_STYLED_LINE_H_
#define TLM_CLIENT_CLI_BASE_STYLED_LINE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tlm::cli {

enum class Style { kPlain, kBold, kDim, kGood, kWarning, kBad };

class StyledLine {
 public:
  StyledLine() = default;
  explicit StyledLine(std::string_view text, Style style = Style::kPlain) { Add(text, style); }

  // Control characters, line breaks too, are shown as \xNN. Returns this line.
  StyledLine& Add(std::string_view text, Style style = Style::kPlain);

  // Columns a terminal needs for it.
  size_t width() const { return width_; }
  std::string text() const;

  // With escape sequences for the styles, cut to so many columns.
  std::string ForTerminal(size_t columns) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };
  std::vector<Piece> pieces_;
  size_t width_ = 0;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_STYLED_LINE_H_
