#!/usr/bin/env bash
# Runs one unmodified OpenCL program on PoCL, on an emulated accelerator and on the board's live model, for which its
# kernel is compiled to hardware, and calls the same kernel over the board's own HTTP; compares the pictures and prints a
# table. Leaves the pictures in target/demo and no running program.
#   BALTRA=PATH    the command line to use (default: target/release/baltra, which is built)
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/demo
baltra=${BALTRA:-$PWD/target/release/baltra}
size=${SIZE:-320x240}
width=${size%x*} height=${size#*x}
mkdir -p "$out"

. scripts/demo-node.sh

step "Building Baltra and the program (some minutes the first time)"
[[ -n ${BALTRA:-} ]] || cargo build --release --locked
make -s -C apps sobel
make -s -C hdl/board

step "Compiling apps/sobel/sobel.cl to hardware"
"$baltra" accelerator build apps/sobel/sobel.cl -o "$out/sobel.img"
"$baltra" accelerator report "$out/sobel.img"
"$baltra" accelerator report "$out/sobel.img" --json >"$out/report.json"

start_node

step "The same program on all, $size; on accelerator and board its source is compiled by clBuildProgram"
python3 - "$run" "$width" "$height" <<'PYTHON'
import sys
from pathlib import Path

run, width, height = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pixels = [(x * y & 255, (x ^ y) & 255, (3 * x + y) & 255) for y in range(height) for x in range(width)]
(run / "picture.ppm").write_bytes(b"P6 %d %d 255\n" % (width, height) + bytes(c for p in pixels for c in p))
(run / "picture.rgba").write_bytes(bytes(c for p in pixels for c in (*p, 255)))
PYTHON
sobel="target/apps/sobel --input $run/picture.ppm --profile --json"
$sobel --output "$out/native.ppm" >"$run/native.json"
for device in cpu fpga board; do
    "$baltra" run --device $device -- $sobel --output "$out/$device.ppm" >"$run/$device.json"
    cmp "$out/native.ppm" "$out/$device.ppm"
done

step "The same kernel over the board's own HTTP, without a program on the host"
url=http://127.0.0.1:$(sed -n 's/.* on port \([0-9]*\).*/\1/p' "$run/board.log")
busy() { curl -sSf "$url/metrics" | awk '/^[^#].*kernel_busy_cycles_total / {print $2}'; }
"$baltra" function push "edges=$out/sobel.img" --board "$run/board.sock" --kernel sobel --scalars width,height \
    --args body,answer,width,height --global width,height --answer body
before=$(busy)
curl -sSf --data-binary "@$run/picture.rgba" "$url/function/edges?width=$width&height=$height" >"$run/http.rgba"
echo $((10#$(busy) - 10#$before)) >"$run/http.cycles"

python3 - "$run" "$out/report.json" "$out/native.ppm" "$width" "$height" <<'PYTHON'
import json
import sys
from pathlib import Path

run, report = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
width, height = map(int, sys.argv[4:])
CLOCK_HZ = {"fpga": 100e6, "board": 156.25e6}
area = report["kernels"][0]["report"]
print(f"\n{'':24}{'bytes':>8}{'kernel':>12}{'cycles':>12}{'per pixel':>11}  estimated area")
names = {"native": "PoCL", "cpu": "PoCL, through Baltra", "fpga": "emulated accelerator", "board": "board"}
for name, label in names.items():
    result = json.loads((run / f"{name}.json").read_text())
    ms = result["kernel_ms"]["median"]
    line = f"{label:24}{'same':>8}{ms:>9.2f} ms"
    if name in CLOCK_HZ:
        cycles = ms / 1e3 * CLOCK_HZ[name]
        pixels = result["width"] * result["height"]
        line += f"{cycles:>12,.0f}{cycles / pixels:>11.2f}  "
        line += f"{area['luts']} LUT, {area['block_rams']} block RAMs, {area['multipliers']} multipliers"
    print(line)
answer, native = (run / "http.rgba").read_bytes(), Path(sys.argv[3]).read_bytes()
colors = bytes(c for i, c in enumerate(answer) if i % 4 != 3)
if native[-3 * width * height :] != colors:
    sys.exit("the board's own HTTP: the picture differs")
cycles = int((run / "http.cycles").read_text())
ms = cycles / CLOCK_HZ["board"] * 1e3
print(f"{'board, its own HTTP':24}{'same':>8}{ms:>9.2f} ms{cycles:>12,.0f}{cycles / (width * height):>11.2f}  with the copies of both pictures")
print("\nThe times of accelerator and board are those of their cycles at 100 and 156.25 MHz, not those of the models.")
PYTHON
