#include <fmt/format.h>

#include <algorithm>

#include "client/cli/command.h"
#include "client/cli/command_line.h"
#include "client/cli/report.h"
#include "client/cli/text.h"

namespace tlm::cli {

std::span<const Command> Commands() {
  static const Command kCommands[] = {
      {"generate",
       "PROMPT",
       "continue a prompt; the text streams as it comes",
       "PROMPT is text, or - to read it from standard input; with --prompt_ids there is none.\n"
       "Flags that are not given leave the choice to the server.",
       {"prompt_ids",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "num_sequences",
        "logit_bias",
        "allowed_token_ids",
        "banned_token_ids",
        "max_new_tokens",
        "min_new_tokens",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "include_stop_in_output",
        "print_ids",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "logprobs_mode",
        "min_chunk_tokens",
        "final_only",
        "priority",
        "soft_time_limit",
        "bypass_prefix_cache",
        "cache_salt",
        "add_special_tokens",
        "truncate_prompt_tokens",
        "model",
        "request_id",
        "stats",
        "json"},
       true,
       RunGenerate},
      {"forward",
       "PROMPT...",
       "logits or probabilities over the vocabulary",
       "Prints the most probable next tokens of each position asked for. PROMPT is text, or - to\n"
       "read it from standard input; with --ids there is none.",
       {"ids", "positions", "values", "dtype", "top", "vocab_slice", "npy", "add_special_tokens",
        "model", "request_id", "json"},
       true,
       RunForward},
      {"info",
       "",
       "what is served: architecture, parameters, costs, memory, limits",
       "",
       {"tensors", "batch", "prompt_tokens", "new_tokens", "model", "json"},
       true,
       RunInfo},
      {"tokenize",
       "TEXT",
       "text to token ids",
       "Prints the ids with commas between them, ready for --prompt_ids. TEXT may be - to read it\n"
       "from standard input.",
       {"pieces", "add_special_tokens", "model", "json"},
       true,
       RunTokenize},
      {"detokenize",
       "IDS",
       "token ids to text",
       "IDS have commas between them: 15496,11,995",
       {"skip_special_tokens", "model", "json"},
       true,
       RunDetokenize},
      {"health",
       "",
       "whether the server is ready: exit code 0 if it is",
       "",
       {"service", "wait", "json"},
       true,
       RunHealth},
      {"version", "", "the version of this program", "", {}, false, RunVersion},
      {"help", "[COMMAND]", "this text, or the flags of a command", "", {}, false, RunHelp},
  };
  return kCommands;
}

const Command* FindCommand(std::string_view name) {
  const std::span<const Command> commands = Commands();
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [name](const Command& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

int RunCommandLine(const std::vector<std::string>& args, Console* console) {
  if (args.empty()) {
    Console to_err{console->in, console->err, console->err};
    RunHelp({}, &to_err);
    return kUsageError;
  }
  std::string name = args[0];
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version") name = "version";
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    return ReportUsage("", fmt::format("no command {}; `tlm help` lists them", Quoted(name)),
                       console);
  }
  auto line = ParseCommandLine(*command, {args.begin() + 1, args.end()});
  if (!line.ok()) return ReportUsage(name, StatusMessage(line.status()), console);
  if (line->wants_help) return RunHelp({name}, console);
  return command->run(line->arguments, console);
}

}  // namespace tlm::cli
