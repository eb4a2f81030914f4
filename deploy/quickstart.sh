#!/usr/bin/env bash
# Installs missing packages, builds, starts the server on loopback with the bundled model, describes
# the model, and streams a passage.
#
#   deploy/quickstart.sh          stops the server at the end
#   deploy/quickstart.sh --keep   leaves it running
set -euo pipefail
cd "$(dirname "$0")/.."

keep=false
case "${1:-}" in
  "") ;;
  --keep) keep=true ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

say() {
  if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}

say "1/5 packages"
deploy/install_packages.sh build
say "2/5 build (the first time about 3 minutes on four cores)"
TLM_CMAKE_OPTIONS=-DTLM_TESTS=OFF deploy/build.sh release
bin=build/release/bin

say "3/5 server"
run_dir=$(mktemp -d)
port_file=$run_dir/port
log=$run_dir/server.log
"$bin/tlm-server" --model=model/demo --port=0 --port_file="$port_file" --withdrawal_grace=0s >"$log" 2>&1 &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -rf "$run_dir"
}
trap stop EXIT

# The port file appears when the server serves.
for _ in $(seq 300); do
  [ -s "$port_file" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; echo "quickstart: the server did not start" >&2; exit 1; }
  sleep 0.1
done
[ -s "$port_file" ] || { cat "$log" >&2; echo "quickstart: no port after 30 s" >&2; exit 1; }
target=127.0.0.1:$(cat "$port_file")
"$bin/tlm" health --target="$target" --wait=30

say "4/5 what it serves"
"$bin/tlm" info --target="$target"

say "5/5 a passage, as it is generated"
prompt='"Well, Prince," said Anna Pavlovna'
printf '%s' "$prompt"
"$bin/tlm" generate "$prompt" --target="$target" --max_new_tokens=200 --temperature=0.8 --top_p=0.95 --seed=7
echo

say "next"
if $keep; then
  trap - EXIT
  disown "$server"
  cat <<TXT
The server runs as process $server on $target; its log is $log. Stop it with: kill $server
  $bin/tlm generate 'In the evening' --target=$target
TXT
else
  cat <<TXT
Start it for good and talk to it:
  $bin/tlm-server --model=model/demo &
  $bin/tlm generate 'In the evening'
  $bin/tlm help
Serve a model of your own: --model=DIR with config.json and model.safetensors.
TXT
fi
