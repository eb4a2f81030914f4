// Checks the text of a JSON object, byte by byte.
#ifndef TLM_MODEL_CHAT_OBJECT_TEXT_H_
#define TLM_MODEL_CHAT_OBJECT_TEXT_H_

#include <string>
#include <string_view>

namespace tlm {

class ObjectText {
 public:
  // Returns false if no object continues with this byte.
  bool Append(char byte);
  bool complete() const { return place_ == Place::kEnd; }

 private:
  enum class Place {
    kBegin,
    kFirstName,  // or }
    kName,
    kColon,
    kFirstItem,  // or ]
    kValue,
    kAfter,  // after a value
    kString,
    kEscape,
    kHex,
    kWord,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kEnd,
  };

  bool Go(Place place) {
    place_ = place;
    return true;
  }
  bool BeginString(bool is_name) {
    is_name_ = is_name;
    return Go(Place::kString);
  }
  bool BeginValue(char byte);
  bool BeginWord(std::string_view rest) {
    word_ = rest;
    return Go(Place::kWord);
  }
  bool Open(char bracket) {
    open_ += bracket;
    return Go(bracket == '{' ? Place::kFirstName : Place::kFirstItem);
  }
  bool Close(char bracket);
  bool AppendToNumber(char byte);
  bool AppendToString(char byte);
  bool AppendBetween(char byte);

  Place place_ = Place::kBegin;
  std::string open_ = {};       // open brackets
  bool is_name_ = false;        // the current string is a name
  std::string_view word_ = {};  // the rest of true, false or null
  int digits_ = 0;              // in kHex: the digits that follow
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_OBJECT_TEXT_H_
