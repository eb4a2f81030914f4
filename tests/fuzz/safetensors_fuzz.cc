// A safetensors file: refused, or every view lies in memory that may be read.
#include "model/weights/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tlm::MemoryDir dir;
  tlm::FuzzInput input(data, size);
  const auto file = tlm::SafetensorsFile::Open(dir.Overwrite("x.safetensors", input.Rest()));
  if (tlm::IsRefused(file)) return 0;
  uint64_t sum = 0;
  for (const auto& [name, view] : file->tensors()) {
    for (size_t i = 0; i < view.bytes(); ++i) sum += view.as<uint8_t>()[i];
  }
  tlm::Consume(sum);
  return 0;
}
