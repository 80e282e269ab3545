#!/usr/bin/env bash
# Runs the tests, all groups or those named, and ends with "N passed, N failed".
# groups: format clippy deny unit loom miri fuzz integration
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

groups=("$@")
[[ ${#groups[@]} -gt 0 ]] || groups=(format clippy unit loom miri fuzz integration deny)
logs=target/test-logs
mkdir -p "$logs"
passed=0
failed=0
skipped=0

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

# Adds up the closing lines of cargo's test runner in a log.
count() {
    local p f
    p=$(grep -aoE '^test result: .* ([0-9]+) passed' "$1" | grep -oE '[0-9]+ passed' | awk '{s+=$1} END {print s+0}')
    f=$(grep -aoE '; [0-9]+ failed' "$1" | awk '{s+=$2} END {print s+0}')
    passed=$((passed + p))
    failed=$((failed + f))
    # A run that failed without a failed test did not build, or died.
    if [[ $2 -ne 0 && $f -eq 0 ]]; then failed=$((failed + 1)); fi
}

# run NAME COMMAND…: one group in a log; counts tests if its runner says how many, else one.
run() {
    local name=$1 log=$logs/$1.log started=$SECONDS status
    shift
    say "$name …"
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    if grep -aq '^test result:' "$log"; then
        count "$log" $status
    elif [[ $status -eq 0 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    if [[ $status -eq 0 ]]; then
        say "$name: ok ($((SECONDS - started)) s)"
    else
        say "$name: FAILED ($((SECONDS - started)) s), its last lines ($log has all):"
        grep -aE '^(error|test .* FAILED|---- |thread .* panicked|failures:)' "$log" | head -40
        tail -n 40 "$log"
    fi
}

skip() {
    skipped=$((skipped + 1))
    say "$1: skipped: $2"
}

for group in "${groups[@]}"; do
    case $group in
        format) run format cargo fmt --all --check ;;
        clippy) run clippy cargo clippy --release --workspace --all-targets --locked -- -D warnings ;;
        deny)
            # Built once and kept: it takes some minutes on two cores.
            if ! command -v target/tools/bin/cargo-deny >/dev/null; then
                run deny-install cargo install cargo-deny --locked --root target/tools
            fi
            run deny target/tools/bin/cargo-deny --locked check bans licenses sources
            ;;
        unit)
            run setup scripts/setup.sh base
            run unit cargo test --release --workspace --locked --no-fail-fast --exclude baltra-tests
            ;;
        loom)
            run loom env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
                cargo test --release --locked -p baltra-ring --lib loom
            ;;
        miri)
            if cargo +nightly miri --version >/dev/null 2>&1; then
                run miri env MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri \
                    cargo +nightly miri test --locked -p baltra-ring --lib -- ring:: memory::
            else
                skip miri "no nightly toolchain with miri (rustup +nightly component add miri)"
            fi
            ;;
        fuzz) run fuzz env BALTRA_FUZZ_SECONDS="${BALTRA_FUZZ_SECONDS:-10}" \
            cargo test --release --locked -p baltra-tests -p baltra-functions --test fuzz ;;
        integration)
            run setup scripts/setup.sh base test
            run photo scripts/photo.sh
            run apps make -s -C apps
            run functions make -s -C apps/functions
            run bench-programs make -s -C bench/opencl
            run build cargo build --release --locked
            run integration cargo test --release --locked --no-fail-fast -p baltra-tests -- --test-threads=1
            ;;
        *)
            echo "error: no test group '$group' (see the head of $0)" >&2
            exit 2
            ;;
    esac
done

if [[ $skipped -gt 0 ]]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[[ $failed -eq 0 ]]
