// Aligned tables and readable numbers.
#ifndef TLM_CLIENT_CLI_BASE_TABLE_H_
#define TLM_CLIENT_CLI_BASE_TABLE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace tlm::cli {

enum class Align { kLeft, kRight };

// Rows of cells; every column is as wide as its widest cell.
class Table {
 public:
  // One entry per column; a row may have fewer cells.
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Prints `indent` spaces before a row and two between columns; no spaces at the end of a line.
  void Print(std::ostream& out, int indent = 0) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Converts 1557611200 to "1,557,611,200".
std::string WithSeparators(uint64_t number);

// Converts counts such as 3.5067e12 to "3.51 T"; units are k, M, G, T, P, E.
std::string HumanCount(double count);

// Converts parameter counts: 596049920 to "596.0 M", 1557611200 to "1.56 B"; units are k, M, B, T.
std::string HumanParameters(uint64_t count);

// Converts 17920 to "17,920.0"; "-" unless it is finite.
std::string WithSeparators(double number, int decimals);

// Converts to three digits: 0.0123 to "12.3 ms", 1.5 to "1.50 s", 65.2 to "65.2 s"; below 1 ms
// "0.042 ms".
std::string HumanSeconds(double seconds);

// Converts 0.574 to "57.4 %".
std::string Percent(double share);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TABLE_H_
