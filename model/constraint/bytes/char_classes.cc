#include "model/constraint/bytes/char_classes.h"

namespace tlm {

const CharSet& Digits() {
  static const auto* const kSet = new CharSet({{'0', '9'}});
  return *kSet;
}
const CharSet& Spaces() {
  static const auto* const kSet = new CharSet({{0x9, 0xd},
                                               {0x20, 0x20},
                                               {0xa0, 0xa0},
                                               {0x1680, 0x1680},
                                               {0x2000, 0x200a},
                                               {0x2028, 0x2029},
                                               {0x202f, 0x202f},
                                               {0x205f, 0x205f},
                                               {0x3000, 0x3000},
                                               {0xfeff, 0xfeff}});
  return *kSet;
}

const CharSet& PythonSpaces() {
  static const auto* const kSet =
      new CharSet((Spaces() & ~CharSet::Of(0xfeff)) | CharSet({{0x1c, 0x1f}, {0x85, 0x85}}));
  return *kSet;
}
const CharSet& PythonWordCharacters() {
  static const auto* const kSet = new CharSet(*CharsOfProperty("L") | *CharsOfProperty("N") |
                                              *CharsOfProperty("M") | CharSet::Of('_'));
  return *kSet;
}

const CharSet& WordCharacters() {
  static const auto* const kSet = new CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return *kSet;
}
const CharSet& LineTerminators() {
  static const auto* const kSet = new CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return *kSet;
}

}  // namespace tlm
