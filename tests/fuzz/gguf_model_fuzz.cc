// A GGUF file: refused, or views that lie in memory that may be read, a valid configuration whose
// weights are bound or refused, and a tokenizer that takes any text and any ids.
#include "model/base/errors.h"
#include "model/config/generation_config.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_gguf.h"
#include "model/weights/checkpoint.h"
#include "model/weights/gguf_file.h"
#include "model/weights/model_files.h"
#include "model/weights/model_weights.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

uint64_t SumOf(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& [name, view] : file.tensors()) {
    for (size_t i = 0; i < view.bytes(); ++i) sum += view.as<uint8_t>()[i];
  }
  return sum;
}

void CheckModel(const std::string& path) {
  const auto files = ModelFiles::Open(path);
  if (!files.ok()) return CheckRefusal(files.status());
  const auto config = files->ReadConfig();
  if (!config.ok()) return CheckRefusal(config.status());
  TLM_CHECK(Validate(*config).ok());
  const auto checkpoint = Checkpoint::Open(*files);
  if (!checkpoint.ok()) return CheckRefusal(checkpoint.status());
  const auto weights = BindWeights(*config, *checkpoint);
  if (!weights.ok()) CheckRefusal(weights.status());
}

void CheckMetadata(const GgufMetadata& metadata) {
  const auto defaults = ReadGgufGenerationDefaults(metadata);
  if (!defaults.ok()) CheckRefusal(defaults.status());
  const auto description = ReadGgufTokenizer(metadata);
  if (!description.ok()) return CheckRefusal(description.status());
  const auto tokenizer = Tokenizer::Create(*description);
  if (!tokenizer.ok()) return CheckRefusal(tokenizer.status());
  CheckTokenizer(**tokenizer);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tlm::MemoryDir dir;
  tlm::FuzzInput input(data, size);
  const std::string path = dir.Overwrite("x.gguf", input.Rest());
  const auto file = tlm::GgufFile::Open(path);
  if (tlm::IsRefused(file)) return 0;
  tlm::Consume(tlm::SumOf(*file));
  tlm::CheckModel(path);
  tlm::CheckMetadata(file->header().metadata);
  return 0;
}
