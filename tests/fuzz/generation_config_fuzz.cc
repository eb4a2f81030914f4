// generation_config.json: sampling defaults in their ranges, end-of-sequence ids in the vocabulary.
#include "model/base/errors.h"
#include "model/config/config_reader.h"
#include "model/config/generation_config.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr char kConfig[] =
    R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 20,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5})";

struct ModelDir : MemoryDir {
  ModelDir() { Write("config.json", kConfig); }
};

void CheckAccepted(const GenerationDefaults& defaults) {
  // Written so that NaN fails.
  TLM_CHECK(defaults.temperature.value_or(0) >= 0);
  TLM_CHECK(defaults.top_p.value_or(1) > 0 && defaults.top_p.value_or(1) <= 1);
  TLM_CHECK(defaults.min_p.value_or(0) >= 0 && defaults.min_p.value_or(0) <= 1);
  TLM_CHECK(defaults.typical_p.value_or(1) > 0 && defaults.typical_p.value_or(1) <= 1);
  TLM_CHECK(defaults.repetition_penalty.value_or(1) > 0);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tlm::ModelDir dir;
  dir.Overwrite("generation_config.json", tlm::FuzzInput(data, size).Rest());
  const auto defaults = tlm::ReadGenerationDefaults(dir.path());
  if (!tlm::IsRefused(defaults)) tlm::CheckAccepted(*defaults);
  const auto config = tlm::ReadModelConfig(dir.path());
  TLM_CHECK(tlm::IsRefused(config) || tlm::Validate(*config).ok());
  return 0;
}
