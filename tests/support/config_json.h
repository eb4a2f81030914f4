// Configurations as the files of their families spell them.
#ifndef TLM_TESTS_SUPPORT_CONFIG_JSON_H_
#define TLM_TESTS_SUPPORT_CONFIG_JSON_H_

#include <string>

#include "model/config/model_config.h"

namespace tlm {

// The config.json of which the reader makes `config`, by its model_type; token ids and the
// architecture's name are left out.
std::string ConfigJson(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CONFIG_JSON_H_
