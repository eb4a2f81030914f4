// The processors that this process may use.
#ifndef TLM_MODEL_OPS_CPU_PROCESSORS_H_
#define TLM_MODEL_OPS_CPU_PROCESSORS_H_

#include <string>
#include <vector>

namespace tlm {

// Numbers of those the calling thread may run on, ascending; {} where the system does not tell.
std::vector<int> UsableProcessors();

// Makes the calling thread run on these alone; false where the system refuses.
bool RunOnProcessors(const std::vector<int>& processors);

// What the machine calls its processor, or "unknown processor".
std::string ProcessorName();

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PROCESSORS_H_
