// Values of flags: refused with a reason, or the same again when they are written out and read. The
// first byte chooses the type.
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/base/flag_types.h"
#include "model/base/errors.h"
#include "server/config/flag_types.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

template <typename T>
void CheckFlag(absl::string_view text) {
  T value;
  std::string error;
  if (!AbslParseFlag(text, &value, &error)) {
    TLM_CHECK(!error.empty());
    return;
  }
  const std::string written = AbslUnparseFlag(value);
  T again;
  TLM_CHECK(AbslParseFlag(written, &again, &error));
  TLM_CHECK(AbslUnparseFlag(again) == written);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const uint8_t choice = input.Byte();
  const std::string_view rest = input.Rest();
  const absl::string_view text(rest.data(), rest.size());
  switch (choice % 8) {
    case 0:
      tlm::CheckFlag<tlm::ByteSize>(text);
      break;
    case 1:
      tlm::CheckFlag<tlm::cli::OptionalText>(text);
      break;
    case 2:
      tlm::CheckFlag<tlm::cli::StringList>(text);
      break;
    case 3:
      tlm::CheckFlag<tlm::cli::IdList>(text);
      break;
    case 4:
      tlm::CheckFlag<tlm::cli::IdLists>(text);
      break;
    case 5:
      tlm::CheckFlag<tlm::cli::BiasList>(text);
      break;
    case 6:
      tlm::CheckFlag<tlm::cli::TimeSpan>(text);
      break;
    default:
      tlm::CheckFlag<tlm::cli::TemplateArguments>(text);
  }
  return 0;
}
