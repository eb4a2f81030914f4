// Unicode normalisation, applied to text before it is divided.
#ifndef TLM_MODEL_TOKENIZER_NORMALIZER_H_
#define TLM_MODEL_TOKENIZER_NORMALIZER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tlm {

enum class NormalizerStep { kNfc };

// The Normalization Form C of well-formed UTF-8 (Unicode Standard Annex 15), in a time that grows
// as n log n however combining marks are ordered.
std::string ToNfc(std::string_view text);

// Immutable, so any thread may use it.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}

  // Well-formed UTF-8 in and out. The result is `text` itself or lies in `storage`, which must
  // outlive its use.
  std::string_view Normalize(std::string_view text, std::string* storage) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_NORMALIZER_H_
