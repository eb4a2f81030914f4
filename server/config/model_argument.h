// Finds out which model a command line names.
#ifndef TLM_SERVER_CONFIG_MODEL_ARGUMENT_H_
#define TLM_SERVER_CONFIG_MODEL_ARGUMENT_H_

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// Returns the model of a command line: the only one of `arguments`, which are no flags, or `flag`,
// the value of --model; empty if neither names one. INVALID_ARGUMENT for an empty argument, for
// more than one, and for one that differs from a `flag` that is not empty.
absl::StatusOr<std::string> ModelOf(std::span<const std::string> arguments,
                                    const std::string& flag);

// Returns the folder of the bundled model: share/tlm/demo of the installation of `program`, an
// absolute path PREFIX/bin/NAME, or of the prefix above, as /usr is above /usr/local; or model/demo
// of the source tree that has `program` in build/PRESET/bin. nullopt if it is in none of these.
std::optional<std::string> FindBundledModel(const std::filesystem::path& program);

// Returns OWNER/NAME if `model` names a repository of Hugging Face's hub: OWNER/NAME,
// hf://OWNER/NAME or https://huggingface.co/OWNER/NAME, with letters, digits, '-', '_' and '.'.
// Otherwise nullopt. A local folder may have the first form: ask the file system before.
std::optional<std::string> HubName(std::string_view model);

// Returns the two commands that download the repository `name`, a result of HubName, and the files
// that it must have, as a part of a line.
std::string HowToDownload(const std::string& name);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_MODEL_ARGUMENT_H_
