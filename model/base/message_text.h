// Texts for messages that people read.
#ifndef TLM_MODEL_BASE_MESSAGE_TEXT_H_
#define TLM_MODEL_BASE_MESSAGE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tlm {

// Makes untrusted text one line of UTF-8 that is safe at a terminal: bytes that are not UTF-8
// become U+FFFD, control characters '?'.
std::string OneLine(std::string_view text);

// Prepares untrusted text for a message: OneLine in single quotes, of at most the first 100 bytes,
// cut at a character boundary.
std::string Quoted(std::string_view text);

// Converts 6230444800 to "5.80 GiB", and amounts below 1 KiB to "512 B".
std::string HumanBytes(uint64_t bytes);

// Returns "line 3, column 14" for byte `position` of `text`, both counted from 1.
std::string LineAndColumn(std::string_view text, size_t position);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_MESSAGE_TEXT_H_
