#include "client/cli/base/styled_line.h"

#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view SequenceOf(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kWarning:
      return "\x1b[33m";
    case Style::kBad:
      return "\x1b[31m";
  }
  return "";
}

// Printable lets these through.
std::string WithoutBreaks(std::string_view text) {
  std::string line = Printable(text);
  for (char& c : line) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return line;
}

// As much of the beginning as `columns` hold.
std::string Cut(const std::string& text, size_t columns) {
  constexpr size_t kEllipsis = 3;
  if (DisplayWidth(text) <= columns) return text;
  if (columns <= kEllipsis) return std::string(columns, '.');
  return Shortened(text, columns);
}

}  // namespace

StyledLine& StyledLine::Add(std::string_view text, Style style) {
  pieces_.push_back({WithoutBreaks(text), style});
  width_ += DisplayWidth(pieces_.back().text);
  return *this;
}

std::string StyledLine::text() const {
  std::string text;
  for (const Piece& piece : pieces_) text += piece.text;
  return text;
}

std::string StyledLine::ForTerminal(size_t columns) const {
  std::string line;
  for (const Piece& piece : pieces_) {
    const std::string shown = Cut(piece.text, columns);
    columns -= DisplayWidth(shown);
    if (shown.empty()) continue;
    const std::string_view sequence = SequenceOf(piece.style);
    line.append(sequence).append(shown).append(sequence.empty() ? "" : kReset);
  }
  return line;
}

}  // namespace tlm::cli
