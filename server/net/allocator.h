// How the process's heap behaves.
#ifndef TLM_SERVER_NET_ALLOCATOR_H_
#define TLM_SERVER_NET_ALLOCATOR_H_

#include <cstddef>

namespace tlm {

// Allocations of so many bytes and more get pages of their own.
inline constexpr size_t kOwnPagesBytes = size_t{256} << 10;

// Once, before the first thread: large allocations get pages of their own and give them back to the
// system when they are freed, for as long as the process lives. Does nothing where the C library is
// not GNU's.
void SetUpAllocator();

}  // namespace tlm

#endif  // TLM_SERVER_NET_ALLOCATOR_H_
