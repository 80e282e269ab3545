# shellcheck shell=bash
# Sourced by demos with a board: a node with PoCL, an emulated accelerator and the board's live model, in directories of
# its own, so that a running daemon is not disturbed. Expects baltra, the command line; start_node sets run, the folder.
run='' board='' program=''

step() { printf '\n%s\n' "$*"; }

# Starts the node; it ends with the script, as does the process in program.
start_node() {
    run=$(mktemp -d "${TMPDIR:-/tmp}/baltra-demo.XXXXXX")
    export BALTRA_RUNTIME_DIR=$run/run
    trap end_node EXIT
    trap 'exit 130' INT TERM
    target/board/board --net user --forward 127.0.0.1:0 --host-port "$run/board.sock" 2>"$run/board.log" &
    board=$!
    for _ in {1..100}; do
        [[ ! -S $run/board.sock ]] || break
        sleep 0.1
    done
    cat >"$run/config.toml" <<TOML
[[device]]
name = "cpu"
driver = "libpocl.so.2"
host_memory = false

[[device]]
name = "fpga"
driver = "emulate:"

[[device]]
name = "board"
driver = "board:$run/board.sock"
TOML
    step "Starting Baltra with PoCL, an emulated accelerator and a board"
    "$baltra" up --config "$run/config.toml" --state-dir "$run/state" --set metrics.address=off \
        --set registry.address=auto --set registry.metrics= --set gateway.address=auto --set gateway.grpc_address=
    "$baltra" devices
}

end_node() {
    [[ -z $program ]] || kill "$program" 2>/dev/null || true
    "$baltra" down --drain-ms 0 >/dev/null 2>&1 || true
    [[ -z $board ]] || kill "$board" 2>/dev/null || true
    rm -rf "$run"
}
