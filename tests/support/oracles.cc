#include "tests/support/oracles.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tlm {
namespace {

template <typename T>
std::vector<double> Convert(const std::string& data, size_t begin) {
  std::vector<double> values((data.size() - begin) / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + begin + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

}  // namespace

std::optional<std::string> OraclePath(std::string_view name) {
  std::filesystem::path directory;
  if (const char* const given = std::getenv("TLM_ORACLES"); given != nullptr) {
    directory = given;
  } else if (const char* const source = std::getenv("TLM_SOURCE_DIR"); source != nullptr) {
    directory = std::filesystem::path(source) / ".." / "shared" / "oracles";
  } else {
    return std::nullopt;
  }
  const std::filesystem::path path = directory / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != text.npos;
       begin = end + separator.size()) {
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

NpyArray ReadNpy(const std::string& path) {
  const std::string data = ReadAll(path);
  constexpr size_t kPreamble = 10;  // magic, version, header length
  if (data.size() < kPreamble || data.compare(0, 6, "\x93NUMPY") != 0 || data[6] != 1) {
    throw std::runtime_error(path + ": not a version 1 npy file");
  }
  uint16_t length;
  std::memcpy(&length, data.data() + 8, sizeof(length));
  const std::string header = data.substr(kPreamble, length);
  if (header.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error(path + ": is not in C order");
  }
  NpyArray array;
  const size_t open = header.find('(');
  for (size_t at = open + 1; header[at] != ')';) {
    if (header[at] >= '0' && header[at] <= '9') {
      char* end;
      array.shape.push_back(std::strtoll(header.c_str() + at, &end, 10));
      at = static_cast<size_t>(end - header.c_str());
    } else {
      ++at;
    }
  }
  const size_t begin = kPreamble + length;
  const auto is = [&header](const char* type) { return header.find(type) != std::string::npos; };
  if (is("'<f4'")) {
    array.values = Convert<float>(data, begin);
  } else if (is("'<f8'")) {
    array.values = Convert<double>(data, begin);
  } else if (is("'<i4'")) {
    array.values = Convert<int32_t>(data, begin);
  } else if (is("'<i8'")) {
    array.values = Convert<int64_t>(data, begin);
  } else if (is("'|b1'")) {
    array.values = Convert<uint8_t>(data, begin);
  } else {
    throw std::runtime_error(path + ": unknown element type in " + header);
  }
  return array;
}

}  // namespace tlm
