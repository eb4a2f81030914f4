// Every field that a request of a protocol can have, to test that a mapping decides on each.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_FACADES_EVERY_FIELD_H_
#define TLM_TESTS_UNIT_SERVER_RPC_FACADES_EVERY_FIELD_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace tlm {

// The paths of the fields that are no messages, in `type` and the messages in it:
// "sampling.top_k". Messages of google.protobuf count as fields.
inline void AddFieldPaths(const google::protobuf::Descriptor& type, const std::string& prefix,
                          std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    const std::string path = prefix + field.name();
    const google::protobuf::Descriptor* const message = field.message_type();
    const bool plain = message == nullptr || field.is_map() || message->field_count() == 0 ||
                       message->full_name().rfind("google.protobuf.", 0) == 0;
    if (plain) {
      paths.push_back(path);
    } else {
      AddFieldPaths(*message, path + ".", paths);
    }
  }
}

template <typename Request>
std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  AddFieldPaths(*Request::descriptor(), "", paths);
  return paths;
}

// Gives the field `path` of `message` a value: 1, 0.5, true or "x", as its type is. Of repeated
// fields an entry is added.
inline void SetField(const std::string& path, google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const size_t dot = path.find('.');
  const FieldDescriptor* const field =
      message.GetDescriptor()->FindFieldByName(path.substr(0, dot));
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      google::protobuf::Message* const inner = repeated
                                                   ? reflection.AddMessage(&message, field)
                                                   : reflection.MutableMessage(&message, field);
      if (dot != path.npos) return SetField(path.substr(dot + 1), *inner);
      if (!field->is_map()) return;
      SetField("key", *inner);
      return SetField("value", *inner);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? reflection.AddBool(&message, field, true)
                      : reflection.SetBool(&message, field, true);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? reflection.AddString(&message, field, "x")
                      : reflection.SetString(&message, field, "x");
    case FieldDescriptor::CPPTYPE_FLOAT:
      return repeated ? reflection.AddFloat(&message, field, 0.5F)
                      : reflection.SetFloat(&message, field, 0.5F);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return repeated ? reflection.AddDouble(&message, field, 0.5)
                      : reflection.SetDouble(&message, field, 0.5);
    case FieldDescriptor::CPPTYPE_ENUM:
      return repeated ? reflection.AddEnumValue(&message, field, 1)
                      : reflection.SetEnumValue(&message, field, 1);
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? reflection.AddInt32(&message, field, 1)
                      : reflection.SetInt32(&message, field, 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? reflection.AddInt64(&message, field, 1)
                      : reflection.SetInt64(&message, field, 1);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? reflection.AddUInt32(&message, field, 1)
                      : reflection.SetUInt32(&message, field, 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? reflection.AddUInt64(&message, field, 1)
                      : reflection.SetUInt64(&message, field, 1);
  }
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_FACADES_EVERY_FIELD_H_
