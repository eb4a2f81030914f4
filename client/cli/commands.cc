#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "model/program/flag_errors.h"

namespace tlm::cli {

namespace {

using Names = std::span<const std::string_view>;

std::vector<std::string_view> Join(std::initializer_list<Names> lists) {
  std::vector<std::string_view> names;
  for (const Names& list : lists) names.insert(names.end(), list.begin(), list.end());
  return names;
}

constexpr std::string_view kPromptFlags[] = {"prompt_ids", "num_sequences"};
constexpr std::string_view kOutputFlags[] = {"print_ids",
                                             "logprobs",
                                             "top_logprobs",
                                             "prompt_logprobs",
                                             "logprobs_mode",
                                             "min_chunk_tokens",
                                             "final_only",
                                             "add_special_tokens",
                                             "truncate_prompt_tokens",
                                             "model",
                                             "request_id",
                                             "stats",
                                             "json"};
constexpr std::string_view kBenchFlags[] = {"concurrency",
                                            "rate",
                                            "requests",
                                            "duration",
                                            "warmup",
                                            "prompt_tokens",
                                            "prompts_file",
                                            "max_new_tokens",
                                            "until_eos",
                                            "connections",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "seed",
                                            "priority",
                                            "soft_time_limit",
                                            "bypass_prefix_cache",
                                            "cache_salt",
                                            "model",
                                            "json"};
constexpr std::string_view kChatFlags[] = {"system", "template_argument", "once", "timing",
                                           "model"};

}  // namespace

std::span<const Command> Commands() {
  static const Command kCommands[] = {
      {"generate", "PROMPT", "continue a prompt; the text streams as it comes",
       "PROMPT is text, or - to read it from standard input; with --prompt_ids there is none.\n"
       "Flags that are not given leave the choice to the server. Of several outputs\n"
       "(--num_sequences) each is printed when it is complete, under its index: [0].\n\n"
       "  tlm generate 'Once upon a time' --max_new_tokens=60 --temperature=0.8 --seed=1",
       Join({kPromptFlags, SamplingFlagNames(), kOutputFlags}), true, RunGenerate},
      {"chat", "[MESSAGE]", "a conversation; without MESSAGE, line by line from standard input",
       "Each line is a message, and the model sees all that was said before; /help lists what "
       "else\n"
       "a line can be. Ctrl-C stops the answer, keeping what was said; a second one, or Ctrl-D,\n"
       "leaves. With MESSAGE (- for all of standard input) or --once there is one answer.\n\n"
       "  tlm chat --system='You answer in one sentence.' "
       "--template_argument=enable_thinking=false",
       Join({kChatFlags, SamplingFlagNames()}), true, RunChat},
      {"score",
       "PROMPT CONTINUATION...",
       "how probable continuations of a prompt are",
       "Prints for each continuation the sum and mean of its tokens' natural-log probabilities, "
       "its\n"
       "perplexity exp(-mean), and whether greedy decoding produces it; with --logprobs its "
       "tokens\n"
       "too. With --prompt or --prompt_ids every argument is a continuation; --ids adds others.\n\n"
       "  tlm score 'The capital of France is' ' Paris' ' Rome'",
       {"prompt", "prompt_ids", "ids", "logprobs", "top_logprobs", "add_special_tokens", "model",
        "request_id", "json"},
       true,
       RunScore},
      {"forward",
       "PROMPT...",
       "logits or probabilities over the vocabulary",
       "Prints the most probable next tokens of each position asked for. PROMPT is text, or - to\n"
       "read it from standard input; with --ids there is none.\n\n"
       "  tlm forward 'Once upon a' --top=5 --values=probabilities",
       {"ids", "positions", "values", "dtype", "top", "vocab_slice", "npy", "add_special_tokens",
        "model", "request_id", "json"},
       true,
       RunForward},
      {"info",
       "[DIRECTORY]",
       "what is served: size, memory, limits, costs",
       "With DIRECTORY or --preset no server is asked and no weights are loaded: DIRECTORY is that "
       "of\n"
       "a model, or a config.json itself; --preset is a known model. --batch, --prompt_tokens and\n"
       "--new_tokens say what work is counted; it may be longer than the model's context. The "
       "FLOPs\n"
       "are an upper bound by conventions that --all lists.\n\n"
       "  tlm info --all\n"
       "  tlm info ~/models/qwen3-0.6b\n"
       "  tlm info --preset=gpt2-xl --prompt_tokens=16384",
       {"all", "preset", "tensors", "batch", "prompt_tokens", "new_tokens", "model", "json"},
       true,
       RunInfo,
       {{"all", "print every table"}}},
      {"tokenize",
       "TEXT",
       "text to token ids",
       "Prints the ids with commas between them, ready for --prompt_ids. TEXT may be - to read it\n"
       "from standard input.\n\n"
       "  tlm tokenize 'Once upon a time' --pieces",
       {"pieces", "add_special_tokens", "model", "json"},
       true,
       RunTokenize},
      {"detokenize",
       "IDS",
       "token ids to text",
       "IDS have commas between them.\n\n"
       "  tlm detokenize 15496,11,995",
       {"skip_special_tokens", "model", "json"},
       true,
       RunDetokenize},
      {"health",
       "",
       "whether the server is ready: exit code 0 if it is",
       "The exit code is 0 for SERVING, 1 for everything else that a server may say and when none\n"
       "answers within --timeout, 2 for wrong usage: as a container's HEALTHCHECK wants it. With "
       "TLS\n"
       "it is a whole handshake, the server's certificate verified. No API key is needed.\n\n"
       "  tlm health --wait=1m\n"
       "  HEALTHCHECK CMD [\"tlm\", \"health\", \"--ca_file=/etc/tlm/ca.pem\", "
       "\"--server_name=tlm\"]",
       {"service", "wait", "json"},
       true,
       RunHealth,
       {{"timeout", "how long the answer may take; 5s if not given"}}},
      {"admin",
       "load|abort|drain|flush|config [REQUEST_ID...]",
       "look after a running server, at its admin port",
       "  load    what waits and runs, how full the KV cache is\n"
       "  abort   end the requests of these ids, or --all of them, perhaps of one --tenant\n"
       "  drain   begin to shut down; what runs may go on for --time_limit\n"
       "  flush   free the blocks that only the prefix cache holds\n"
       "  config  every flag of the server and its value; what was changed has a star\n\n"
       "  tlm admin load --admin_target=127.0.0.1:50052",
       {"admin_target", "all", "tenant", "time_limit", "json"},
       true,
       RunAdmin},
      {"bench",
       "",
       "how fast a server is under load",
       "Sends Generate requests, --concurrency at a time or --rate per second, and reports "
       "requests\n"
       "and tokens per second, and mean and percentiles of TTFT (time to first token), "
       "inter-token\n"
       "latency, end-to-end latency and queue time. Latencies count from when a request was due.\n"
       "Prompts are random tokens unless --prompts_file names some. Ctrl-C ends it early, with "
       "what\n"
       "was measured. The exit code is 1 when no request ended well.\n\n"
       "  tlm bench --concurrency=16 --duration=30s --prompt_tokens=256 --max_new_tokens=64",
       Join({kBenchFlags}),
       true,
       RunBench,
       {{"prompt_tokens", "random tokens in each prompt; 128 if not given"},
        {"max_new_tokens", "tokens in each output; 64 if not given"},
        {"seed", "of prompts and times; sampling has the same seed in every request then"},
        {"timeout", "deadline of each request"},
        {"json", "print one JSON object, times in seconds"}}},
      {"top",
       "",
       "the load of servers, live",
       "Asks the admin ports of one server or several, with commas between them, every second. "
       "The\n"
       "KV cache is shown as [####==--]: held by sequences, kept by the prefix cache alone, free.\n"
       "q or Ctrl-C ends it. With --once, or where the output is no terminal, it prints one "
       "table;\n"
       "the exit code is then 1 when a server did not answer.\n\n"
       "  tlm top --admin_target=127.0.0.1:50052,127.0.0.1:50152",
       {"admin_target", "once"},
       true,
       RunTop,
       {{"admin_target", "the admin ports of servers, as host:port, with commas between them"},
        {"timeout", "a server that takes longer cannot be reached; 3s at the most"},
        {"once", "print one table and end"}}},
      {"completion",
       "bash|zsh|fish",
       "a script that completes commands and flags in a shell",
       "  source <(tlm completion bash)\n"
       "  tlm completion zsh > ~/.zfunc/_tlm        # a folder in $fpath\n"
       "  tlm completion fish > ~/.config/fish/completions/tlm.fish",
       {},
       false,
       RunCompletion},
      {"version", "", "the version of this program", "", {}, false, RunVersion},
      {"help", "[COMMAND]", "this text, or the flags of a command", "", {"format"}, false, RunHelp},
  };
  return kCommands;
}

const Command* FindCommand(std::string_view name) {
  const std::span<const Command> commands = Commands();
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [name](const Command& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::string NoCommand(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string nearest = DidYouMean(name, names);
  return fmt::format("no command {}{}", Shortened(Quoted(name), 100),
                     nearest.empty() ? "; `tlm help` lists them" : nearest);
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
    return ReportUsage("", NoCommand(name), console);
  }
  auto line = ParseCommandLine(*command, {args.begin() + 1, args.end()});
  if (!line.ok()) return ReportUsage(name, StatusMessage(line.status()), console);
  if (line->wants_help) return RunHelp({name}, console);
  return command->run(line->arguments, console);
}

}  // namespace tlm::cli
