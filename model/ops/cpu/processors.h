// The processors that this process may use.
#ifndef TLM_MODEL_OPS_CPU_PROCESSORS_H_
#define TLM_MODEL_OPS_CPU_PROCESSORS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Returns the numbers of the processors that the calling thread may run on, ascending; empty if the
// system does not report them.
std::vector<int> UsableProcessors();

// Returns the number of usable processors, or the processors' worth of time that the process's
// control group (version 2) allows, if that is less; at least 1.
int DefaultThreads();

// Parses a cpu.max file: the processors' worth of time that it allows ("150000 100000": 1.5),
// rounded up; nullopt if it sets no limit or is malformed.
std::optional<int> ProcessorsOfQuota(std::string_view cpu_max);

// Makes the calling thread run only on these processors; returns false if the system refuses.
bool RunOnProcessors(const std::vector<int>& processors);

// Asks the scheduler to run the calling thread, and threads that it starts later, in slices of this
// length, 0.1 to 100 ms; 0: the system's default. The thread's share of a processor stays the same;
// of two threads that are due, the one with the shorter slice runs first. Returns the previous
// slice; nullopt if the system refuses or has one slice for all threads (Linux before 6.12).
std::optional<std::chrono::nanoseconds> SetTimeSlice(std::chrono::nanoseconds slice);

// Returns the name of the processor, or "unknown processor".
std::string ProcessorName();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PROCESSORS_H_
