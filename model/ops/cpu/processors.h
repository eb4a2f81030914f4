// The processors that this process may use.
#ifndef TLM_MODEL_OPS_CPU_PROCESSORS_H_
#define TLM_MODEL_OPS_CPU_PROCESSORS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Numbers of those the calling thread may run on, ascending; {} where the system does not say.
std::vector<int> UsableProcessors();

// The number of these, or the processors' worth of time that the process' control group (version 2)
// allows, if that is less; at least 1.
int DefaultThreads();

// Processors' worth of time that the text of a cpu.max file allows ("150000 100000": 1.5), rounded
// up; nothing where it sets no limit or is no such text.
std::optional<int> ProcessorsOfQuota(std::string_view cpu_max);

// Makes the calling thread run on these alone; false where the system refuses.
bool RunOnProcessors(const std::vector<int>& processors);

// Asks the scheduler to run the calling thread, and those that it starts, in slices of this length,
// 0.1 to 100 ms; 0: the system's default. The thread's share of a processor stays the same; of two
// threads whose turn it is, the one with the shorter slice runs first. Returns the slice before;
// nothing where the system refuses or has one slice for all threads (Linux before 6.12).
std::optional<std::chrono::nanoseconds> SetTimeSlice(std::chrono::nanoseconds slice);

// The name of the processor, or "unknown processor".
std::string ProcessorName();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PROCESSORS_H_
