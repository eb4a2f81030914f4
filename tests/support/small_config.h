// Configurations of small models, at least one for every option of the architecture, and the files
// of their families.
#ifndef TLM_TESTS_SUPPORT_SMALL_CONFIG_H_
#define TLM_TESTS_SUPPORT_SMALL_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"

namespace tlm {

// Sizes are odd: vocabulary and widths fill no vector or panel evenly, windows no block. A name
// begins with the model_type ("llama_yarn"); names of the generic transformer_lm begin with "lm_".
// CHECKs that the name is known.
ModelConfig SmallConfig(std::string_view name);

// Returns all names, the plain families first.
std::vector<const char*> SmallConfigNames();

// Returns a config.json that the reader turns into `config`, by its model_type; without token ids
// and the architecture's name.
std::string ConfigJson(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SMALL_CONFIG_H_
