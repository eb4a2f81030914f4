// Reports the memory that this process may still allocate.
#ifndef TLM_MODEL_WEIGHTS_HOST_MEMORY_H_
#define TLM_MODEL_WEIGHTS_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace tlm {

// Bytes that the system could allocate now without swapping: the kernel's estimate, or less if this
// process's control group (version 2) has a lower limit; page cache counts as free. All physical
// memory if the kernel reports neither.
uint64_t AvailableHostMemory();

// Reads the same from files below `root` ("/" for the system's own), for tests.
uint64_t AvailableHostMemoryBelow(const std::string& root);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_HOST_MEMORY_H_
