// How far something is, for somebody who waits.
#ifndef TLM_CLIENT_CLI_BASE_PROGRESS_LINE_H_
#define TLM_CLIENT_CLI_BASE_PROGRESS_LINE_H_

#include <string_view>

#include "client/cli/base/console.h"

namespace tlm::cli {

// One line on Console::err, written over again and again; nothing unless that is a terminal. Gone
// when the object dies. Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(Console* console) : console_(console) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `done` in [0, 1]; `situation` stands behind the bar, cut where the terminal ends.
  void Show(double done, std::string_view situation);

 private:
  Console* const console_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_PROGRESS_LINE_H_
