#!/usr/bin/env bash
# Packs everything tests/gpu/run.sh needs into a folder that runs on a machine with a GPU and its
# driver, the CUDA libraries and Python, whatever else is installed there.
#
#   tests/gpu/bundle.sh [--build DIR] [--out DIR]
#
# --build  a build with -DTLM_CUDA=ON; default build/release
# --out    is replaced, and packed as OUT.tar.xz; default build/gpu-bundle. Fails when the packed
#          one exceeds 40 MiB: with a checkout it must travel as 64 MiB.
#
# There: OUT/run.sh [--out RESULTS] [--python PYTHON]
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release out=build/gpu-bundle
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    *) sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
  esac
done
limit_bytes=$((40 << 20))

programs=(bin/tlm-server bin/tlm bin/libtlm_cuda.so
          tests/ceilings tests/microbench tests/mma_canon tests/cuda_kernels_test
          tests/unit_model_ops_{ops,row_ops,attention,batch}_test
          tests/golden_determinism_cuda_test
          benchmarks/ops_bench benchmarks/engine_bench benchmarks/serve_bench benchmarks/weights_loss)
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/tests/"{peers,support,benchmarks} "$out/model"
for program in "${programs[@]}"; do
  [ -e "$build/$program" ] || { echo "bundle.sh: $build/$program is not built" >&2; exit 1; }
  strip -o "$out/bin/$(basename "$program")" "$build/$program"
  # DT_RPATH: libraries that libraries need are found there, too (tests/gpu/CMakeLists.txt). CMake
  # pads it with empty entries, which stand for the working directory.
  readelf -d "$build/$program" | grep '(RPATH).*\[$ORIGIN/\.\./lib[]:]' >/dev/null ||
    { echo "bundle.sh: $build/$program does not look for libraries in ../lib" >&2; exit 1; }
  printf 'file(RPATH_SET FILE "%s" NEW_RPATH "$ORIGIN/../lib")\n' \
    "$(cd "$out/bin" && pwd)/$(basename "$program")" >>"$out/rpath.cmake"
done
cmake -P "$out/rpath.cmake" >/dev/null
rm "$out/rpath.cmake"

# Libraries every system has in its own version, and CUDA's.
of_the_machine() {
  case "$1" in
    libc.so.*|libm.so.*|libpthread.so.*|libdl.so.*|librt.so.*|libresolv.so.*|ld-linux*) ;;
    libstdc++.so.*|libgcc_s.so.*) ;;  # older ones than this build's are refused at the start
    libcublas*|libcudart*|libcuda.so*) ;;
    *) return 1 ;;
  esac
}
# The paths of a program's shared libraries, and of theirs.
libraries_of() { env -u LD_LIBRARY_PATH ldd "$1" | awk '$3 ~ /^\// { print $3 }'; }

for program in "${programs[@]}"; do
  libraries_of "$build/$program"
done | sort -u | while read -r library; do
  name=$(basename "$library")
  of_the_machine "$name" || strip -o "$out/lib/$name" "$library"
done
# All the others come from the bundle, wherever it lies.
for program in "$out"/bin/*; do
  libraries_of "$program" | while read -r library; do
    [[ $library == "$(pwd)/$out/"* || $library == "$out/"* ]] ||
      of_the_machine "$(basename "$library")" ||
      { echo "bundle.sh: $program takes $library" >&2; exit 1; }
  done
done

cp -r tests/gpu "$out/tests/gpu"
cp -r tests/peers/parity "$out/tests/peers/parity"
cp tests/support/server_process.py "$out/tests/support/"
cp tests/benchmarks/random_checkpoint.py "$out/tests/benchmarks/"
cp -r model/demo "$out/model/demo"
find "$out" -name __pycache__ -prune -exec rm -rf {} +
cat >"$out/run.sh" <<'RUN'
#!/usr/bin/env bash
exec "$(dirname "$0")/tests/gpu/run.sh" --bin "$(dirname "$0")/bin" "$@"
RUN
chmod +x "$out/run.sh"
git rev-parse HEAD >"$out/revision" 2>/dev/null || true

bytes=$(du -sb "$out" | cut -f1)
# Several programs contain the same kernels: the dictionary reaches from the first to the last.
XZ_OPT=--lzma2=preset=6,dict=256MiB \
  tar -C "$(dirname "$out")" -cJf "$out.tar.xz" "$(basename "$out")"
echo "$out: $((bytes >> 10)) KiB, $(find "$out" -type f | wc -l) files;" \
  "$out.tar.xz: $(($(stat -c %s "$out.tar.xz") >> 10)) KiB"
# What travels is this and the files of a checkout.
tree_bytes=$(git ls-files -z 2>/dev/null | xargs -0 -r stat -c %s 2>/dev/null | awk '{ all += $1 } END { print all + 0 }')
together=$(($(stat -c %s "$out.tar.xz") + tree_bytes))
if [ "$together" -gt $((60 << 20)) ]; then
  echo "bundle.sh: with the checkout $((together >> 20)) MiB; it must stay below 64" >&2
fi
if [ "$(stat -c %s "$out.tar.xz")" -gt "$limit_bytes" ]; then
  echo "bundle.sh: packed, that is more than $((limit_bytes >> 20)) MiB" >&2
  exit 1
fi
