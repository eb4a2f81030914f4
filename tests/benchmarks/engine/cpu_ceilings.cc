#include "tests/benchmarks/engine/cpu_ceilings.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/cpu_loops.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {
namespace {

// More than the last level of cache of any processor holds.
constexpr size_t kReadBytes = size_t{1} << 30;
constexpr size_t kLargePage = size_t{2} << 20;
constexpr int kPasses = 9;
constexpr double kProductSeconds = 0.02;  // of a pass
constexpr std::string_view kOperands = "random operands from the L2 cache";

// Anonymous memory in large pages where the system gives them.
class LargeMemory {
 public:
  static absl::StatusOr<LargeMemory> Map(size_t bytes) {
    void* data = mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return ResourceExhausted("no {} bytes to measure reads with", bytes);
    LargeMemory memory(data, bytes + kLargePage);
    madvise(memory.data(), bytes, MADV_HUGEPAGE);  // refused: ordinary pages do too
    return memory;
  }
  LargeMemory(LargeMemory&& other) noexcept : mapped_(other.mapped_), bytes_(other.bytes_) {
    other.mapped_ = nullptr;
  }
  LargeMemory& operator=(LargeMemory&&) = delete;
  ~LargeMemory() {
    if (mapped_ != nullptr) munmap(mapped_, bytes_);
  }

  char* data() const {
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    return reinterpret_cast<char*>((address + kLargePage - 1) / kLargePage * kLargePage);
  }

 private:
  LargeMemory(void* mapped, size_t bytes) : mapped_(mapped), bytes_(bytes) {}

  void* mapped_;
  size_t bytes_;
};

// Keeps the calling thread on the i-th processor it may use, if there are so many.
void PinToProcessor(int index) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || index-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);  // refused: it stays where the system puts it
    return;
  }
}

// Calls body(thread) on every thread at once, `passes` times after one that warms up; the median
// seconds of a pass.
double TimePasses(int threads, int passes, const std::function<void(int)>& body) {
  std::barrier barrier(threads);
  std::vector<double> seconds;
  const auto work = [&](int thread) {
    PinToProcessor(thread);
    for (int pass = 0; pass <= passes; ++pass) {
      barrier.arrive_and_wait();
      const absl::Time begin = absl::Now();
      body(thread);
      barrier.arrive_and_wait();
      if (thread == 0 && pass > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    }
  };
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) workers.emplace_back(work, thread);
  for (std::thread& worker : workers) worker.join();
  return Median(seconds);
}

absl::StatusOr<double> ReadRate(const CpuLoops& loops, int threads) {
  TLM_ASSIGN_OR_RETURN(const LargeMemory memory, LargeMemory::Map(kReadBytes));
  const size_t share = kReadBytes / static_cast<size_t>(threads) / 4096 * 4096;
  std::atomic<uint64_t> seen{0};
  // The pass that warms up is the one that writes: every thread's pages are near it.
  std::vector<char> written(static_cast<size_t>(threads), 0);
  const auto seconds_of = [&](const auto& read) {
    return TimePasses(threads, kPasses, [&](int thread) {
      char* part = memory.data() + static_cast<size_t>(thread) * share;
      if (written[static_cast<size_t>(thread)] == 0) {
        std::fill_n(part, share, static_cast<char>(1));
        written[static_cast<size_t>(thread)] = 1;
      }
      seen.fetch_or(read(part, static_cast<int64_t>(share)), std::memory_order_relaxed);
    });
  };
  const double seconds = std::min(seconds_of(loops.read[0]), seconds_of(loops.read[1]));
  TLM_CHECK(seen.load() != 0);
  return static_cast<double>(share) * threads / seconds;
}

// Every thread multiplies operands of its own, random ones that fit its L2 cache.
absl::StatusOr<double> ProductRate(const ProductLoop& loop, int threads) {
  const size_t operands = static_cast<size_t>(loop.x_bytes + loop.w_bytes);
  const size_t used = operands + static_cast<size_t>(loop.sums_bytes);
  const size_t share = (used + kLargePage - 1) / kLargePage * kLargePage;
  TLM_ASSIGN_OR_RETURN(const LargeMemory memory,
                       LargeMemory::Map(share * static_cast<size_t>(threads)));
  const auto part = [&](int thread) { return memory.data() + static_cast<size_t>(thread) * share; };
  std::mt19937 random(1);
  for (size_t i = 0; i < operands; i += sizeof(uint32_t)) {
    const uint32_t word = (static_cast<uint32_t>(random()) & loop.random_bits) | loop.fixed_bits;
    std::memcpy(part(0) + i, &word, sizeof(word));
  }
  for (int thread = 1; thread < threads; ++thread) std::copy_n(part(0), operands, part(thread));
  const auto seconds = [&](int passes, int64_t calls) {
    return TimePasses(threads, passes, [&](int thread) {
      char* const x = part(thread);
      for (int64_t call = 0; call < calls; ++call) {
        loop.run(x, x + loop.x_bytes, x + operands);
      }
    });
  };
  int64_t calls = 1;
  while (calls < int64_t{1} << 30 && seconds(1, calls) < kProductSeconds / 2) calls *= 2;
  return loop.flops * static_cast<double>(calls) * threads / seconds(kPasses, calls);
}

}  // namespace

double CpuCeilings::LeastSeconds(double bytes, double matmul_flops, double float_flops) const {
  return std::max(bytes / read_bytes_per_second,
                  matmul_flops / matmul_flops_per_second + float_flops / float_flops_per_second);
}

double CpuCeilings::Fraction(double seconds, double bytes, double matmul_flops,
                             double float_flops) const {
  if (read_bytes_per_second == 0) return 0;
  return LeastSeconds(bytes, matmul_flops, float_flops) / seconds;
}

std::string Describe(const CpuCeilings& ceilings) {
  std::string text = fmt::format(
      "at most: {:.1f} GB/s read, {:.0f} GFLOP/s by {}", ceilings.read_bytes_per_second / 1e9,
      ceilings.matmul_flops_per_second / 1e9, ceilings.matmul_instruction);
  if (ceilings.matmul_instruction != ceilings.float_instruction) {
    text += fmt::format(", {:.0f} by {}", ceilings.float_flops_per_second / 1e9,
                        ceilings.float_instruction);
  }
  return text + fmt::format(", on {}", kOperands);
}

nlohmann::ordered_json ToJson(const CpuCeilings& ceilings) {
  return {{"read_bytes_per_second", ceilings.read_bytes_per_second},
          {"matmul_flops_per_second", ceilings.matmul_flops_per_second},
          {"matmul_instruction", ceilings.matmul_instruction},
          {"float_flops_per_second", ceilings.float_flops_per_second},
          {"float_instruction", ceilings.float_instruction},
          {"operands", kOperands}};
}

absl::StatusOr<CpuCeilings> MeasureCpuCeilings(std::string_view arithmetic, Operands operands,
                                               int threads) {
  const CpuLoops* loops = LoopsOf(arithmetic);
  if (loops == nullptr) return InvalidArgument("no ceilings are known for '{}'", arithmetic);
  if (threads < 1 || threads > 4096) {
    return InvalidArgument("ceilings of {} threads, not 1 to 4096", threads);
  }
  CpuCeilings ceilings;
  TLM_ASSIGN_OR_RETURN(ceilings.read_bytes_per_second, ReadRate(*loops, threads));
  ceilings.float_instruction = loops->floats.instruction;
  TLM_ASSIGN_OR_RETURN(ceilings.float_flops_per_second, ProductRate(loops->floats, threads));
  const ProductLoop& wanted = operands == Operands::kInt8   ? loops->int8
                              : operands == Operands::kBf16 ? loops->bf16
                                                            : loops->floats;
  const bool own = wanted.run != nullptr && operands != Operands::kFloat;
  ceilings.matmul_instruction = own ? wanted.instruction : ceilings.float_instruction;
  ceilings.matmul_flops_per_second = ceilings.float_flops_per_second;
  if (own) {
    TLM_ASSIGN_OR_RETURN(ceilings.matmul_flops_per_second, ProductRate(wanted, threads));
  }
  return ceilings;
}

}  // namespace tlm::bench
