// Runs a fuzz target without libFuzzer, with any compiler:
//
//   fuzz_TARGET [--rounds=N] [--seed=S] [--dict=FILE] [--max_len=N] FILE|DIRECTORY...
//
// First every file as it is, then N mutations of them, the same ones in every run. An input that
// makes the target crash, or that takes longer than kTimeLimitSeconds, is written to the working
// directory. This is no substitute for libFuzzer, which looks for new paths: it keeps what was
// found from coming back, and runs wherever the other tests run.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr unsigned kTimeLimitSeconds = 20;
constexpr char kCrashFile[] = "crash-input";

// For the signal handler.
std::string_view g_input;

void SaveInput(int signal_number) {
  const int file = open(kCrashFile, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) {
    const ssize_t written = write(file, g_input.data(), g_input.size());
    constexpr std::string_view kText = "the input is in ./crash-input\n";
    if (written >= 0 && write(STDERR_FILENO, kText.data(), kText.size()) >= 0) close(file);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void RunOne(const std::string& input) {
  g_input = input;
  alarm(kTimeLimitSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  alarm(0);
}

struct Options {
  int rounds = 0;
  uint32_t seed = 1;
  size_t max_len = 4096;
  std::vector<std::string> words;
  std::vector<std::string> inputs;
};

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void AddInputs(const std::filesystem::path& path, std::vector<std::string>* inputs) {
  if (!std::filesystem::is_directory(path)) return inputs->push_back(ReadAll(path));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) inputs->push_back(ReadAll(file));
}

// The texts in double quotes of libFuzzer's dictionary format, where \xAB, \\ and \" are escaped.
std::vector<std::string> ReadDictionary(const std::filesystem::path& path) {
  std::vector<std::string> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"');
    const size_t end = line.rfind('"');
    if (line.starts_with('#') || begin == end) continue;
    std::string word;
    for (size_t i = begin + 1; i < end; ++i) {
      if (line[i] == '\\' && line[i + 1] == 'x') {
        word += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
        i += 3;
      } else {
        if (line[i] == '\\') ++i;
        word += line[i];
      }
    }
    words.push_back(word);
  }
  return words;
}

class Mutator {
 public:
  explicit Mutator(const Options& options) : options_(options), random_(options.seed) {}

  std::string Next() {
    std::string input = Any();
    for (size_t changes = 1 + Below(4); changes > 0; --changes) Change(&input);
    if (input.size() > options_.max_len) input.resize(options_.max_len);
    return input;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& Any() { return options_.inputs[Below(options_.inputs.size())]; }

  void Change(std::string* input) {
    const size_t at = Below(input->size() + 1);
    const size_t length = Below(std::min<size_t>(64, input->size() - at) + 1);
    switch (Below(options_.words.empty() ? 6 : 8)) {
      case 0:
        if (at < input->size()) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
        break;
      case 1:
        if (at < input->size()) (*input)[at] = static_cast<char>(random_());
        break;
      case 2:
        input->erase(at, length);
        break;
      case 3:
        input->insert(at, input->substr(Below(input->size()), length));
        break;
      case 4:
        input->insert(at, 1 + Below(4), static_cast<char>(random_()));
        break;
      case 5: {
        const std::string& other = Any();
        input->replace(at, length, other.substr(Below(other.size()), Below(128)));
        break;
      }
      case 6:
        input->insert(at, options_.words[Below(options_.words.size())]);
        break;
      default:
        input->replace(at, length, options_.words[Below(options_.words.size())]);
    }
  }

  const Options& options_;
  std::mt19937 random_;
};

Options ParseArguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string value(argument.substr(std::min(argument.find('=') + 1, argument.size())));
    if (argument.starts_with("--rounds=")) {
      options.rounds = std::atoi(value.c_str());
    } else if (argument.starts_with("--seed=")) {
      options.seed = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (argument.starts_with("--max_len=")) {
      options.max_len = static_cast<size_t>(std::atoi(value.c_str()));
    } else if (argument.starts_with("--dict=")) {
      options.words = ReadDictionary(value);
    } else {
      AddInputs(argument, &options.inputs);
    }
  }
  return options;
}

}  // namespace
}  // namespace tlm

int main(int argc, char** argv) {
  const tlm::Options options = tlm::ParseArguments(argc, argv);
  if (options.inputs.empty()) {
    std::fprintf(stderr, "no inputs\n");
    return 2;
  }
  for (const int signal_number : {SIGABRT, SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    signal(signal_number, tlm::SaveInput);
  }
  for (const std::string& input : options.inputs) tlm::RunOne(input);
  tlm::Mutator mutator(options);
  for (int round = 0; round < options.rounds; ++round) tlm::RunOne(mutator.Next());
  std::printf("%zu inputs and %d mutations of them\n", options.inputs.size(), options.rounds);
  return 0;
}
