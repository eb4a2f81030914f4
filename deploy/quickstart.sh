#!/usr/bin/env bash
# Installs missing packages, builds, starts the server on loopback with the bundled model, describes
# the model, and streams a passage. With --openai: serves the OpenAI HTTP API by tlm-openai before
# two replicas, until Ctrl-C.
#
#   deploy/quickstart.sh                            stops the server at the end
#   deploy/quickstart.sh --keep                     leaves it running
#   deploy/quickstart.sh --openai [--port=N]        on port N; 8080 if not given
#   deploy/quickstart.sh ... --model=DIR            a model of your own: a directory or a GGUF file
#
# With TLM_BIN_DIR in the environment it takes the programs there: it installs and builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
say() {
  if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}
fail() { echo "quickstart: $*" >&2; exit 1; }

mode=passage
port=8080
model=model/demo
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) mode=keep ;;
    --openai) mode=openai ;;
    --port=*) port=${1#*=} ;;
    --model=*) model=${1#*=} ;;
    *) usage ;;
  esac
  shift
done
case "$port" in *[!0-9]*|'') fail "--port=$port is not a number" ;; esac
{ [ "$port" -ge 1 ] && [ "$port" -le 65535 ]; } || fail "--port=$port: from 1 to 65535"
[ -f "$model/config.json" ] || [ -f "$model/model_config.json" ] || [ -f "$model" ] ||
  fail "$model: neither a GGUF file nor a directory with config.json or model_config.json"

# Before anything is built.
check_port() {
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    fail "port $port is in use: --port=N takes another one"
  fi
}
[ "$mode" != openai ] || check_port

say "1/5 packages"
kind=build
[ "$mode" != openai ] || kind=openai
[ -n "${TLM_BIN_DIR:-}" ] || deploy/install_packages.sh "$kind"
say "2/5 build (the first time about 5 minutes on four cores)"
# The CUDA module takes minutes to compile, and needs a GPU.
cuda=OFF
[ ! -e /dev/nvidiactl ] || cuda=AUTO
[ -n "${TLM_BIN_DIR:-}" ] || TLM_CMAKE_OPTIONS="-DTLM_TESTS=OFF -DTLM_CUDA=$cuda" deploy/build.sh release
bin=${TLM_BIN_DIR:-build/release/bin}

run_dir=$(mktemp -d)
processes=()
stop() {
  local process
  for process in "${processes[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
  for _ in $(seq 50); do
    kill -0 "${processes[@]}" 2>/dev/null || break  # true while one is there
    sleep 0.1
  done
  for process in "${processes[@]}"; do
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf "$run_dir"
}
trap stop EXIT
trap 'exit 130' INT TERM

# Starts a server, as the last of `processes`; its address is then in `target`.
start_server() {
  local number=${#processes[@]}
  local port_file=$run_dir/port.$number log=$run_dir/server.$number.log
  "$bin/tlm-server" --model="$model" --port=0 --port_file="$port_file" --withdrawal_grace=0s >"$log" 2>&1 &
  processes+=($!)
  # The port file appears when the server serves.
  for _ in $(seq 3000); do
    [ -s "$port_file" ] && break
    kill -0 "${processes[-1]}" 2>/dev/null || { cat "$log" >&2; fail "the server did not start"; }
    sleep 0.1
  done
  [ -s "$port_file" ] || { cat "$log" >&2; fail "no port after 300 s"; }
  target=127.0.0.1:$(cat "$port_file")
  "$bin/tlm" health --target="$target" --wait=30
}

# The OpenAI API on `port`, before two replicas, until a signal.
serve_openai() {
  local log=$run_dir/tlm-openai.log url=http://127.0.0.1:$port name replicas=()
  say "3/5 two replicas"
  for _ in 1 2; do
    start_server
    replicas+=("$target")
  done

  say "4/5 tlm-openai before them"
  check_port
  "$bin/tlm-openai" --port="$port" --port_file="$run_dir/port.openai" \
    --target="$(IFS=,; echo "${replicas[*]}")" >"$log" 2>&1 &
  processes=($! "${processes[@]}")  # ends first
  for _ in $(seq 600); do
    [ -s "$run_dir/port.openai" ] && break
    kill -0 "${processes[0]}" 2>/dev/null || { cat "$log" >&2; fail "tlm-openai ended"; }
    sleep 0.1
  done
  name=$(curl -s "$url/v1/models" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
  [ -n "$name" ] || { cat "$log" >&2; fail "tlm-openai names no model"; }

  say "5/5 a chat completion"
  local body="{\"model\": \"$name\", \"messages\": [{\"role\": \"user\", \"content\": \"Good evening, Prince.\"}], \"max_tokens\": 60}"
  printf "curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\\\n  -d '%s'\n" "$url" "$body"
  curl -sS --fail-with-body "$url/v1/chat/completions" -H 'Content-Type: application/json' -d "$body" ||
    fail "the chat completion failed"
  echo

  say "next"
  cat <<TXT
The OpenAI API is at $url/v1 (model $name, any API key) until Ctrl-C. In another terminal:
  python3 -m venv /tmp/openai && /tmp/openai/bin/pip install openai
  OPENAI_BASE_URL=$url/v1 OPENAI_API_KEY=none /tmp/openai/bin/python -c 'import openai; print(
    openai.OpenAI().chat.completions.create(model="$name", max_tokens=60, messages=[
    {"role": "user", "content": "Good evening, Prince."}]).choices[0].message.content)'
or a chat UI: Open WebUI with OPENAI_API_BASE_URL=$url/v1 and OPENAI_API_KEY=none.
Replicas: ${replicas[*]}; logs: $run_dir; more: client/openai/README.md.
TXT
  wait -n "${processes[@]}" || true
  tail -n 5 "$run_dir"/*.log >&2
  fail "a process ended by itself"
}

[ "$mode" != openai ] || serve_openai

say "3/5 server"
start_server

say "4/5 what it serves"
"$bin/tlm" info --target="$target"

say "5/5 a passage, as it is generated"
prompt='"Well, Prince," said Anna Pavlovna'
printf '%s' "$prompt"
"$bin/tlm" generate "$prompt" --target="$target" --max_new_tokens=200 --temperature=0.8 --top_p=0.95 --seed=7
echo

say "next"
if [ "$mode" = keep ]; then
  trap - EXIT
  disown "${processes[0]}"
  cat <<TXT
The server runs as process ${processes[0]} on $target; its log is $run_dir/server.0.log. Stop it with: kill ${processes[0]}
  $bin/tlm generate 'In the evening' --target=$target
TXT
else
  cat <<TXT
Start it for good and talk to it:
  $bin/tlm-server --model=$model &
  $bin/tlm generate 'In the evening'
  $bin/tlm help
Serve another model: --model=DIR with config.json, *.safetensors and tokenizer.json, or --model=FILE.gguf. To download one:
  python3 -m venv build/hf && build/hf/bin/pip install huggingface_hub
  build/hf/bin/hf download Qwen/Qwen3-0.6B --local-dir build/qwen3-0.6b
For OpenAI clients: deploy/quickstart.sh --openai
TXT
fi
