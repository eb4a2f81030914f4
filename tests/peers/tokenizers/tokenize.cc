// Tokenizes what a comparison asks for: `peers_tokenize FILE`, until standard input ends; FILE is
// a tokenizer.json or a GGUF file.
// Numbers are 32 bits, little-endian; strings have their length in front.
//
//   in    string text
//   out   number of ids, ids, string all of them decoded, string decoded without special tokens
//         or 0xffffffff, string message
//
// Exits with 1 when a stream of single tokens gives another text than all of them at once.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_gguf.h"
#include "model/weights/model_files.h"

namespace tlm {
namespace {

bool ReadNumber(uint32_t* number) {
  unsigned char bytes[4];
  if (std::fread(bytes, 1, sizeof(bytes), stdin) != sizeof(bytes)) return false;
  *number = 0;
  for (int i = 3; i >= 0; --i) *number = *number << 8 | bytes[i];
  return true;
}

bool ReadString(std::string* text) {
  uint32_t size = 0;
  if (!ReadNumber(&size)) return false;
  text->resize(size);
  return std::fread(text->data(), 1, size, stdin) == size;
}

void WriteNumber(uint32_t number) {
  for (int i = 0; i < 4; ++i) std::putchar(static_cast<int>(number >> (8 * i) & 0xff));
}

void WriteString(const std::string& text) {
  WriteNumber(static_cast<uint32_t>(text.size()));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string DecodeOneByOne(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(&tokenizer, false, TextPosition::kBeginsText);
  std::string text;
  for (const int32_t id : ids) text += decoder.Append(id);
  return text += decoder.Flush();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(path));
  if (!files.is_gguf()) return Tokenizer::Load(path);
  TLM_ASSIGN_OR_RETURN(const TokenizerDescription description, ReadGgufTokenizer(files.metadata()));
  return Tokenizer::Create(description);
}

int Run(const char* path) {
  const auto tokenizer = Open(path);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 2;
  }
  std::string text;
  while (ReadString(&text)) {
    const auto ids = (*tokenizer)->Encode(text, true);
    if (!ids.ok()) {
      WriteNumber(0xffffffff);
      WriteString(ids.status().ToString());
      continue;
    }
    WriteNumber(static_cast<uint32_t>(ids->size()));
    for (const int32_t id : *ids) WriteNumber(static_cast<uint32_t>(id));
    const std::string decoded = (*tokenizer)->Decode(*ids, false);
    WriteString(decoded);
    WriteString((*tokenizer)->Decode(*ids, true));
    if (DecodeOneByOne(**tokenizer, *ids) != decoded) {
      std::cerr << "one by one the tokens of this text give another one: " << text << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tlm

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " FILE\n";
    return 2;
  }
  return tlm::Run(argv[1]);
}
