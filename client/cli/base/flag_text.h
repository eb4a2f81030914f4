// What people, manual pages and shells are told of a flag.
#ifndef TLM_CLIENT_CLI_BASE_FLAG_TEXT_H_
#define TLM_CLIENT_CLI_BASE_FLAG_TEXT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/base/command.h"

namespace tlm::cli {

struct FlagText {
  std::string name;
  std::string help;
  std::string default_value;  // empty where it says no more than "nothing"
  bool is_switch = false;     // takes no value: --name, --noname
  bool can_be_off = false;    // a switch of which --noname says something
  bool is_list = false;       // may be given again
};

// Of these flags of the command, in this order.
std::vector<FlagText> DescribeFlags(const Command& command,
                                    std::span<const std::string_view> names);

// What may stand behind a flag.
struct FlagValues {
  bool is_file = false;
  std::vector<std::string> choices;  // some of the values it may have; empty = any text
};
FlagValues ValuesOfFlag(std::string_view name);

// The words that the first argument of a command may be; empty = any text.
std::vector<std::string> FirstArguments(const Command& command);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_FLAG_TEXT_H_
