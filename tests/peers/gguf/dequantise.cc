// Writes the float32 elements of the blocks on its standard input. Its argument is their type.
#include <cstdio>
#include <string_view>
#include <vector>

#include "model/tensor/blocks.h"

int main(int argc, char** argv) {
  using tlm::DType;
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                           DType::kQ4K, DType::kQ5K, DType::kQ6K, DType::kIq4Nl}) {
    if (argc != 2 || std::string_view(argv[1]) != tlm::DTypeName(type)) continue;
    std::vector<std::byte> blocks;
    for (int byte = std::getchar(); byte != EOF; byte = std::getchar()) {
      blocks.push_back(static_cast<std::byte>(byte));
    }
    const tlm::DTypeBlock block = tlm::BlockOf(type);
    std::vector<float> elements(blocks.size() / block.bytes * block.elements);
    tlm::Dequantise(type, blocks.data(), blocks.size() / block.bytes, elements.data());
    std::fwrite(elements.data(), sizeof(float), elements.size(), stdout);
    return 0;
  }
  std::fprintf(stderr, "usage: peers_dequantise TYPE < BLOCKS\n");
  return 2;
}
