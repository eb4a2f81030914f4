#include "server/serving/build_info.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "model/base/errors.h"
#include "model/base/sha256.h"

namespace tlm {
namespace {

// libm computes exponentials and rotary positions, libstdc++ sorts and formats numbers, the
// tokenizer uses the others.
constexpr std::string_view kComputingLibraries[] = {"libm.so", "libstdc++.so", "libpcre2-8.so",
                                                    "libutf8proc.so"};
// The module itself, and the compiler of code for devices that the module has no code for. cuBLASLt
// is left out: it computes only products for which it has shown the same bits as the module's own
// kernels.
constexpr std::string_view kCudaLibraries[] = {"libtlm_cuda", "libnvidia-ptxjitcompiler.so"};
constexpr int kMathProbes = 4096;

size_t RoundUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

// Returns the description of the note with that owner and type among the notes of one segment;
// empty when there is none.
std::string_view FindNote(std::string_view notes, size_t alignment, std::string_view owner,
                          uint32_t type) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const size_t description = RoundUp(sizeof(header) + header.n_namesz, alignment);
    const size_t end = description + header.n_descsz;
    if (end > notes.size()) break;
    if (header.n_type == type && notes.substr(sizeof(header), header.n_namesz) == owner) {
      return notes.substr(description, header.n_descsz);
    }
    notes.remove_prefix(std::min(RoundUp(end, alignment), notes.size()));
  }
  return {};
}

// This project's note if there is one, else the linker's build id; empty when both are missing.
std::string BuildIdOf(const dl_phdr_info& object) {
  constexpr std::string_view kTlm("tlm", 4), kGnu("GNU", 4);  // with their zero bytes
  std::string linked;
  for (const ElfW(Phdr) & segment : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto* const begin =
        reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);  // NOLINT: as loaded
    const std::string_view notes(begin, segment.p_memsz);
    const size_t alignment = segment.p_align == 8 ? 8 : 4;
    const std::string_view own = FindNote(notes, alignment, kTlm, 1);
    if (!own.empty()) return std::string(own);
    for (const char byte : FindNote(notes, alignment, kGnu, NT_GNU_BUILD_ID)) {
      linked += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
  }
  return linked;
}

// Returns every loaded object, by file name, with its build id; the program itself has no name.
std::map<std::string, std::string> LoadedBuildIds() {
  std::map<std::string, std::string> ids;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* to) {
        const std::string_view path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
        const std::string name(path.substr(path.rfind('/') + 1));
        static_cast<std::map<std::string, std::string>*>(to)->emplace(name, BuildIdOf(*object));
        return 0;
      },
      &ids);
  return ids;
}

bool IsOneOf(std::span<const std::string_view> names, std::string_view library) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return library.substr(0, name.size()) == name; });
}

std::string ComputingLibraries(const std::map<std::string, std::string>& ids, bool cuda) {
  std::string text;
  for (const auto& [name, id] : ids) {
    if (IsOneOf(kComputingLibraries, name) || (cuda && IsOneOf(kCudaLibraries, name))) {
      text += fmt::format("{} {}\n", name, id);
    }
  }
  return text;
}

// Returns a hash of the bits of the results at points that spread over the ranges that the model
// uses.
absl::StatusOr<std::string> HashOfMath() {
  std::vector<double> answers;
  answers.reserve(5 * kMathProbes);
  for (int i = 1; i <= kMathProbes; ++i) {
    const double x = i * 0.61803398874989485;
    answers.insert(answers.end(), {std::exp(-x / 64), std::log(x), std::pow(10000.0, -1 / x),
                                   std::sin(x), std::cos(x)});
  }
  return Sha256Hex(std::string_view(reinterpret_cast<const char*>(answers.data()),
                                    answers.size() * sizeof(double)));
}

}  // namespace

absl::StatusOr<std::string> ReadBuildId() {
  const std::string id = LoadedBuildIds()[""];
  if (!id.empty()) return id;
  return FailedPrecondition("the program has no build id");
}

absl::StatusOr<BuildInfo> ReadBuildInfo(std::string_view backend) {
  BuildInfo build;
  TLM_ASSIGN_OR_RETURN(build.build_id, ReadBuildId());
  build.libraries = ComputingLibraries(LoadedBuildIds(), backend == "cuda");
  TLM_ASSIGN_OR_RETURN(build.math, HashOfMath());
  return build;
}

}  // namespace tlm
