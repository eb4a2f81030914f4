// Arguments of a call written as XML, as Qwen3-Coder does, and the JSON object that they are:
//
//   <parameter=path>            {"path":"a.txt"
//   a.txt
//   </parameter>
//   <parameter=lines>           ,"lines":[1, 2]
//   [1, 2]
//   </parameter>
//   </function>                 }
//
// A parameter whose schema says that it is a string stands there as it is, every other one as JSON.
// So the text of the former does not hold "\n</parameter>", and no name holds ">".
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

// The names of the properties whose schema's `type` is "string", or that have no type and an enum
// or const of strings alone, or that refer to such a one of the schema's `$defs` or `definitions`:
// ascending. Of a schema that is not an object: none.
std::vector<std::string> TextParameters(std::string_view schema);

// XML to JSON, byte by byte. What is no XML of this form is refused; of JSON values only the end is
// looked for: whether they are JSON shows in the text that results. Copyable; thread-compatible.
class XmlArgumentsReader {
 public:
  // Where in a text. Equal states continue alike.
  struct State {
    enum class Phase : uint8_t {
      kTag,        // before "<parameter=" or "</function>", or behind its "<"
      kParameter,  // in "<parameter="
      kName,       // behind it, up to ">"
      kNameEnd,    // before the line break behind it
      kText,       // in a value that stands as it is, or perhaps in "\n</parameter>"
      kJson,       // in another one
      kJsonEnd,    // in "\n</parameter>"
      kValueEnd,   // before the line break behind that
      kFunction,   // in "</function>"
      kEnd,        // behind it
    };
    Phase phase = Phase::kTag;
    uint8_t matched = 0;          // of the phase's literal
    bool has_parameters = false;  // one has begun
    bool in_string = false;       // of kJson
    bool escaped = false;         // behind a backslash in it
    int32_t depth = 0;            // open brackets of kJson
    // Of kName and kNameEnd: the text parameters whose first `length` bytes are the name so far.
    int32_t low = 0, high = 0, length = 0;

    friend bool operator==(const State&, const State&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const State& s) {
      return H::combine(std::move(hash), s.phase, s.matched, s.has_parameters, s.in_string,
                        s.escaped, s.depth, s.low, s.high, s.length);
    }
  };

  // `text_parameters` as TextParameters returns them; not null.
  explicit XmlArgumentsReader(std::shared_ptr<const std::vector<std::string>> text_parameters)
      : text_parameters_(std::move(text_parameters)) {}

  // Adds to `json` what the byte brings; false if no arguments go on so: then the state is lost.
  // What may be the beginning of "\n</parameter>" brings nothing until it is known.
  bool Append(char byte, std::string& json) { return Step(state_, byte, json); }
  // Behind "</function>".
  bool complete() const { return state_.phase == State::Phase::kEnd; }

  // The same from a state that is kept elsewhere.
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

// The XML texts of the objects that a JSON Schema allows, up to and including "</function>". Errors
// are those of CompileJsonSchema, and INVALID_ARGUMENT for a schema that names a property with ">".
extern const ConstraintSpec::CustomKind kXmlArguments;

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_XML_ARGUMENTS_H_
