// SentencePiece's table of replacements. Two bytes of length, the table, the text it is applied to.
#include "absl/strings/escaping.h"
#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "model/tokenizer/charsmap.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

constexpr size_t kMaxBytes = 1 << 16;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const size_t length = input.Byte() + size_t{256} * input.Byte();
  const std::string_view table = input.Bytes(length & 0x7fff);
  // As it stands, where the highest bit says so: the bytes then are the base64 itself.
  const bool is_base64 = (length & 0x8000) != 0;
  const auto map = tlm::Charsmap::Create(
      is_base64 ? std::string(table)
                : absl::Base64Escape(absl::string_view(table.data(), table.size())));
  if (tlm::IsRefused(map)) return 0;
  const std::string_view text = input.Rest();
  if (tlm::FindInvalidUtf8(text) != text.npos) return 0;
  const std::string result = map->Apply(text, kMaxBytes);
  TLM_CHECK(tlm::FindInvalidUtf8(result) == result.npos);
  return 0;
}
