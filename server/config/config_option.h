// A flag as the Admin service shows it.
#ifndef TLM_SERVER_CONFIG_CONFIG_OPTION_H_
#define TLM_SERVER_CONFIG_CONFIG_OPTION_H_

#include <string>

namespace tlm {

// As the command line would have it; a secret's value is masked.
struct ConfigOption {
  std::string name;  // without dashes
  std::string value;
  std::string default_value;
};

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_CONFIG_OPTION_H_
