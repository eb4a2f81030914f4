// Reads the operating system's numbers about this process.
#ifndef TLM_SERVER_OBSERVE_PROCESS_FIGURES_H_
#define TLM_SERVER_OBSERVE_PROCESS_FIGURES_H_

namespace tlm {

struct ProcessFigures {
  double cpu_seconds = 0;  // user and system
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double max_fds = 0;  // infinity: no limit
  double threads = 0;
  double start_time = 0;  // Unix time, seconds
};

// Reads /proc; numbers that cannot be read are 0. Thread-safe.
ProcessFigures ReadProcessFigures();

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_PROCESS_FIGURES_H_
