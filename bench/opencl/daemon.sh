#!/usr/bin/env bash
# Controls the daemon of the benchmarks, which has directories of its own.
#   daemon.sh up [BALTRA UP OPTIONS]    start it, with tenants t0 … t8
#   daemon.sh down                      stop it
#   daemon.sh usage                     sessions, memory and usage of each tenant, as JSON
#   daemon.sh shm|tcp CLIENT COMMAND…   run a command as tenant tCLIENT, on shared memory or loopback TCP
set -euo pipefail
cd "$(dirname "$0")/../.."
baltra=${BALTRA:-$PWD/target/release/baltra}
# The daemon needs a name and a port if several run concurrently.
home=$PWD/target/bench/daemons/${BALTRA_BENCH_NAME:-default}
port=${BALTRA_BENCH_PORT:-17473}
export BALTRA_RUNTIME_DIR=$home/run

case ${1:-} in
up)
    shift
    mkdir -p "$home"
    "$baltra" up --state-dir "$home/state" --set metrics.address=off --set "listen.tcp=127.0.0.1:$port" \
        --set registry.address=auto --set registry.metrics= --set gateway.address=auto --set gateway.grpc_address= "$@"
    for n in 0 1 2 3 4 5 6 7 8; do
        "$baltra" tenant add "t$n" >/dev/null 2>&1 || true
        "$baltra" tenant token "t$n" >"$home/token.$n"
    done
    ;;
down)
    "$baltra" down --drain-ms 0
    rm -rf "$home"
    ;;
usage)
    exec "$baltra" tenant usage --json
    ;;
shm)
    client=$2
    shift 2
    exec "$baltra" run --tenant "t$client" -- "$@"
    ;;
tcp)
    client=$2
    shift 2
    BALTRA_TOKEN=$(<"$home/token.$client")
    export BALTRA_TOKEN
    exec "$baltra" run --connect "tcp://127.0.0.1:$port" -- "$@"
    ;;
*)
    sed -n 2,6p "$0" >&2
    exit 2
    ;;
esac
