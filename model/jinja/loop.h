// The variable `loop` and the iteration behind it.
#ifndef TLM_MODEL_JINJA_LOOP_H_
#define TLM_MODEL_JINJA_LOOP_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Looks ahead in the iteration only when a template asks for what needs it: last, nextitem, length.
class Loop final : public Attributes {
 public:
  // `length`: of the iteration where it is known beforehand.
  Loop(Heap* heap, std::unique_ptr<Iterator> items, std::optional<int64_t> length);

  // The next item; false behind the last one.
  absl::StatusOr<bool> Advance(Value* item);

  absl::StatusOr<Value> Get(std::string_view name) override;

 private:
  friend class LoopFunction;

  absl::StatusOr<const Value*> Peek();  // null behind the last item
  absl::StatusOr<int64_t> Length();
  absl::StatusOr<Value> Cycle(Arguments arguments) const;
  absl::StatusOr<Value> Changed(Arguments arguments);

  Heap* const heap_;
  const std::unique_ptr<Iterator> items_;
  std::optional<int64_t> length_;
  int64_t index0_ = -1;
  std::deque<Value> ahead_;
  Value previous_;
  Value current_;
  std::optional<Value> last_changed_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_LOOP_H_
