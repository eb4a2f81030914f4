#include "model/chat/object_text.h"

#include <cctype>
#include <cstdint>

namespace tlm {
namespace {

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

}  // namespace

bool ObjectText::Append(char byte) {
  switch (place_) {
    case Place::kBegin:
      return byte == '{' && Open(byte);
    case Place::kString:
    case Place::kEscape:
    case Place::kHex:
      return AppendToString(byte);
    case Place::kWord:
      if (byte != word_.front()) return false;
      word_.remove_prefix(1);
      return !word_.empty() || Go(Place::kAfter);
    case Place::kEnd:
      return false;
    case Place::kFirstName:
    case Place::kName:
    case Place::kColon:
    case Place::kFirstItem:
    case Place::kValue:
    case Place::kAfter:
      return AppendBetween(byte);
    default:
      return AppendToNumber(byte);
  }
}

bool ObjectText::AppendBetween(char byte) {
  if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') return true;
  const bool in_object = open_.back() == '{';
  switch (place_) {
    case Place::kFirstName:
      return byte == '}' ? Close(byte) : byte == '"' && BeginString(true);
    case Place::kName:
      return byte == '"' && BeginString(true);
    case Place::kColon:
      return byte == ':' && Go(Place::kValue);
    case Place::kFirstItem:
      return byte == ']' ? Close(byte) : BeginValue(byte);
    case Place::kValue:
      return BeginValue(byte);
    default:
      return byte == ',' ? Go(in_object ? Place::kName : Place::kValue) : Close(byte);
  }
}

bool ObjectText::BeginValue(char byte) {
  switch (byte) {
    case '{':
    case '[':
      return Open(byte);
    case '"':
      return BeginString(false);
    case 't':
      return BeginWord("rue");
    case 'f':
      return BeginWord("alse");
    case 'n':
      return BeginWord("ull");
    case '-':
      return Go(Place::kMinus);
    default:
      return IsDigit(byte) && Go(byte == '0' ? Place::kZero : Place::kInteger);
  }
}

bool ObjectText::Close(char bracket) {
  if (bracket != (open_.back() == '{' ? '}' : ']')) return false;
  open_.pop_back();
  return Go(open_.empty() ? Place::kEnd : Place::kAfter);
}

bool ObjectText::AppendToString(char byte) {
  switch (place_) {
    case Place::kEscape:
      digits_ = 4;
      if (byte == 'u') return Go(Place::kHex);
      return std::string_view("\"\\/bfnrt").find(byte) != std::string::npos && Go(Place::kString);
    case Place::kHex:
      if (std::isxdigit(static_cast<unsigned char>(byte)) == 0) return false;
      return --digits_ > 0 || Go(Place::kString);
    default:
      if (byte == '"') return Go(is_name_ ? Place::kColon : Place::kAfter);
      if (byte == '\\') return Go(Place::kEscape);
      return static_cast<uint8_t>(byte) >= 0x20;
  }
}

bool ObjectText::AppendToNumber(char byte) {
  const bool may_scale = place_ == Place::kZero || place_ == Place::kInteger;
  const bool may_end = may_scale || place_ == Place::kFraction || place_ == Place::kExponentDigits;
  if (may_scale && byte == '.') return Go(Place::kPoint);
  if ((may_scale || place_ == Place::kFraction) && (byte == 'e' || byte == 'E')) {
    return Go(Place::kExponent);
  }
  if (place_ == Place::kExponent && (byte == '+' || byte == '-')) return Go(Place::kExponentSign);
  if (!IsDigit(byte) || place_ == Place::kZero) {
    return may_end && Go(Place::kAfter) && AppendBetween(byte);
  }
  if (place_ == Place::kMinus) return Go(byte == '0' ? Place::kZero : Place::kInteger);
  if (place_ == Place::kPoint) return Go(Place::kFraction);
  if (place_ == Place::kExponent || place_ == Place::kExponentSign) {
    return Go(Place::kExponentDigits);
  }
  return true;
}

}  // namespace tlm
