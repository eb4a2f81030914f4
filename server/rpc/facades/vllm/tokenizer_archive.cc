#include "server/rpc/facades/vllm/tokenizer_archive.h"

#include <zip.h>

#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/sha256.h"

namespace tlm {
namespace {

absl::Status ZipError(const char* what) { return Internal("tokenizer archive: {}", what); }

// Adds the files; libzip reads their bytes when it closes the archive.
absl::Status AddFiles(std::span<const ModelFile> files, zip_t& archive) {
  for (const ModelFile& file : files) {
    zip_source_t* const source =
        zip_source_buffer(&archive, file.bytes.data(), file.bytes.size(), /*freep=*/0);
    const zip_int64_t index = zip_file_add(&archive, file.name.c_str(), source, 0);
    if (index < 0) {
      zip_source_free(source);
      return ZipError(zip_strerror(&archive));
    }
    const auto entry = static_cast<zip_uint64_t>(index);
    zip_set_file_compression(&archive, entry, ZIP_CM_STORE, 0);
    zip_file_set_dostime(&archive, entry, 0, 0x21, 0);  // 1980-01-01: the same bytes each time
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Content(zip_source_t& buffer) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_source_open(&buffer) < 0) return ZipError("cannot be read");
  std::string bytes;
  if (zip_source_stat(&buffer, &stat) == 0) bytes.resize(stat.size);
  const zip_int64_t read = zip_source_read(&buffer, bytes.data(), bytes.size());
  zip_source_close(&buffer);
  if (bytes.empty() || read != static_cast<zip_int64_t>(bytes.size())) {
    return ZipError("cannot be read");
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ZipOf(std::span<const ModelFile> files) {
  zip_error_t error;
  zip_error_init(&error);
  const std::unique_ptr<zip_source_t, decltype(&zip_source_free)> buffer(
      zip_source_buffer_create(nullptr, 0, 0, &error), zip_source_free);
  if (buffer == nullptr) return ZipError(zip_error_strerror(&error));
  zip_source_keep(buffer.get());
  std::unique_ptr<zip_t, decltype(&zip_discard)> archive(
      zip_open_from_source(buffer.get(), ZIP_TRUNCATE, &error), zip_discard);
  if (archive == nullptr) {
    zip_source_free(buffer.get());  // the reference taken by zip_source_keep
    return ZipError(zip_error_strerror(&error));
  }
  TLM_RETURN_IF_ERROR(AddFiles(files, *archive));
  if (zip_close(archive.get()) < 0) return ZipError(zip_strerror(archive.get()));
  (void)archive.release();  // zip_close has freed it
  return Content(*buffer);
}

absl::StatusOr<std::shared_ptr<const TokenizerArchive>> TokenizerArchives::Get(
    const ServedModel& model) {
  if (!model.tokenizer_files) {
    return FailedPrecondition(
        "the model has no tokenizer: requests and responses carry token ids only");
  }
  MutexLock lock(&mutex_);
  std::shared_ptr<const TokenizerArchive> archive = archive_.lock();
  if (archive != nullptr) return archive;
  TLM_ASSIGN_OR_RETURN(const std::vector<ModelFile> files, model.tokenizer_files());
  TokenizerArchive made;
  TLM_ASSIGN_OR_RETURN(made.zip, ZipOf(files));
  TLM_ASSIGN_OR_RETURN(made.sha256, Sha256Hex(made.zip));
  archive = std::make_shared<const TokenizerArchive>(std::move(made));
  archive_ = archive;
  return archive;
}

}  // namespace tlm
