// Arguments of a call written as XML, as Qwen3-Coder does, and the JSON object that they are:
//
//   <parameter=path>            {"path":"a.txt",
//   a.txt
//   </parameter>
//   <parameter=lines>            "lines":[1,2]}
//   [1, 2]
//   </parameter>
//   </function>
//
// A parameter whose schema says that it is a string stands there as it is, every other one as JSON.
#ifndef TLM_MODEL_CONSTRAINT_XML_ARGUMENTS_H_
#define TLM_MODEL_CONSTRAINT_XML_ARGUMENTS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/budget.h"
#include "model/constraint/constraint.h"
#include "model/constraint/recognizer.h"

namespace tlm {

// The names of the properties whose schema's `type` is "string", or that have no type and an enum
// or const of strings alone: ascending. Of a schema that is not an object: none.
std::vector<std::string> TextParameters(std::string_view schema);

// XML to JSON, byte by byte. Copyable: a value of its own. TODO(the author): the state as needed.
class XmlArgumentsReader {
 public:
  explicit XmlArgumentsReader(std::shared_ptr<const std::vector<std::string>> text_parameters);
  // Adds to `json` what the byte brings; false if no arguments go on so: then the state is lost.
  bool Append(char byte, std::string& json);
  // Behind "</function>".
  bool complete() const;
};

// The XML texts of the objects that the schema allows, up to and with "</function>".
absl::StatusOr<RecognizerFactory> CompileXmlArguments(std::string_view schema,
                                                      const JsonOptions& options,
                                                      const ConstraintLimits& limits,
                                                      Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_XML_ARGUMENTS_H_
