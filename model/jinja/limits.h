// Limits of a template's cost. Templates are untrusted: exceeding a limit is an error that names
// it, never a crash or a server that hangs.
#ifndef TLM_MODEL_JINJA_LIMITS_H_
#define TLM_MODEL_JINJA_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace tlm::jinja {

// Bytes of source text; the longest published templates have about 30 KiB.
inline constexpr size_t kMaxTemplateBytes = size_t{256} << 10;
// Bytes of a name in the source.
inline constexpr size_t kMaxNameBytes = 256;
// Levels of the syntax tree: brackets, operators, blocks.
inline constexpr int kMaxNesting = 200;
// Macros inside macros.
inline constexpr int kMaxMacroDepth = 64;
// Evaluations inside evaluations; they use the thread's stack.
inline constexpr int kMaxEvaluationDepth = 600;
// Evaluations of one rendering. Work on text and sequences counts as a step per kBytesPerStep.
inline constexpr int64_t kMaxSteps = 2'000'000;
inline constexpr size_t kBytesPerStep = 64;
// Bytes of rendered text, including the text of open captures.
inline constexpr size_t kMaxOutputBytes = size_t{8} << 20;
// Bytes of the values of one rendering.
inline constexpr size_t kMaxMemoryBytes = size_t{64} << 20;
// Lists in lists.
inline constexpr int kMaxValueDepth = 100;
// Items of range(), the limit of Jinja's own sandbox.
inline constexpr size_t kMaxRangeItems = 100'000;

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_LIMITS_H_
