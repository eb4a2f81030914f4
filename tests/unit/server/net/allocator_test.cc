#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "server/net/heap.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tlm {
namespace {

#ifdef __GLIBC__

struct Free {
  void operator()(char* block) const { std::free(block); }
};
using Block = std::unique_ptr<char, Free>;

Block Allocate(size_t bytes) {
  Block block(static_cast<char*>(std::malloc(bytes)));
  // So that the pair of calls is not optimised away.
  const_cast<volatile char*>(block.get())[bytes - 1] = 1;
  return block;
}

size_t BlocksWithPagesOfTheirOwn() { return mallinfo2().hblks; }

TEST(AllocatorTest, LargeBlocksHavePagesOfTheirOwnWhateverWasFreedBefore) {
  SetUpAllocator();
  const size_t before = BlocksWithPagesOfTheirOwn();
  Block largest = Allocate(size_t{9} << 20);
  if (BlocksWithPagesOfTheirOwn() == before) GTEST_SKIP() << "another allocator is in its place";
  largest.reset();
  const Block large = Allocate(kOwnPagesBytes + 1);
  EXPECT_EQ(BlocksWithPagesOfTheirOwn(), before + 1);
  const Block small = Allocate(kOwnPagesBytes / 2);
  EXPECT_EQ(BlocksWithPagesOfTheirOwn(), before + 1);
}

#else

TEST(AllocatorTest, LargeBlocksHavePagesOfTheirOwnWhateverWasFreedBefore) {
  GTEST_SKIP() << "the C library is not GNU's";
}

#endif

}  // namespace
}  // namespace tlm
