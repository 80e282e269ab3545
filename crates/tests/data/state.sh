#!/usr/bin/env bash
# Writes the state of a node with a registry and a gateway, as the archives beside this script have it: tenants with a
# quota and usage, a pool, a cordoned device, an accelerator, and a function. tests/upgrade.rs opens each archive.
#
# usage: state.sh BALTRA ARCHIVE        BALTRA: the program of the release; its library is beside it
set -euo pipefail
baltra=$(realpath "$1")
archive=$(realpath "$2")
root=$(realpath "$(dirname "$0")/../../..")
home=$(mktemp -d)
export BALTRA_RUNTIME_DIR=$home/run
end() {
    "$baltra" down --drain-ms 0 >"$home/end" 2>&1 || true
    rm -rf "$home"
}
trap end EXIT

up() {
    "$baltra" up --state-dir "$home/state" --set node.name=isabela --set registry.address=127.0.0.1:0 \
        --set registry.metrics= --set gateway.address=127.0.0.1:0 --set gateway.grpc_address= --set metrics.address=
}

up
"$baltra" tenant add red --weight 3 --memory 512M
"$baltra" tenant add blue
"$baltra" run --tenant red -- "$root/target/apps/sobel" --size 64x64 --output "$home/edges.pgm"
"$baltra" function deploy "$root/apps/functions/sobel"
"$baltra" pool add cpus --query 'platform=Portable*'
"$baltra" device cordon isabela/device0
printf 'an image' >"$home/image"
"$baltra" accelerator push --name edges "$home/image"
"$baltra" down
# Compiled kernels are of this host's processor.
tar --create --gzip --owner root --group root --exclude state/cache --directory "$home" --file "$archive" state
