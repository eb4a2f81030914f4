// What a fuzz target gets, divided into what its subject takes; and what all targets assert.
#ifndef TLM_TESTS_FUZZ_FUZZ_INPUT_H_
#define TLM_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tests/support/temp_dir.h"

// Called with each input; defined once in each target. Always 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tlm {

// Takes bytes from the front. Thread-compatible; views are of the memory it was made of.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  // The next byte; 0 when there is none.
  uint8_t Byte();
  // Up to the next byte 0xff, which no UTF-8 has, or to the end; the byte is dropped.
  std::string_view Part();
  // Of the next bytes at most `size`.
  std::string_view Bytes(size_t size);
  // All that is left.
  std::string_view Rest();

 private:
  std::string_view rest_;
};

// What a message about outside data may take: people read it, and trailers have little room.
inline constexpr size_t kMaxRefusalBytes = 2048;

// Aborts unless `status` is one that outside data may cause: an error that says what is wrong, in
// at most so many bytes.
void CheckRefusal(const absl::Status& status, size_t max_bytes = kMaxRefusalBytes);

// Whether `result`, a StatusOr, is a refusal, which CheckRefusal must pass.
template <typename Result>
bool IsRefused(const Result& result) {
  if (!result.ok()) CheckRefusal(result.status());
  return !result.ok();
}

// For parsers that open files by name. In memory if the system has such a directory: a target
// writes thousands of files a second.
class MemoryDir : public TempDir {
 public:
  MemoryDir();
  // As Write(), into the file that is there.
  std::string Overwrite(std::string_view name, std::string_view content) const;
};

// Keeps the optimiser from leaving out what computed `value`.
void Consume(uint64_t value);

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_FUZZ_INPUT_H_
