#!/usr/bin/env bash
# Demonstrates the live board: its RTL on a TAP device in a network namespace, with ping, curl and tcpdump as peers.
# Removes everything that it creates. Needs root for the namespace.
set -euo pipefail
cd "$(dirname "$0")/.."

if ((EUID != 0)); then
  command -v sudo > /dev/null || { echo "error: a network namespace needs root (run this script as root, or install sudo)" >&2; exit 3; }
  exec sudo "$0" "$@"
fi

scripts/setup.sh base board
make -s -C hdl/board

name=board-demo-$$
board=10.99.0.2
work=$(mktemp -d)
model=
cleanup() {
  if [[ -n $model ]]; then
    kill "$model" 2> /dev/null || true
    wait "$model" 2> /dev/null || true
  fi
  ip netns del "$name" 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

title() { printf '\n== %s\n' "$*"; }
inside() { ip netns exec "$name" "$@"; }
show() { printf '$'; printf ' %s' "${@@Q}" | sed "s|'\([A-Za-z0-9_./:=%-]*\)'|\1|g; s|$work/||g"; echo; inside "$@"; }

ip netns add "$name"
inside sysctl -qw net.ipv6.conf.all.disable_ipv6=1
ip -n "$name" tuntap add dev tap0 mode tap
ip -n "$name" addr add 10.99.0.1/24 dev tap0
ip -n "$name" link set tap0 up
ip -n "$name" link set lo up
# Not through inside(): ip executes the model in place, so $! is the model's process.
ip netns exec "$name" target/board/board --tap tap0 --ip "$board" --pcap "$work/frames.pcap" 2> "$work/model.log" &
model=$!
for _ in $(seq 50); do inside ping -c 1 -W 1 -q "$board" > /dev/null 2>&1 && break; done

title "The board is a host on the network; its RTL sends every reply below"
show ping -c 3 -i 0.2 "$board"

title "HTTP"
show curl -s "http://$board/healthz"
show curl -s "http://$board/system/functions"

title "Functions are kernels in regions: a cold call loads the image first, a warm call runs at once"
cold_starts() { inside curl -s "http://$board/metrics" | awk '/^baltra_board_cold_starts_total/ { n += $2 } END { print n }'; }
shown_call() { # NAME BODY
  local before after
  before=$(cold_starts)
  show curl -s -d "$2" -w ' (%{time_total} s of this simulation)\n' "http://$board/function/$1"
  after=$(cold_starts)
  echo "   images loaded for this call: $((after - before))"
}
shown_call uppercase 'words from a plain curl'
shown_call uppercase 'and once more'
head -c 1000000 /dev/urandom > "$work/body"
show curl -s --data-binary "@$work/body" "http://$board/function/checksum?hex=1"
echo "   (zlib: $(python3 -c 'import sys, zlib; print("%08x" % zlib.crc32(open(sys.argv[1], "rb").read()))' "$work/body"))"
show curl -s --data-binary "@$work/body" -o "$work/echo" "http://$board/function/echo"
cmp "$work/body" "$work/echo" && echo "1,000,000 bytes came back unchanged"
head -c 307200 /dev/urandom > "$work/gray.raw"
show curl -s --data-binary "@$work/gray.raw" -o "$work/edges.raw" -w '%{size_download} bytes of edges\n' "http://$board/function/sobel?width=640"
show curl -s --data-binary "@$work/body" -o "$work/digest" "http://$board/function/sha256"
echo "$(od -An -v -tx1 "$work/digest" | tr -d ' \n')   (sha256sum: $(sha256sum < "$work/body" | cut -c1-16)…)"
show curl -s -o /dev/null -w '%{http_code}\n' -d 'x' "http://$board/function/none"

title "One exchange on the wire"
first=$(tcpdump -nn -r "$work/frames.pcap" 2> /dev/null | wc -l)
inside curl -s -d 'seen by tcpdump' "http://$board/function/echo" > /dev/null
sleep 0.2
tcpdump -nn -r "$work/frames.pcap" 2> /dev/null | tail -n +$((first + 1)) | cut -d' ' -f2-

title "Cycles: the same RTL with a client inside the simulation"
echo "a 64-byte echo, cold (an image of 1 MB, 262,144 cycles of the configuration port) and warm, in cycles since the"
echo "last byte of the request arrived:"
target/board/bench steps | python3 -c '
import json, sys
names = {"asked": "the call is requested", "configuration_begins": "the configuration port gets its first word",
         "configuration_ends": "and its last", "swapped": "the region has the new kernel", "granted": "the region is granted",
         "answered": "the reply is in its ring", "first_byte_out": "its first byte leaves the board"}
rows = {row["call"]: row for row in map(json.loads, sys.stdin)}
print("%-44s %9s %6s" % ("", "cold", "warm"))
for key, name in names.items():
    print("%-44s %9s %6s" % (name, rows["cold"][key], rows["warm"].get(key, "-")))'
echo "and 5,000 warm calls:"
target/board/bench latency

title "Metrics"
inside curl -s "http://$board/metrics" | grep -v '^#'
