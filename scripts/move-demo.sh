#!/usr/bin/env bash
# Moves a running, unmodified OpenCL program from a processor into a circuit, on to a board, and back: apps/life, whose
# kernel is compiled to hardware while the program continues. Prints a table; leaves no running program.
#   BALTRA=PATH    the command line to use (default: target/release/baltra, which is built)
set -euo pipefail
cd "$(dirname "$0")/.."
baltra=${BALTRA:-$PWD/target/release/baltra}
stay_s=${STAY_S:-5}
. scripts/demo-node.sh

step "Building Baltra, the program and the board's model (some minutes the first time)"
[[ -n ${BALTRA:-} ]] || cargo build --release --locked
make -s -C apps life
make -s -C hdl/board

start_node

step "The Game of Life starts on the processor; each generation is compared with the host's"
"$baltra" run --device cpu -- target/apps/life --size 48x32 --generations 0 --read-every 1 --check \
    >"$run/life.log" 2>&1 &
program=$!
generation() { sed -n 's/^generation \([0-9]*\),.*/\1/p' "$run/life.log" | tail -n 1; }
continues() { kill -0 "$program" 2>/dev/null || { cat "$run/life.log" >&2; exit 1; }; }
until [[ -n $(generation) ]]; do continues; sleep 0.2; done
session=$("$baltra" session ls --json | sed -n 's/.*"id": *\([0-9]*\).*/\1/p')

: >"$run/moves"
for to in fpga board fpga cpu; do
    sleep "$stay_s"
    continues
    printf 'moving to %s …\n' "$to"
    # The circuit has other facts (name, limits) than the processor, which the program does not use.
    "$baltra" session move "$session" --to "$to" --force --json | tr -d '\n' >>"$run/moves"
    printf '\t%s\n' "$(generation)" >>"$run/moves"
done
sleep "$stay_s"
continues
generation >"$run/last"

python3 - "$run" <<'PYTHON'
import json
import sys
from pathlib import Path

run = Path(sys.argv[1])
print(f"\n{'move':16}{'program stopped':>16}{'in all':>10}{'bytes':>9}{'bytes while stopped':>21}{'at generation':>15}")
for line in (run / "moves").read_text().splitlines():
    answer, generation = line.split("\t")
    move = json.loads(answer)
    name = f"{move['from']} → {move['to']}"
    print(
        f"{name:16}{move['stopped_us'] / 1e3:>13.1f} ms{move['took_us'] / 1e6:>8.2f} s{move['bytes']:>9}"
        f"{move['stopped_bytes']:>21}{generation:>15}"
    )
print(f"\nThe program is at generation {(run / 'last').read_text().strip()}, and every one of them was right.")
print("A move into a circuit includes its compilation, during which the program continues.")
PYTHON
