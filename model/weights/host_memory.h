// How much memory this process may still take.
#ifndef TLM_MODEL_WEIGHTS_HOST_MEMORY_H_
#define TLM_MODEL_WEIGHTS_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace tlm {

// Bytes the system could give out now without swapping: what the kernel estimates as available, or
// less where this process's control group (version 2) is held to less; page cache counts as free.
// All physical memory where the kernel says neither.
uint64_t AvailableHostMemory();

// The same from files below `root` ("/" for the system's own), for tests.
uint64_t AvailableHostMemoryBelow(const std::string& root);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_HOST_MEMORY_H_
