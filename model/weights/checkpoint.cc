#include "model/weights/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/mapped_file.h"
#include "model/base/sha256.h"
#include "model/weights/shard_index.h"

namespace tlm {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{32} << 20;
constexpr std::string_view kCompiledPrefix = "_orig_mod.";

std::string Join(const std::string& dir, std::string_view name) {
  return (std::filesystem::path(dir) / name).string();
}

std::string FileName(const SafetensorsFile& file) {
  return std::filesystem::path(file.path()).filename().string();
}

absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  absl::StatusOr<std::map<std::string, std::string>> index = ParseShardIndex(text);
  if (!index.ok()) return WithContext(index.status(), path);
  return index;
}

// The file's bytes, kHashPieceBytes at a time.
std::vector<std::string_view> Pieces(const SafetensorsFile& file) {
  std::vector<std::string_view> pieces;
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  while (!rest.empty()) {
    pieces.push_back(rest.substr(0, Checkpoint::kHashPieceBytes));
    rest.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& model_dir) {
  Checkpoint checkpoint(model_dir);
  absl::StatusOr<SafetensorsFile> single = SafetensorsFile::Open(Join(model_dir, kSingleFile));
  if (single.ok()) {
    TLM_RETURN_IF_ERROR(checkpoint.Add(*std::move(single)));
    return checkpoint;
  }
  if (!absl::IsNotFound(single.status())) return single.status();

  const auto index = ReadIndex(Join(model_dir, kIndexFile));
  if (absl::IsNotFound(index.status())) {
    return NotFound("{}: holds neither {} nor {}", model_dir, kSingleFile, kIndexFile);
  }
  TLM_RETURN_IF_ERROR(index.status());
  TLM_RETURN_IF_ERROR(checkpoint.OpenShards(*index));
  return checkpoint;
}

absl::Status Checkpoint::OpenShards(const std::map<std::string, std::string>& file_of_tensor) {
  std::set<std::string> names;
  for (const auto& [tensor, name] : file_of_tensor) names.insert(name);
  size_t found = 0;
  for (const std::string& name : names) {
    TLM_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(Join(model_dir_, name)));
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
    TLM_RETURN_IF_ERROR(Add(std::move(file)));
  }
  if (found == file_of_tensor.size()) return absl::OkStatus();

  std::map<std::string, const SafetensorsFile*> files;
  for (const SafetensorsFile& file : files_) files.emplace(FileName(file), &file);
  for (const auto& [tensor, name] : file_of_tensor) {
    if (files.at(name)->Find(tensor) == nullptr) {
      return InvalidArgument("{}: tensor {}, which {} places there, is missing",
                             Join(model_dir_, name), Quoted(tensor), kIndexFile);
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Add(SafetensorsFile file) {
  for (const auto& [stored_name, view] : file.tensors()) {
    std::string_view name = stored_name;
    if (name.starts_with(kCompiledPrefix)) name.remove_prefix(kCompiledPrefix.size());
    if (!tensors_.emplace(name, view).second) {
      return InvalidArgument("{}: tensor {} occurs twice, with and without the prefix '{}'",
                             file.path(), Quoted(name), kCompiledPrefix);
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

size_t Checkpoint::tensor_bytes() const {
  size_t bytes = 0;
  for (const auto& [name, view] : tensors_) bytes += view.bytes();
  return bytes;
}

absl::StatusOr<std::string> Checkpoint::Sha256(std::stop_token stop) const {
  std::string lines;
  for (const SafetensorsFile& file : files_) {
    Sha256Stream stream;
    for (const std::string_view piece : Pieces(file)) {
      if (stop.stop_requested()) return Cancelled("hashing was stopped");
      stream.Append(piece);
    }
    TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, stream.Finish());
    if (files_.size() == 1 && FileName(file) == kSingleFile) return Hex(digest);
    lines += fmt::format("{}  {}\n", Hex(digest), FileName(file));
  }
  return Sha256Hex(lines);
}

absl::StatusOr<std::string> Checkpoint::PiecewiseSha256(int threads) const {
  std::vector<std::string_view> pieces;
  for (const SafetensorsFile& file : files_) {
    for (const std::string_view piece : Pieces(file)) pieces.push_back(piece);
  }
  std::vector<absl::StatusOr<Sha256Digest>> digests(pieces.size(), Sha256Digest{});
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) digests[i] = tlm::Sha256(pieces[i]);
  };
  {
    std::vector<std::jthread> helpers;
    const size_t wanted = std::min(pieces.size(), static_cast<size_t>(std::max(threads, 1)));
    try {
      while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: those there are do it.
    }
    work();
  }
  std::string text;
  auto digest = digests.cbegin();
  for (const SafetensorsFile& file : files_) {
    text += fmt::format("{}\n", file.bytes().size());
    for (size_t i = Pieces(file).size(); i > 0; --i, ++digest) {
      TLM_RETURN_IF_ERROR(digest->status());
      text.append(reinterpret_cast<const char*>((*digest)->data()), (*digest)->size());
    }
  }
  return Sha256Hex(text);
}

}  // namespace tlm
