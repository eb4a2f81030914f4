// Translates the arguments of a tool call from XML, as Qwen3-Coder writes them, to a JSON object:
//
//   <parameter=path>            {"path":"a.txt"
//   a.txt
//   </parameter>
//   <parameter=lines>           ,"lines":[1, 2]
//   [1, 2]
//   </parameter>
//   </function>                 }
//
// A parameter whose schema requires a string is written without quotes and escapes, and every other
// parameter as JSON. So a string cannot contain "\n</parameter>", and a name cannot contain ">".
#ifndef TLM_MODEL_CHAT_XML_ARGUMENTS_H_
#define TLM_MODEL_CHAT_XML_ARGUMENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/constraint/constraint_spec.h"

namespace tlm {

// The names of the properties that are written as plain text, ascending. Their schema has the type
// "string", or no type and an `enum` or `const` of strings only, or it is a `$ref` to such a schema
// in `$defs` or `definitions`. Empty if the schema is not a JSON object.
std::vector<std::string> TextParameters(std::string_view schema);

// Translates XML to JSON byte by byte. It refuses text that is not XML of this form. It only finds
// the end of a JSON value; whether the value is valid JSON must be checked in the resulting text.
// Copyable; thread-compatible.
class XmlArgumentsReader {
 public:
  // A position in the XML. Equal states translate the same continuation to the same JSON.
  struct State {
    enum class Phase : uint8_t {
      kTag,        // before "<parameter=" or "</function>", or after its "<"
      kParameter,  // in "<parameter="
      kName,       // in the name, up to ">"
      kNameEnd,    // after ">", before the line break
      kText,       // in a plain text, or perhaps already in the "\n</parameter>" after it
      kJson,       // in a JSON value
      kJsonEnd,    // in the "\n</parameter>" after a JSON value
      kValueEnd,   // after "\n</parameter>", before the line break
      kFunction,   // in "</function>"
      kEnd,        // after "</function>"
    };
    Phase phase = Phase::kTag;
    uint8_t matched = 0;          // bytes read of the phase's literal
    bool has_parameters = false;  // a parameter has begun
    bool in_string = false;       // kJson: in a string
    bool escaped = false;         // kJson: after a backslash in a string
    int32_t depth = 0;            // kJson: open brackets
    // kName, kNameEnd: the text parameters in [low, high) begin with the name so far, whose length
    // is `length`. If there are none, all three are 0.
    int32_t low = 0, high = 0, length = 0;

    friend bool operator==(const State&, const State&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const State& s) {
      return H::combine(std::move(hash), s.phase, s.matched, s.has_parameters, s.in_string,
                        s.escaped, s.depth, s.low, s.high, s.length);
    }
  };

  // `text_parameters` is what TextParameters returns; not null.
  explicit XmlArgumentsReader(std::shared_ptr<const std::vector<std::string>> text_parameters)
      : text_parameters_(std::move(text_parameters)) {}

  // Reads a byte and appends the JSON that it completes to `json`. Bytes that may begin
  // "\n</parameter>" append nothing until this is decided. Returns false if the byte cannot follow:
  // then the reader must not be used again.
  bool Append(char byte, std::string& json) { return Step(state_, byte, json); }
  // Whether "</function>" has been read.
  bool complete() const { return state_.phase == State::Phase::kEnd; }

  // Like Append, from a state that the caller keeps.
  bool Step(State& state, char byte, std::string& json) const;

 private:
  bool StepTag(State& state, char byte, std::string& json) const;
  bool StepName(State& state, char byte, std::string& json) const;
  bool BeginValue(State& state, std::string& json) const;
  static bool StepText(State& state, char byte, std::string& json);
  static bool StepJson(State& state, char byte, std::string& json);

  std::shared_ptr<const std::vector<std::string>> text_parameters_;
  State state_;
};

// The constraint kind whose texts are the objects that a JSON Schema allows, as XML up to and
// including "</function>". Fails as CompileJsonSchema does, and with INVALID_ARGUMENT if the schema
// names a property with ">" or allows no object.
extern const ConstraintSpec::CustomKind kXmlArguments;

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_XML_ARGUMENTS_H_
