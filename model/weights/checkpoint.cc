#include "model/weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/mapped_file.h"
#include "model/base/regular_file.h"
#include "model/base/sha256.h"
#include "model/weights/safetensors.h"

namespace tlm {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{32} << 20;
constexpr size_t kHashedAtOnce = size_t{256} << 10;
constexpr std::string_view kCompiledPrefix = "_orig_mod.";

std::string Join(const std::string& dir, std::string_view name) {
  return (std::filesystem::path(dir) / name).string();
}

std::string FileName(const TensorFile& file) {
  return std::filesystem::path(file.path()).filename().string();
}

absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  absl::StatusOr<std::map<std::string, std::string>> index = ParseShardIndex(text);
  if (!index.ok()) return WithContext(index.status(), path);
  return index;
}

bool IsPlainFileName(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  constexpr std::string_view kForbidden("/\\\0", 3);
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.size() <= 255 &&
         name.find_first_of(kForbidden) == name.npos;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(path));
  return Open(files);
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const ModelFiles& files) {
  Checkpoint checkpoint(files.path());
  if (!files.is_gguf()) {
    TLM_RETURN_IF_ERROR(checkpoint.OpenDirectory());
    return checkpoint;
  }
  checkpoint.is_single_file_ = files.gguf().size() == 1;
  for (const auto& file : files.gguf()) TLM_RETURN_IF_ERROR(checkpoint.Add(file));
  files.ReleaseHeaders();
  return checkpoint;
}

absl::Status Checkpoint::OpenDirectory() {
  absl::StatusOr<SafetensorsFile> single = SafetensorsFile::Open(Join(path_, kSingleFile));
  if (single.ok()) {
    is_single_file_ = true;
    return Add(std::make_shared<SafetensorsFile>(*std::move(single)));
  }
  if (!absl::IsNotFound(single.status())) return single.status();

  const auto index = ReadIndex(Join(path_, kIndexFile));
  if (absl::IsNotFound(index.status())) {
    return NotFound("{}: holds neither {} nor {}", path_, kSingleFile, kIndexFile);
  }
  TLM_RETURN_IF_ERROR(index.status());
  return OpenShards(*index);
}

absl::Status Checkpoint::OpenShards(const std::map<std::string, std::string>& file_of_tensor) {
  std::set<std::string> names;
  for (const auto& [tensor, name] : file_of_tensor) names.insert(name);
  size_t found = 0;
  for (const std::string& name : names) {
    TLM_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(Join(path_, name)));
    for (const auto& [tensor, view] : file.tensors()) {
      const auto entry = file_of_tensor.find(tensor);
      if (entry == file_of_tensor.end()) {
        return InvalidArgument("{}: tensor {} is not in {}", file.path(), Quoted(tensor),
                               kIndexFile);
      }
      if (entry->second != name) {
        return InvalidArgument("{}: tensor {} should be in {} as {} has it", file.path(),
                               Quoted(tensor), Quoted(entry->second), kIndexFile);
      }
      ++found;
    }
    TLM_RETURN_IF_ERROR(Add(std::make_shared<SafetensorsFile>(std::move(file))));
  }
  if (found == file_of_tensor.size()) return absl::OkStatus();

  std::map<std::string, const TensorFile*> files;
  for (const auto& file : files_) files.emplace(FileName(*file), file.get());
  for (const auto& [tensor, name] : file_of_tensor) {
    if (files.at(name)->Find(tensor) == nullptr) {
      return InvalidArgument("{}: tensor {}, which {} places there, is missing", Join(path_, name),
                             Quoted(tensor), kIndexFile);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Add(std::shared_ptr<const TensorFile> file) {
  for (const auto& [stored_name, view] : file->tensors()) {
    std::string_view name = stored_name;
    if (name.starts_with(kCompiledPrefix)) name.remove_prefix(kCompiledPrefix.size());
    if (!tensors_.emplace(name, view).second) {
      return InvalidArgument("{}: tensor {} occurs twice, with and without the prefix '{}'",
                             file->path(), Quoted(name), kCompiledPrefix);
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string Checkpoint::FileOf(std::string_view name) const {
  const std::string compiled = fmt::format("{}{}", kCompiledPrefix, name);
  for (const auto& file : files_) {
    if (file->Find(name) != nullptr || file->Find(compiled) != nullptr) return file->path();
  }
  return "";
}

size_t Checkpoint::tensor_bytes() const {
  size_t bytes = 0;
  for (const auto& [name, view] : tensors_) bytes += view.bytes();
  return bytes;
}

absl::StatusOr<std::string> Checkpoint::Sha256(std::stop_token stop) const {
  std::string lines;
  std::vector<char> buffer(kHashedAtOnce);
  for (const auto& file : files_) {
    Sha256Stream stream;
    const size_t bytes = file->bytes().size();
    for (size_t begin = 0; begin < bytes; begin += kHashedAtOnce) {
      if (stop.stop_requested()) return Cancelled("hashing was stopped");
      // Does not read from the mapping: the kernel may map 2 MiB where one page is touched.
      const std::span piece = std::span(buffer).first(std::min(bytes - begin, kHashedAtOnce));
      TLM_RETURN_IF_ERROR(file->mapped().file().ReadAt(begin, piece));
      stream.Append({piece.data(), piece.size()});
      TLM_RETURN_IF_ERROR(file->mapped().CheckUnchanged());
    }
    TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, stream.Finish());
    if (is_single_file_) return Hex(digest);
    lines += fmt::format("{}  {}\n", Hex(digest), FileName(*file));
  }
  return Sha256Hex(lines);
}

absl::Status Checkpoint::CheckUnchanged() const {
  for (const auto& file : files_) TLM_RETURN_IF_ERROR(file->mapped().CheckUnchanged());
  return absl::OkStatus();
}

const MappedFile* Checkpoint::FileWith(const std::byte* address) const {
  for (const auto& file : files_) {
    const std::span<const std::byte> bytes = file->bytes();
    if (address >= bytes.data() && address < bytes.data() + bytes.size()) return &file->mapped();
  }
  return nullptr;
}

void Checkpoint::Populate(std::span<const std::byte> part) const {
  if (const MappedFile* const file = FileWith(part.data())) file->Populate(part);
}

void Checkpoint::Release(std::span<const std::byte> part) const {
  if (const MappedFile* const file = FileWith(part.data())) file->Release(part);
}

absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(text));
  if (!index.is_object()) return InvalidArgument("is {}, not a JSON object", index.type_name());
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end()) return InvalidArgument("weight_map is missing");
  if (!weight_map->is_object()) {
    return InvalidArgument("weight_map is {}, not an object", weight_map->type_name());
  }
  std::map<std::string, std::string> files;
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      return InvalidArgument("weight_map: the file of tensor {} is {}, not a string",
                             Quoted(tensor), file.type_name());
    }
    const std::string& name = file.get_ref<const std::string&>();
    if (!IsPlainFileName(name)) {
      return InvalidArgument(
          "weight_map: the file of tensor {} is {}, it must be a plain name that ends in "
          "'.safetensors'",
          Quoted(tensor), Quoted(name));
    }
    names.insert(name);
    if (names.size() > kMaxShards) {
      return InvalidArgument("weight_map names more than {} files", kMaxShards);
    }
    files.emplace(tensor, name);
  }
  if (files.empty()) return InvalidArgument("weight_map is empty");
  return files;
}

}  // namespace tlm
