// The alphabet of byte-level vocabularies: one printable character a byte, so that any bytes are
// text (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2).
// Bytes that are printable in Latin-1 keep their character; the other 68 become U+0100 to U+0143 in
// order: a space is 'Ġ', a newline 'Ċ'.
#ifndef TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_
#define TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace tlm {

// Converts "Ġthe" to " the". nullopt when a character is not in the alphabet. `text` must be UTF-8.
std::optional<std::string> BytesFromByteLevel(std::string_view text);

// Converts " the" to "Ġthe"; takes any bytes.
std::string ByteLevelFromBytes(std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_BYTE_LEVEL_H_
