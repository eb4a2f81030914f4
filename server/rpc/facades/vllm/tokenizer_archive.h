// Packs the tokenizer's files into one archive.
#ifndef TLM_SERVER_RPC_FACADES_VLLM_TOKENIZER_ARCHIVE_H_
#define TLM_SERVER_RPC_FACADES_VLLM_TOKENIZER_ARCHIVE_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/mutex.h"
#include "server/serving/served_model.h"

namespace tlm {

struct TokenizerArchive {
  std::string zip;
  std::string sha256;  // hexadecimal
};

// Returns an uncompressed zip archive of the files; equal files give equal bytes. INTERNAL when
// libzip fails.
absl::StatusOr<std::string> ZipOf(std::span<const ModelFile> files);

// Shares one archive among all callers that hold it at the same time. Thread-safe.
class TokenizerArchives {
 public:
  // Makes the archive if nobody holds one. FAILED_PRECONDITION without a tokenizer; otherwise the
  // statuses of ServedModel::tokenizer_files.
  absl::StatusOr<std::shared_ptr<const TokenizerArchive>> Get(const ServedModel& model);

 private:
  Mutex mutex_;
  std::weak_ptr<const TokenizerArchive> archive_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_VLLM_TOKENIZER_ARCHIVE_H_
