#include "client/openai/options.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "absl/flags/flag.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/table.h"
#include "client/openai/http/listen_socket.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"
#include "model/base/program/man_page.h"

ABSL_FLAG(std::string, host, "127.0.0.1",
          "address of the HTTP port; other than loopback it needs --tls_cert or --insecure. Set it "
          "when clients are on other machines");
ABSL_FLAG(int, port, 8080,
          "TCP port of HTTP, 0 to 65535; 0 = any free one. Set it when another program has the "
          "port");
ABSL_FLAG(std::string, port_file, "",
          "FILE that receives the number of the port once the program serves; empty = none. Set it "
          "in scripts that start the program with --port=0");
ABSL_FLAG(
    tlm::cli::TextList, model, {},
    "NAME=TARGETS: requests with the model NAME go to these replicas, comma-separated; several "
    "times, or separated by semicolons, for several models. Set it to serve several models, "
    "or one under another name; --target is then not used");
ABSL_FLAG(std::string, balance, "prefix_affinity",
          "how requests are distributed over the replicas: prefix_affinity sends requests with a "
          "common beginning to the replica whose prefix cache holds it, round_robin takes turns. "
          "Set round_robin when prompts have nothing in common");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file of this program's certificate chain, leaf first; with --tls_key it enables "
          "HTTPS. Set it when requests cross a network");
ABSL_FLAG(std::string, tls_key, "", "PEM file of the private key of --tls_cert. Set both");
ABSL_FLAG(bool, insecure, false,
          "allow addresses other than loopback without TLS. Set it in networks that are trusted or "
          "encrypt by themselves, such as a service mesh");
ABSL_FLAG(bool, allow_plaintext_api_keys, false,
          "pass the keys of callers on to servers on other machines without TLS; otherwise they "
          "are dropped. Set it in networks that encrypt by themselves");
ABSL_FLAG(bool, ignore_unknown_fields, false,
          "accept fields of a request that this program does not know, instead of refusing them by "
          "name. Set it for clients that send fields of other servers");
ABSL_FLAG(int64_t, max_body_bytes, 8 << 20,
          "bytes of a request's body, 1024 to 268435456. Set it higher for very long prompts");
ABSL_FLAG(int, max_prompts, 128,
          "prompts in one request of /v1/completions, 1 to 4096. Set it higher for batches of "
          "evaluation programs");
ABSL_FLAG(int, max_connections, 16384,
          "open connections, 1 to 1048576, as far as the system's limit of open files allows; "
          "further ones wait. Set it lower when descriptors run out");
ABSL_FLAG(int, max_calls, 512,
          "calls to servers at once, 1 to 16384, one thread each; a request has one for each "
          "prompt. Set it to what the servers can queue");
ABSL_FLAG(int, max_queued_calls, 1024,
          "calls that wait for one of --max_calls, 0 to 1048576; further requests get 429. Set it "
          "lower to refuse sooner");
ABSL_FLAG(tlm::cli::TimeSpan, idle_timeout, tlm::cli::TimeSpan{absl::Seconds(120)},
          "a connection without a byte in or out for this long is closed, 1s to 1h: one that is "
          "kept alive, and one whose client does not read its answer. Set it longer than a "
          "balancer keeps connections");
ABSL_FLAG(tlm::cli::TimeSpan, request_timeout, tlm::cli::TimeSpan{absl::Seconds(60)},
          "time for a request's headers and body to arrive, 1s to 1h. Set it higher for large "
          "bodies over slow networks");
ABSL_FLAG(tlm::cli::TimeSpan, drain_timeout, tlm::cli::TimeSpan{absl::Seconds(30)},
          "time for running requests to finish after SIGTERM. Set it to the length of the longest "
          "streams");

namespace tlm::openai {
namespace {

absl::Status CheckRange(std::string_view flag, int64_t value, int64_t lowest, int64_t highest) {
  if (value >= lowest && value <= highest) return absl::OkStatus();
  return InvalidArgument("--{} is {}, the range is [{}, {}]", flag, value, lowest, highest);
}

absl::StatusOr<absl::Duration> ReadTimeout(std::string_view flag, absl::Duration value) {
  if (value >= absl::Seconds(1) && value <= absl::Hours(1)) return value;
  return InvalidArgument("--{} is {}, the range is [1s, 1h]", flag, absl::FormatDuration(value));
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.is_open() && !file.bad() && !text.empty()) return text;
  return NotFound("{}: cannot be read, or is empty", path);
}

absl::Status ReadTls(HttpOptions* http) {
  const std::string certificate = absl::GetFlag(FLAGS_tls_cert);
  const std::string key = absl::GetFlag(FLAGS_tls_key);
  if (certificate.empty() != key.empty()) {
    return InvalidArgument("--tls_cert and --tls_key are given together: --tls_{} is missing",
                           key.empty() ? "key" : "cert");
  }
  const bool reachable = !IsLoopback(http->host);
  if (reachable && certificate.empty() && !absl::GetFlag(FLAGS_insecure)) {
    return InvalidArgument(
        "--host is {}, not a loopback address: give --tls_cert and --tls_key, or --insecure to "
        "serve it unencrypted",
        http->host);
  }
  if (certificate.empty()) return absl::OkStatus();
  client::ClientOptions pair;
  pair.client_certificate_file = certificate;
  pair.client_key_file = key;
  TLM_RETURN_IF_ERROR(cli::CheckTlsFiles(pair));
  TLM_ASSIGN_OR_RETURN(http->certificate, ReadPem(certificate));
  TLM_ASSIGN_OR_RETURN(http->key, ReadPem(key));
  return absl::OkStatus();
}

absl::Status ReadHttp(HttpOptions* http) {
  http->host = absl::GetFlag(FLAGS_host);
  http->port = absl::GetFlag(FLAGS_port);
  if (http->host.empty()) return InvalidArgument("--host is empty");
  TLM_RETURN_IF_ERROR(CheckRange("port", http->port, 0, 65535));
  const int64_t body = absl::GetFlag(FLAGS_max_body_bytes);
  TLM_RETURN_IF_ERROR(CheckRange("max_body_bytes", body, 1024, int64_t{1} << 28));
  http->max_body_bytes = static_cast<size_t>(body);
  // Bodies that arrive or wait, of all requests together.
  http->max_bodies_bytes = std::max(http->max_body_bytes * 32, size_t{256} << 20);
  const int connections = absl::GetFlag(FLAGS_max_connections);
  TLM_RETURN_IF_ERROR(CheckRange("max_connections", connections, 1, 1 << 20));
  http->max_connections = static_cast<unsigned>(connections);
  TLM_ASSIGN_OR_RETURN(http->idle_timeout,
                       ReadTimeout("idle_timeout", absl::GetFlag(FLAGS_idle_timeout).duration));
  TLM_ASSIGN_OR_RETURN(
      http->request_timeout,
      ReadTimeout("request_timeout", absl::GetFlag(FLAGS_request_timeout).duration));
  return ReadTls(http);
}

absl::Status ReadFront(FrontOptions* front) {
  const int prompts = absl::GetFlag(FLAGS_max_prompts);
  const int calls = absl::GetFlag(FLAGS_max_calls);
  const int queued = absl::GetFlag(FLAGS_max_queued_calls);
  TLM_RETURN_IF_ERROR(CheckRange("max_prompts", prompts, 1, 4096));
  TLM_RETURN_IF_ERROR(CheckRange("max_calls", calls, 1, 16384));
  TLM_RETURN_IF_ERROR(CheckRange("max_queued_calls", queued, 0, 1 << 20));
  front->mapping.ignore_unknown_fields = absl::GetFlag(FLAGS_ignore_unknown_fields);
  front->mapping.max_prompts = static_cast<size_t>(prompts);
  front->max_calls = static_cast<size_t>(calls);
  front->max_queued_calls = static_cast<size_t>(queued);
  front->timeout = cli::TimeoutFromFlags();
  front->allow_plaintext_keys = absl::GetFlag(FLAGS_allow_plaintext_api_keys);
  return absl::OkStatus();
}

struct ModelTargets {
  std::string name;  // empty: the servers' own
  std::vector<std::string> targets;
};

absl::StatusOr<std::vector<ModelTargets>> ReadModels() {
  const std::vector<std::string> given = absl::GetFlag(FLAGS_model).values;
  if (given.empty()) return std::vector<ModelTargets>{{"", cli::TargetsFromFlags()}};
  std::vector<ModelTargets> models;
  std::set<std::string> names;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || equals + 1 == text.size()) {
      return InvalidArgument("--model is {}, it must be NAME=TARGETS", Quoted(text));
    }
    ModelTargets model{text.substr(0, equals), cli::SplitTargets(text.substr(equals + 1))};
    if (!names.insert(model.name).second) {
      return InvalidArgument("--model names {} twice", Quoted(model.name));
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace

const cli::Command& Program() {
  static const cli::Command& program = *new cli::Command{
      .name = "tlm-openai",
      .summary = "serves OpenAI's HTTP API in front of tlm servers",
      .details =
          "Requests of /v1/chat/completions, /v1/completions, /v1/responses and /v1/models go to "
          "the replicas of "
          "--target, or to those of --model by their model. A stream continues on another replica "
          "when its own dies. SIGTERM or SIGINT finishes what runs and ends the program with "
          "status 0; a second one ends it at once.",
      .flags =
          "host port port_file model balance tls_cert tls_key insecure "
          "allow_plaintext_api_keys ignore_unknown_fields max_body_bytes max_prompts "
          "max_connections max_calls max_queued_calls idle_timeout request_timeout "
          "drain_timeout",
      .connects = true,
      .run = nullptr,
      .help_line = "tlm-openai --help"};
  return program;
}

absl::StatusOr<Options> ReadOptions(cli::Console*) {
  Options options;
  TLM_RETURN_IF_ERROR(ReadHttp(&options.http));
  TLM_RETURN_IF_ERROR(ReadFront(&options.front));
  options.port_file = absl::GetFlag(FLAGS_port_file);
  options.drain_timeout = std::min(absl::GetFlag(FLAGS_drain_timeout).duration, absl::Hours(24));
  return options;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> ConnectBackends(cli::Console* console,
                                                                      FrontOptions* front) {
  TLM_ASSIGN_OR_RETURN(client::ClientOptions options, cli::ClientOptionsFromFlags(console));
  const std::string balance = absl::GetFlag(FLAGS_balance);
  const auto known = client::BalanceFromName(balance);
  if (!known) {
    return InvalidArgument("--balance is {}, it may be prefix_affinity or round_robin",
                           Quoted(balance));
  }
  options.balance = *known;
  options.allow_plaintext_api_key = front->allow_plaintext_keys;
  TLM_ASSIGN_OR_RETURN(const std::vector<ModelTargets> models, ReadModels());
  std::vector<std::unique_ptr<Backend>> backends;
  client::ClientOptions without_key = options;
  without_key.api_key.clear();
  for (const ModelTargets& model : models) {
    // The first client only checks that the program's own key may travel; calls have a key each.
    const auto checked = client::Client::Connect(model.targets, options);
    if (!checked.ok()) return checked.status();
    TLM_ASSIGN_OR_RETURN(backends.emplace_back(),
                         Backend::Connect(model.name, model.targets, without_key));
  }
  front->own_key = options.api_key;
  front->encrypted = cli::TlsFromFlags();
  return backends;
}

std::string HelpText() {
  std::ostringstream out;
  out << fmt::format("tlm-openai [FLAGS]\n\n{}.\n{}\n", Program().summary, Program().details);
  const auto print = [&out](const char* title, std::string_view flags) {
    const std::vector<std::string_view> names = cli::FlagNames(flags);
    cli::Table table({cli::Align::kLeft, cli::Align::kLeft});
    for (const cli::FlagText& flag : cli::DescribeFlags(Program(), names)) {
      const std::string value =
          flag.default_value.empty() ? "" : fmt::format(" [{}]", flag.default_value);
      table.AddRow({"--" + flag.name, flag.help + value});
    }
    out << title;
    table.Print(out, 2);
  };
  print("\nFlags:\n", Program().flags);
  print("\nConnection to the servers:\n", cli::kConnectionFlags);
  out << "\n--helpman prints the manual page, --version the version.\n";
  return out.str();
}

std::string ManualPage() {
  ManPage page({"tlm-openai", 8, ManPageDate(), "tlm " TLM_VERSION});
  page.Section("NAME");
  page.Text(fmt::format("tlm-openai - {}", Program().summary));
  page.Section("SYNOPSIS");
  page.Synopsis("tlm-openai", "[FLAGS]");
  page.Section("DESCRIPTION");
  page.Text(Program().details);
  const auto add = [&page](const char* title, std::string_view flags) {
    const std::vector<std::string_view> names = cli::FlagNames(flags);
    page.Section(title);
    for (const cli::FlagText& flag : cli::DescribeFlags(Program(), names)) {
      const std::string value =
          flag.default_value.empty() ? "" : fmt::format(" Default: {}.", flag.default_value);
      page.Item("--" + flag.name, flag.is_switch ? "" : "VALUE", flag.help + '.' + value);
    }
  };
  add("FLAGS", Program().flags);
  add("CONNECTION FLAGS", cli::kConnectionFlags);
  page.Section("EXIT STATUS");
  page.Text("0 success; 1 the program could not start; 2 wrong usage.");
  page.Section("ENVIRONMENT");
  page.Item("TLM_API_KEY", "",
            "the key for callers that send none, where --api_key_file is not given.");
  page.Section("SEE ALSO");
  page.Text("tlm-server(8), tlm(1)");
  return page.text();
}

}  // namespace tlm::openai
