#include "tests/fuzz/fuzz_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr char kSeparator = '\xff';

std::filesystem::path ParentOfMemoryDir() {
  std::error_code error;
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory, error) ? memory
                                                      : std::filesystem::temp_directory_path();
}

}  // namespace

uint8_t FuzzInput::Byte() {
  const std::string_view byte = Bytes(1);
  return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
}

std::string_view FuzzInput::Part() {
  const std::string_view part = Bytes(std::min(rest_.find(kSeparator), rest_.size()));
  Bytes(1);
  return part;
}

std::string_view FuzzInput::Bytes(size_t size) {
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(bytes.size());
  return bytes;
}

std::string_view FuzzInput::Rest() { return Bytes(rest_.size()); }

void CheckRefusal(const absl::Status& status, size_t max_bytes) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
      break;
    default:
      CheckFailed(__FILE__, __LINE__, fmt::format("unexpected {}", status.ToString()));
  }
  TLM_CHECK(!status.message().empty());
  if (status.message().size() > max_bytes) {
    CheckFailed(__FILE__, __LINE__,
                fmt::format("a message of {} bytes: {}", status.message().size(),
                            status.ToString().substr(0, 200)));
  }
}

MemoryDir::MemoryDir() : TempDir(ParentOfMemoryDir()) {}

std::string MemoryDir::Overwrite(std::string_view name, std::string_view content) const {
  const std::string path = File(name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  TLM_CHECK(file.good());
  return path;
}

void Consume(uint64_t value) {
  [[maybe_unused]] static volatile uint64_t sink;
  sink = value;
}

}  // namespace tlm
