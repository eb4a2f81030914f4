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

  // `indent` spaces before and two between columns; no spaces at the end of a line.
  void Print(std::ostream& out, int indent = 0) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1557611200 -> "1,557,611,200".
std::string WithSeparators(uint64_t number);

// 3.5067e12 -> "3.51 T", for counts: k, M, G, T, P, E.
std::string HumanCount(double count);

// 596049920 -> "596.0 M", 1557611200 -> "1.56 B": parameters of a model; k, M, B, T.
std::string HumanParameters(uint64_t count);

// 17920 -> "17,920.0"; "-" unless it is finite.
std::string WithSeparators(double number, int decimals);

// 0.0123 -> "12.3 ms", 1.5 -> "1.50 s", 65.2 -> "65.2 s": three digits; below 1 ms "0.042 ms".
std::string HumanSeconds(double seconds);

// 0.574 -> "57.4 %".
std::string Percent(double share);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TABLE_H_
