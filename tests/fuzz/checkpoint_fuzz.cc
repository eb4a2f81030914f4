// A checkpoint of several files. Parts: the index, one file; the rest is a second one.
#include "model/weights/checkpoint.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tlm::MemoryDir dir;
  tlm::FuzzInput input(data, size);
  dir.Overwrite("model.safetensors.index.json", input.Part());
  // Lengths in front of headers need the byte that ends a part: the first file tells its own.
  const size_t first_bytes = input.Byte();
  dir.Overwrite("a.safetensors", input.Bytes(first_bytes));
  dir.Overwrite("b.safetensors", input.Rest());
  const auto checkpoint = tlm::Checkpoint::Open(dir.path());
  if (tlm::IsRefused(checkpoint)) return 0;
  uint64_t sum = checkpoint->tensor_bytes();
  for (const auto& [name, view] : checkpoint->tensors()) {
    for (size_t i = 0; i < view.bytes(); ++i) sum += view.as<uint8_t>()[i];
  }
  tlm::Consume(sum);
  return 0;
}
