// The classes of characters that patterns name.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_CHAR_CLASSES_H_
#define TLM_MODEL_CONSTRAINT_BYTES_CHAR_CLASSES_H_

#include "model/constraint/bytes/char_set.h"

namespace tlm {

const CharSet& Digits();
// WhiteSpace and LineTerminator of ECMA-262.
const CharSet& Spaces();
// \s and \w of Python's re.
const CharSet& PythonSpaces();
const CharSet& PythonWordCharacters();
// The characters that end a line for ^ and $ with the flag m.
const CharSet& LineTerminators();
// The characters of \w, and of the words of \b and \B.
const CharSet& WordCharacters();

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_CHAR_CLASSES_H_
