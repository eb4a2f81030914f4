#!/usr/bin/env bash
# Installs the distribution packages that tlm needs, if any is missing.
#
#   deploy/install_packages.sh build       to compile the server and the client
#   deploy/install_packages.sh openai      build, and what tries the OpenAI API
#   deploy/install_packages.sh test        build, and the packages of the tests
#   deploy/install_packages.sh packages    build, and what makes packages of it
#   deploy/install_packages.sh languages   test, and the examples in Go, Java and JavaScript
#   deploy/install_packages.sh image       to build and test the container images
#   deploy/install_packages.sh image-build inside the image's build: build, and staging
#
# Debian 12 or newer, Ubuntu 24.04 or newer. Needs root or sudo only when something is missing.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config
  libgrpc++-dev protobuf-compiler-grpc   # the RPC layer
  libprotobuf-dev protobuf-compiler      # the wire contract
  libabsl-dev                            # statuses, time, flags
  libssl-dev                             # TLS, SHA-256
  nlohmann-json3-dev                     # config.json, tokenizer.json, safetensors headers
  libspdlog-dev libfmt-dev               # log and messages
  prometheus-cpp-dev libcivetweb-dev     # metrics, and their port
  libpcre2-dev                           # the tokenizers' patterns
  libutf8proc-dev                        # Unicode normalisation
  libsystemd-dev                         # readiness and watchdog for the service manager
  libzip-dev                             # tokenizer files for gateways
  libzmq3-dev cppzmq-dev                 # KV events for routers
  libmicrohttpd-dev                      # the HTTP of tlm-openai
)
package_packages=(
  dpkg-dev file                          # .deb files with their dependencies
  python3-pip python3-setuptools python3-wheel python3-protobuf   # the Python client's wheel
)
test_packages=(
  libgtest-dev libgmock-dev
  ccache                                 # compiles what did not change only once
  libbenchmark-dev gnuplot-nox           # benchmarks and their plots
  python3 python3-grpcio python3-protobuf
  ruby-grpc                              # the example in Ruby
  clang-format clang-tidy shellcheck     # lint
  python3-venv                           # tests with packages from PyPI
  python3-zmq python3-msgpack            # a subscriber to KV events
  prometheus                             # scrapes the server, checks the alerts
  nginx-light haproxy                    # balancers before replicas
  faketime                               # a clock that is set while the server runs
  zsh fish mandoc man-db groff           # completions and manual pages
  debootstrap                            # a bare system for the packages
  curl iproute2                          # the README's commands
  python3-numpy openssl                  # the Python client's tests
)

image_packages=(
  buildah crun debootstrap               # the images, and a base for them
  binutils openssl
  python3 util-linux
)
image_build_packages=("${build_packages[@]}" binutils python3)

# About 1 GB, mostly the compilers of Go and Java.
language_packages=(
  golang-go golang-google-grpc-dev golang-google-protobuf-dev
  golang-github-golang-protobuf-1-5-dev protoc-gen-go protoc-gen-go-grpc
  default-jdk-headless libgrpc-java libprotobuf-java protobuf-compiler-grpc-java-plugin
  libguava-java libnetty-java libnetty-tcnative-java libperfmark-java
  libgeronimo-annotation-1.3-spec-java
  nodejs
)

# Emulators of other processors, for their kernels.
if [ "$(uname -m)" = x86_64 ]; then test_packages+=(qemu-user g++-aarch64-linux-gnu); fi

case "${1:-}" in
  build) packages=("${build_packages[@]}") ;;
  openai) packages=("${build_packages[@]}" curl) ;;
  packages) packages=("${build_packages[@]}" "${package_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${package_packages[@]}" "${test_packages[@]}") ;;
  languages)
    packages=("${build_packages[@]}" "${package_packages[@]}" "${test_packages[@]}"
              "${language_packages[@]}") ;;
  image) packages=("${image_packages[@]}") ;;
  image-build) packages=("${image_build_packages[@]}") ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages: ${missing[*]}: missing, and neither root nor sudo is at hand" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -qq &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
         apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "install_packages: apt-get failed" >&2
  exit 1
fi
# The distribution starts installed services; the tests start their own.
services=()
for package in nginx-light haproxy prometheus; do
  case " ${missing[*]} " in *" $package "*) services+=("${package%-light}") ;; esac
done
if [ "${#services[@]}" -gt 0 ] && [ -d /run/systemd/system ]; then
  echo "now running as services, for which tlm has no use: systemctl disable --now ${services[*]}"
fi
