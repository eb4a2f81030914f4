// Bytes repaired to UTF-8: the same however they are portioned. The first byte tells the portions.
#include <algorithm>
#include <string>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

std::string Repaired(std::string_view bytes, Utf8Repair::Unit unit, size_t portion) {
  Utf8Repair repair(unit);
  std::string text;
  while (!bytes.empty()) {
    repair.Append(bytes.substr(0, portion), &text);
    TLM_CHECK(FindInvalidUtf8(text) == text.npos);
    bytes.remove_prefix(std::min(portion, bytes.size()));
  }
  repair.Flush(&text);
  TLM_CHECK(!repair.holds());
  TLM_CHECK(FindInvalidUtf8(text) == text.npos);
  return text;
}

size_t FirstInvalid(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = NextUtf8(bytes.substr(at));
    TLM_CHECK(step.length >= 1 && step.length <= bytes.size() - at);
    if (step.kind != Utf8Step::kCharacter) return at;
    const Utf8Character character = FirstCharacter(bytes.substr(at));
    TLM_CHECK(character.length == step.length);
    std::string again;
    AppendUtf8(character.code_point, &again);
    TLM_CHECK(again == bytes.substr(at, step.length));
    at += step.length;
  }
  return bytes.npos;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const size_t portion = 1 + input.Byte() % 5;
  const std::string_view bytes = input.Rest();
  TLM_CHECK(tlm::FindInvalidUtf8(bytes) == tlm::FirstInvalid(bytes));
  for (const auto unit : {tlm::Utf8Repair::Unit::kMaximalSubpart, tlm::Utf8Repair::Unit::kByte}) {
    const std::string whole = tlm::Repaired(bytes, unit, bytes.size() + 1);
    TLM_CHECK(tlm::Repaired(bytes, unit, portion) == whole);
    TLM_CHECK(tlm::FindInvalidUtf8(bytes) != bytes.npos || whole == bytes);
  }
  return 0;
}
