#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "model/base/mapped_file.h"
#include "tests/support/simt/api.h"

namespace tlm::simt::emulated {
namespace {

using Symbols = std::map<uintptr_t, std::string>;  // offset in the executable -> mangled name

// Reads the executable's symbol table, which, unlike the dynamic one, also has internal functions.
Symbols ReadSymbols() {
  Symbols symbols;
  auto file = MappedFile::Open("/proc/self/exe");
  if (!file.ok()) return symbols;
  const auto bytes = file->bytes();
  const auto* base = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < sizeof(Elf64_Ehdr)) return symbols;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(base + header->e_shoff);
  if (header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > bytes.size()) return symbols;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* entries = reinterpret_cast<const Elf64_Sym*>(base + sections[i].sh_offset);
    const char* names = base + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(entries[s].st_info) != STT_FUNC) continue;
      symbols.emplace(entries[s].st_value, names + entries[s].st_name);
    }
  }
  return symbols;
}

// Returns the load address of the executable.
uintptr_t LoadAddress() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<uintptr_t*>(data) = info->dlpi_addr;
        return 1;  // the first is the executable
      },
      &address);
  return address;
}

}  // namespace

std::string KernelName(KernelAddress kernel, std::string_view signature) {
  static auto* names = new std::map<KernelAddress, std::string>;
  static const auto* symbols = new Symbols(ReadSymbols());
  const auto known = names->find(kernel);
  if (known != names->end()) return known->second;
  std::string name(signature);
  const auto found = symbols->find(reinterpret_cast<uintptr_t>(kernel) - LoadAddress());
  if (found != symbols->end()) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status);
    name = status == 0 ? demangled : found->second;
    std::free(demangled);
  }
  return (*names)[kernel] = name;
}

}  // namespace tlm::simt::emulated
