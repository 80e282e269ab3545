#!/usr/bin/env bash
# Demonstrates the message door: the paper's example over shared memory, over TCP, on two nodes, half on a board and on
# two boards, over raw Ethernet and TCP, by changes of the map file; 96 kernels on six boards; then a heat equation on
# one rank and on several. Leaves target/demo/heat.png and no running program.
#   scripts/cluster-demo.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")/.."
baltra=${BALTRA:-$PWD/target/release/baltra}
out=target/demo
mkdir -p "$out"
side=1600 steps=400
[[ ${1:-} != --quick ]] || { side=256; steps=50; }

step() { printf '\n\033[1m%s\033[0m\n' "$*" | if [[ -t 1 ]]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

[[ -x $baltra ]] || cargo build --release --locked --package baltra-cli
work=$(mktemp -d "${TMPDIR:-/tmp}/baltra-cluster.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fork=apps/messages/fork
heat=apps/messages/heat

step "The paper's example: $fork/fork.c on eight software ranks"
"$baltra" cluster check $fork/logical.xml $fork/map.xml
sed 's/shm/tcp/' $fork/map.xml >"$work/map-tcp.xml"
run() { "$baltra" cluster run --out target/cluster/fork --json "$work/$1.json" $fork/logical.xml "$2" >"$work/$1.out"; }
step "Over shared memory"
run shm $fork/map.xml
step "Over TCP: 'shm' is 'tcp' in the map file"
run tcp "$work/map-tcp.xml"
step "On two nodes: shared memory in each, TCP between them"
run nodes $fork/map-nodes.xml
cat "$work/shm.out"
for other in tcp nodes; do cmp "$work/shm.out" "$work/$other.out"; done
echo "all runs have the same results"
# Prints messages, bytes and time of each run. Arguments: NAME=TITLE of each report.
report() {
    python3 - "$work" "$@" <<'PY'
import json, sys
print(f"{'':40}{'messages':>10}{'bytes':>12}{'s':>9}")
for pair in sys.argv[2:]:
    name, text = pair.split("=")
    report = json.load(open(f"{sys.argv[1]}/{name}.json"))
    total = lambda what: sum(rank[what] for rank in report["ranks"])
    print(f"{text:40}{total('sent'):>10}{total('sent_bytes'):>12}{report['wall_s']:>9.3f}")
PY
}
report shm="shared memory" tcp=TCP nodes="two nodes"

step "Four ranks, in software, on two boards, half and half over raw Ethernet and over TCP: live models, C synthesized to hardware"
scripts/setup.sh fabric
four=$fork/logical-4.xml
sed 's/ hw / sw /' $fork/map-boards.xml >"$work/map-software.xml"
sed 's/ sw / hw /' $fork/map-boards.xml >"$work/map-all.xml"
sed 's/ eth / tcp /' $fork/map-boards.xml >"$work/map-boards-tcp.xml"
sed 's/ eth / tcp /' "$work/map-all.xml" >"$work/map-all-tcp.xml"
"$baltra" cluster check $four $fork/map-boards.xml
run4() { "$baltra" cluster run --out target/cluster/fork-4 --json "$work/$1.json" $four "$2" | grep 'all:' >"$work/$1.out"; }
run4 software "$work/map-software.xml"
run4 half $fork/map-boards.xml
run4 half-tcp "$work/map-boards-tcp.xml"
run4 all "$work/map-all.xml"
run4 all-tcp "$work/map-all-tcp.xml"
for place in half half-tcp all all-tcp; do cmp "$work/software.out" "$work/$place.out"; done
cat "$work/software.out"
echo "all runs have the same result"
report software="software" half="half on a board, raw Ethernet" half-tcp="half on a board, TCP" all="two boards, raw Ethernet" all-tcp="two boards, TCP"

step "96 ranks in software, and on six boards of 16 processors"
many=$fork/logical-96.xml
sed 's/ hw / sw /; s/ eth / tcp /' $fork/map-96-boards.xml >"$work/map-96.xml"
run96() { "$baltra" cluster run --quiet --out target/cluster/fork-96 --json "$work/$1.json" $many "$2" >"$work/$1.out"; }
run96 software-96 "$work/map-96.xml"
run96 boards-96 $fork/map-96-boards.xml
cmp "$work/software-96.out" "$work/boards-96.out"
tail -n 1 "$work/boards-96.out"
report software-96="96 processes" boards-96="six boards, raw Ethernet"

cores=$(nproc)
step "Heat on a plate of $side × $side cells, $steps steps, by an ordinary MPI program, on $cores processors"
first=
for ranks in 1 2 4; do
    sed "s/rep: 2/rep: $ranks/" $heat/logical.yaml >"$work/logical.yaml"
    sed "s/0-1/0-$((ranks - 1))/" $heat/map.yaml >"$work/map.yaml"
    cp $heat/heat.c "$work/"
    "$baltra" cluster run --quiet --out target/cluster/heat "$work/logical.yaml" "$work/map.yaml" -- $side $steps "$PWD/$out/heat.pgm" |
        sed 's/^\[0\] //' >"$work/heat.$ranks"
    seconds=$(awk '/^seconds/ {print $2}' "$work/heat.$ranks")
    digest=$(awk '/^digest/ {print $2}' "$work/heat.$ranks")
    [[ -n $first ]] || { first=$seconds; reference=$digest; }
    [[ $digest == "$reference" ]] || { echo "error: the result of $ranks ranks differs ($digest instead of $reference)" >&2; exit 1; }
    awk -v r=$ranks -v s="$seconds" -v f="$first" 'BEGIN {printf "%d rank%s  %8.3f s   speed-up %.2f\n", r, (r > 1 ? "s" : " "), s, f / s}'
done
echo "all plates are identical, bit for bit ($reference)"
python3 scripts/heat_picture.py "$out/heat.pgm" "$out/heat.png"
rm "$out/heat.pgm"
step "The picture: $out/heat.png"
