// Reads the configuration of a model directory.
#ifndef TLM_MODEL_CONFIG_CONFIG_READER_H_
#define TLM_MODEL_CONFIG_CONFIG_READER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"

namespace tlm {

// Reads the model that a directory describes in `config.json`, or else in `model_config.json` (the
// CS336 course's format). A file without `model_type` and with the keys of a course describes a
// "cs336" or a "qwen3_mha" model. README.md lists families and keys. The end-of-sequence ids of
// `generation_config.json`, if any, replace the configuration's, as in Hugging Face's generate(). A
// default token id of the family outside the vocabulary is ignored. Unknown keys are ignored,
// except in a "transformer_lm", where they are errors. The result has passed Validate().
//
// NOT_FOUND when neither file is there; INVALID_ARGUMENT, naming file, key, value and limit, when a
// file is over 16 MiB, not JSON, repeats a key, or a field is missing or invalid; UNIMPLEMENTED for
// an unsupported family or variant, with the supported ones.
// an unsupported family or variant, with the supported ones.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir);

// Reads only the text of a configuration file; messages then name no file.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_CONFIG_READER_H_
