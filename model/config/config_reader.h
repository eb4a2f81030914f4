// Reads the configuration of a model directory.
#ifndef TLM_MODEL_CONFIG_CONFIG_READER_H_
#define TLM_MODEL_CONFIG_CONFIG_READER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"

namespace tlm {

// The model a directory describes in `config.json`, or, where there is none, in
// `model_config.json`, as the CS336 course writes it; a file without `model_type` that has the
// keys of a course describes a "cs336" or a "qwen3_mha" model. README.md lists families and keys.
// The end-of-sequence ids of `generation_config.json`, where it names some, replace those of the
// configuration, as Hugging Face's generate() has it. A token id that is the family's default and
// lies outside the vocabulary is none. Unknown keys are ignored, except in a "transformer_lm",
// where they are errors. The result has passed Validate().
//
// NOT_FOUND when neither file is there; INVALID_ARGUMENT, naming file, key, value and limit, when
// one is over 16 MiB, not JSON, repeats a key, or a field is missing or wrong; UNIMPLEMENTED for a
// family or a variant of one this program cannot run, with what it can.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir);

// The same from the text of the configuration file alone; messages then name no file.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_CONFIG_READER_H_
