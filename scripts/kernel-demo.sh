#!/usr/bin/env bash
# Takes one kernel, apps/sobel/sobel.cl, through every door: an unmodified OpenCL program on PoCL, on an NVIDIA GPU, on
# an emulated accelerator and on the board's live model, for which the kernel is compiled to hardware; the same program
# in a VM; the gateway; and the board's own HTTP. Compares the pictures and prints a table. Doors that this machine
# lacks are left out, with the reason. Leaves the pictures in target/demo and no running program.
#   BALTRA=PATH    the command line to use (default: target/release/baltra, which is built)
#   SIZE=WxH       the size of the picture (default: 320x240)
#   TARGET=ecp5-85f  also place the kernel for this chip, which takes a minute, and print its area and clock
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
"$baltra" accelerator build apps/sobel/sobel.cl -o "$out/sobel.img" ${TARGET:+--target "$TARGET"}
"$baltra" accelerator report "$out/sobel.img"
"$baltra" accelerator report "$out/sobel.img" --json >"$out/report.json"

start_node

step "The same program on all, $size; on accelerator and board its source is compiled by clBuildProgram"
sobel="--size $size --profile --json"
target/apps/sobel $sobel --output "$out/native.ppm" >"$run/native.json"
for device in cpu fpga board; do
    "$baltra" run --device $device -- target/apps/sobel $sobel --output "$out/$device.ppm" >"$run/$device.json"
done
if [[ -e /etc/OpenCL/vendors/nvidia.icd ]]; then
    target/apps/sobel --device NVIDIA $sobel --output "$out/gpu.ppm" >"$run/gpu.json"
else
    echo "this machine has none" >"$run/gpu.missing"
fi

step "The same program in a VM, on the board"
if ! command -v qemu-system-x86_64 >/dev/null || [[ ! -s target/vm/initramfs ]]; then
    echo "'scripts/setup.sh vm && scripts/guest.sh' makes the guest" >"$run/vm.missing"
    cat "$run/vm.missing"
else
    mkdir "$run/none"
    "$baltra" vfun --functions "$run/none" --state-dir "$run/vms" --endpoint "unix:$run/run/baltra.sock" \
        >"$run/vfun.log" 2>&1 &
    program=$!
    until "$baltra" vm ls >/dev/null 2>&1; do
        kill -0 "$program" || { cat "$run/vfun.log" >&2; exit 1; }
        sleep 0.1
    done
    "$baltra" vm attach demo --opencl --memory 64M --parts 4 --json >"$run/vm"
    python3 scripts/kernel_demo_guest.py "$run" "$sobel"
    kill "$program" && wait "$program" || true
    program=''
fi

# Both take the picture that the program draws, in four bytes per pixel.
python3 -c '
import sys
width, height = map(int, sys.argv[1:])
for y in range(height):
    for x in range(width):
        blue = 200 if (x // 16 ^ y // 16) & 1 else 40
        sys.stdout.buffer.write(bytes((x * 255 // width, y * 255 // height, blue, 255)))
' "$width" "$height" >"$run/picture.rgba"
call() { curl -sSf --data-binary "@$run/picture.rgba" "$1?width=$width&height=$height" "${@:2}"; }

step "The same kernel behind the gateway, on the emulated accelerator"
"$baltra" accelerator push "$out/sobel.img" --name edges --kernels sobel --target "Baltra*"
mkdir "$run/edges"
cat >"$run/edges/function.yaml" <<'YAML'
name: edges
inputs: [{name: picture, type: u8, shape: [height, width, 4], codecs: [raw]}]
outputs: [{name: edges, type: u8, shape: [height, width, 4], codecs: [raw]}]
implementations:
  - opencl:
      accelerator: edges
      kernel: sobel
      device: {name: fpga}
      args: [picture, edges, i32(width), i32(height)]
      global: [width, height]
YAML
"$baltra" function deploy "$run/edges"
gateway=$("$baltra" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["daemons"]["gateway"]["url"])')
call "$gateway/function/edges" -D "$run/gateway.head" -o "$run/gateway.rgba"

step "The same kernel over the board's own HTTP, without a program on the host"
url=http://127.0.0.1:$(sed -n 's/.* on port \([0-9]*\).*/\1/p' "$run/board.log")
busy() { curl -sSf "$url/metrics" | awk '/^[^#].*kernel_busy_cycles_total / {print $2}'; }
"$baltra" function push "edges=$out/sobel.img" --board "$run/board.sock" --kernel sobel --scalars width,height \
    --args body,answer,width,height --global width,height --answer body
before=$(busy)
call "$url/function/edges" -o "$run/http.rgba"
echo $((10#$(busy) - 10#$before)) >"$run/http.cycles"

python3 scripts/kernel_demo_table.py "$run" "$out" "$width" "$height"
