// The alphabet in which byte-level vocabularies are written: one printable character a byte, so
// that any bytes are text (Radford et al. 2019, "Language Models are Unsupervised Multitask
// Learners", section 2.2). Bytes that are printable in Latin-1 stand for themselves, the other 68
// for U+0100 to U+0143 in order: a space is 'Ġ', a newline 'Ċ'.
#ifndef TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_
#define TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace tlm {

// "Ġthe" -> " the". None when a character is not of the alphabet. `text` must be UTF-8.
std::optional<std::string> BytesFromByteLevel(std::string_view text);

// " the" -> "Ġthe". Any bytes.
std::string ByteLevelFromBytes(std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_
