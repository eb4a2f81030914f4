// Completes this program's command line in shells.
#ifndef TLM_CLIENT_CLI_COMPLETION_H_
#define TLM_CLIENT_CLI_COMPLETION_H_

#include <string>
#include <vector>

namespace tlm::cli {

struct Candidate {
  std::string text;  // replaces the last word; ends with "=" if a value follows
  std::string description;
};

struct Completion {
  bool files = false;  // the last word, or the part after its "=", is a path
  std::vector<Candidate> candidates;
};

// Completes the last of `words`, the command line without the program's name. A flag's "=" may be a
// word of its own, as in bash.
Completion Complete(const std::vector<std::string>& words);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_COMPLETION_H_
