// The processors that this process may use.
#ifndef TLM_MODEL_OPS_CPU_PROCESSORS_H_
#define TLM_MODEL_OPS_CPU_PROCESSORS_H_

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

// The name of the processor, or "unknown processor".
std::string ProcessorName();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PROCESSORS_H_
