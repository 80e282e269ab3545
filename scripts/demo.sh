#!/usr/bin/env bash
# Runs an ordinary OpenCL program on a photograph natively, through Baltra, and as four concurrent copies; then
# calls functions on the same device over HTTP. Leaves the pictures in target/demo and no running program.
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/demo
baltra=$PWD/target/quick/baltra
mkdir -p "$out"

step() { printf '\n\033[1m%s\033[0m\n' "$*" | if [[ -t 1 ]]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

step "Building Baltra and the example applications (some minutes the first time)"
cargo build --profile quick --locked -p baltra-cli -p baltra-icd --no-default-features
make -s -C apps sobel
make -s -C apps/functions
scripts/photo.sh

# Uses its own directories, so that a running daemon is not disturbed.
run=$(mktemp -d "${TMPDIR:-/tmp}/baltra-demo.XXXXXX")
export BALTRA_RUNTIME_DIR=$run/run
finish() {
    "$baltra" down --drain-ms 0 >/dev/null 2>&1 || true
    rm -rf "$run"
}
trap finish EXIT
trap 'exit 130' INT TERM

step "Starting Baltra on this host"
"$baltra" up --state-dir "$run/state" --set metrics.address=off --set registry.address=auto \
    --set registry.metrics= --set gateway.address=auto --set gateway.grpc_address=
"$baltra" devices
for tenant in ada bea cleo dora; do "$baltra" tenant add $tenant >/dev/null; done

sobel="target/apps/sobel --input $out/photo.ppm --repeat 40 --json"
step "The same program, alternately native and through Baltra"
for round in 1 2 3; do
    $sobel --output "$out/native.png" >"$run/native.$round.json"
    "$baltra" run --tenant ada -- $sobel --output "$out/baltra.png" >"$run/baltra.$round.json"
done
cmp "$out/native.png" "$out/baltra.png"
echo "the two pictures are identical, byte for byte"

step "Four copies at once, each a tenant of its own"
"$baltra" tenant usage --json >"$run/before.json"
began=$(date +%s.%N)
pids=()
for tenant in ada bea cleo dora; do
    "$baltra" run --tenant $tenant -- $sobel --output "$run/$tenant.png" >"$run/$tenant.json" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
ended=$(date +%s.%N)
for tenant in ada bea cleo dora; do cmp "$out/native.png" "$run/$tenant.png"; done
echo "all four pictures equal the native one"
# The manager updates its usage accounts every second.
sleep 1.2
"$baltra" tenant usage --json >"$run/after.json"

python3 scripts/demo_table.py "$run" "$began" "$ended"
step "The picture: $out/baltra.png (from $out/photo.ppm)"

step "Functions called with curl"
"$baltra" function deploy target/functions
url=$("$baltra" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["daemons"]["gateway"]["url"])')
call() { curl --silent --show-error --fail "$@"; }
for round in first second; do
    seconds=$(call --data-binary "@$out/photo.png" -o "$out/edges.png" -w '%{time_total}' "$url/function/sobel")
    echo "sobel, $round call: $seconds s"
done
digest=$(call --data-binary "@$out/photo.png" "$url/function/sha256" | od -An -v -tx1 | tr -d ' \n')
[[ $digest == "$(sha256sum <"$out/photo.png" | cut -d' ' -f1)" ]]
echo "sha256: equals the result of sha256sum"
call --data-binary "@$out/photo.ppm" "$url/function/compress" >"$run/photo.ppm.gz"
gunzip -c "$run/photo.ppm.gz" | cmp - "$out/photo.ppm"
echo "compress: gunzip restores the photograph, $(stat -c %s "$run/photo.ppm.gz") of $(stat -c %s "$out/photo.ppm") bytes"
"$baltra" function list
step "The picture: $out/edges.png (from $out/photo.png)"
