// How far a run is, for somebody who waits.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_PROGRESS_BAR_H_
#define TLM_TESTS_BENCHMARKS_LOAD_PROGRESS_BAR_H_

#include <chrono>
#include <string>
#include <string_view>

namespace tlm::bench {

// One line on stderr, written over again and again; nothing unless stderr is a terminal. Gone when
// the object dies. Not thread-safe.
class ProgressBar {
 public:
  // `title` stands before the bar.
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `done` in [0, 1]; `situation` stands behind the bar. Cheap: draws some times a second only.
  template <typename Situation>
  void Show(double done, const Situation& situation) {
    if (ItIsTime()) Draw(done, situation());
  }

  static constexpr std::chrono::milliseconds kInterval{100};

 private:
  bool ItIsTime();
  void Draw(double done, std::string_view situation) const;

  const bool terminal_;
  const std::string title_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_PROGRESS_BAR_H_
