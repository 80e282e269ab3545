#!/usr/bin/env bash
# Builds `baltra` as a static program for musl, which runs on any Linux. It is a client, gateway and registry, loads no
# drivers, and leaves out `baltra kubernetes`, whose dependencies are a quarter of a build. Without the target in the
# toolchain, or without musl-gcc, it is skipped with the reason.
#
# usage: scripts/static.sh [OPTION OF CARGO …]
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-musl

if [[ ! -d $(rustc --print target-libdir --target "$target") ]]; then
    echo "static program: skipped: the toolchain lacks $target (rustup target add $target)"
elif ! command -v musl-gcc >/dev/null; then
    echo "static program: skipped: musl-gcc not found (apt install musl-tools)"
else
    cargo build --locked --target "$target" -p baltra-cli --bin baltra --no-default-features "$@"
fi
