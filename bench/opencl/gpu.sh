#!/usr/bin/env bash
# Runs programs on a device natively and through Baltra, and compares what they say.
#
#   gpu.sh pack KIT            collect in the folder KIT what `run` needs and this host has
#   gpu.sh run KIT [options]   on a host that reaches nothing: run what KIT holds
#
# run's options:
#   --driver LIBRARY   the vendor's OpenCL library (default libnvidia-opencl.so.1)
#   --isolation WHAT   device, tenant or session (default tenant)
#   --parts 'NAME …'   default: clinfo transfers clpeak clblast hashcat pyopencl cts
#   --sizes LIST       of transfers (default 1M,16M,64M,256M,1G)
#   --limit SECONDS    per program (default 300)
#   --label NAME       the machine, in the record's name (default: the host's name)
#   --out DIR          where the record goes (default bench/results/opencl)
#
# pack takes programs from the PATH and from these variables, where they are set: CLBLAST_TESTS (a folder
# with clblast_test_*), HASHCAT (hashcat's folder), CTS (what scripts/cts.sh built), PYTHON_SITE (a folder with
# pyopencl and pytest) and PYOPENCL_TESTS (pyopencl's folder test/).
#
# Exit status: 0 every verdict the native one, 1 some differ, 2 usage, 3 nothing could be run.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
parts='clinfo transfers clpeak clblast hashcat pyopencl cts'
driver=libnvidia-opencl.so.1 isolation=tenant sizes=1M,16M,64M,256M,1G limit=300 label=$(uname -n) out=$root/bench/results/opencl

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit "${1:-2}"; }
[[ ${1:-} == -h || ${1:-} == --help ]] && usage 0
[[ $# -ge 2 && ($1 == pack || $1 == run) ]] || usage
mode=$1
mkdir -p "$2"
kit=$(cd "$2" && pwd)
shift 2
while (($#)); do
    [[ $# -ge 2 ]] || usage
    case $1 in
    --driver) driver=$2 ;;
    --isolation) isolation=$2 ;;
    --parts) parts=$2 ;;
    --sizes) sizes=$2 ;;
    --limit) limit=$2 ;;
    --label) label=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
    esac
    shift 2
done

pack() {
    local program found
    mkdir -p "$kit/bin" "$kit/lib"
    for program in baltra libbaltra_opencl.so; do
        strip -o "$kit/bin/$program" "target/release/$program" || exit 3
    done
    make -s -C bench/opencl OUT="$kit/bin" "$kit/bin/transfers" || exit 3
    echo "$(git rev-parse --short=10 HEAD)$([[ -z $(git status --porcelain -uno) ]] || echo -dirty)" >"$kit/commit"
    for program in clinfo clpeak; do
        if found=$(command -v "$program"); then cp "$found" "$kit/bin/"; fi
    done
    # The loader; a vendor's library is the target host's own.
    cp -L "$(ldconfig -p | awk '/libOpenCL.so.1 /{print $NF; exit}')" "$kit/lib/"
    [[ -z ${CLBLAST_TESTS:-} ]] || { mkdir -p "$kit/clblast" && cp "$CLBLAST_TESTS"/clblast_test_* "$kit/clblast/"; }
    [[ -z ${HASHCAT:-} ]] || cp -rT "$HASHCAT" "$kit/hashcat"
    [[ -z ${CTS:-} ]] || cp -rT "$CTS" "$kit/cts"
    [[ -z ${PYTHON_SITE:-} ]] || cp -rT "$PYTHON_SITE" "$kit/python"
    [[ -z ${PYOPENCL_TESTS:-} ]] || cp -rT "$PYOPENCL_TESTS" "$kit/pyopencl"
    # Libraries of the programs that a host may lack; not the C library, which has to be its own.
    for program in "$kit"/bin/cl* "$kit"/clblast/*; do
        [[ -x $program ]] || continue
        ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
            while read -r found; do cp -Ln "$found" "$kit/lib/"; done
    done
    du -sh "$kit"
}

# What a program's output comes to: a line that has to be the same natively and through Baltra.
verdict_of() {
    local part=$1 log=$2 code=$3
    [[ $code -ne 124 ]] || { echo "no end after $limit s"; return; }
    case $part in
    clinfo) echo "exit $code,$(sed -n 's/^ *Device Name  */ /p' "$log" | sort -u | tr '\n' ' ')" ;;
    clblast*) echo "exit $code, $(grep -aoE '[0-9]+ test\(s\) (passed|failed)' "$log" | tr '\n' ' ')" ;;
    pyopencl) echo "exit $code, $(grep -aoE '[0-9]+ (passed|failed|error|skipped|xfailed)[a-z]*' "$log" | tr '\n' ' ')" ;;
    *) echo "exit $code" ;;
    esac
}

# Figures that are shown beside the verdict, without being compared.
figures_of() {
    local part=$1 log=$2
    case $part in
    transfers) grep -a 'bytes:' "$log" ;;
    clpeak) grep -aE 'enqueue|memcpy|float  |float16|Kernel launch' "$log" | sed 's/  */ /g' ;;
    hashcat) grep -aE "^(Speed|[0-9a-f]{32}:|Recovered|Status)" "$log" ;;
    esac
}

natively() { OCL_ICD_VENDORS=$work/vendors timeout -k 5 "$limit" "$@"; }
shared() { timeout -k 5 "$limit" bench/opencl/daemon.sh shm 0 "$@"; }

differ=0 run=0
# compare PART NAME COMMAND…: one row of the table.
compare() {
    local part=$1 name=$2 kind log code codes=() verdict=() seconds=() started
    shift 2
    for kind in natively shared; do
        log=$work/$name.$kind.log started=$SECONDS code=0
        "$kind" "$@" >"$log" 2>&1 </dev/null || code=$?
        verdict+=("$(verdict_of "$part" "$log" "$code")")
        seconds+=($((SECONDS - started))) codes+=("$code")
        while read -r line; do figures+=("$name, ${kind/natively/native}: $line"); done < <(figures_of "$part" "$log")
    done
    run=$((run + 1))
    local same=same
    ((codes[0] == 0)) || { same='same, and fails natively'; tail -n 5 "$work/$name.natively.log" | sed "s/^/    /"; }
    [[ ${verdict[0]} == "${verdict[1]}" ]] || { same=DIFFERENT; differ=$((differ + 1)); }
    row "$name" "${verdict[0]} (${seconds[0]} s)" "${verdict[1]} (${seconds[1]} s)" "$same"
    [[ $same == same* ]] || tail -n 5 "$work/$name.shared.log" | sed "s/^/    /"
}

row() {
    table+=("| $1 | $2 | $3 | $4 |")
    printf '%-28s %-40s %-40s %s\n' "$@"
}

skip() { row "$1" - - "skipped: $2 did not travel"; }

run_part() {
    local test
    case $1 in
    clinfo | clpeak)
        if [[ -x $kit/bin/$1 ]]; then compare "$1" "$1" "$kit/bin/$1"; else skip "$1" "bin/$1"; fi ;;
    transfers)
        if [[ -x $kit/bin/transfers ]]; then compare transfers transfers "$kit/bin/transfers" --sizes "$sizes"; else skip transfers bin/transfers; fi ;;
    clblast)
        [[ -d $kit/clblast ]] || { skip clblast clblast; return; }
        for test in "$kit"/clblast/clblast_test_*; do compare clblast "${test##*/}" "$test" -full_test; done ;;
    hashcat)
        [[ -x $kit/hashcat/hashcat ]] || { skip hashcat hashcat; return; }
        # MD5 of "hashcat" by its alphabet, and how fast that is.
        compare hashcat hashcat-crack env -C "$kit/hashcat" HOME="$work" ./hashcat -m 0 -a 3 --potfile-disable --backend-ignore-cuda \
            8743b52063cd84097a65d1633f5c74f5 '?l?l?l?l?l?l?l'
        compare hashcat hashcat-speed env -C "$kit/hashcat" HOME="$work" ./hashcat -b -m 0 --backend-ignore-cuda ;;
    pyopencl)
        [[ -d $kit/pyopencl ]] || { skip pyopencl pyopencl; return; }
        compare pyopencl pyopencl env -C "$kit/pyopencl" PYTHONPATH="$kit/python" python3 -m pytest -q -p no:cacheprovider . ;;
    cts)
        [[ -d $kit/cts/build ]] || { skip cts cts/build; return; }
        if OCL_ICD_VENDORS=$work/vendors scripts/cts.sh --built --out "$kit/cts" --timeout "$limit" --at-once 4 \
            --prefix "env -u OCL_ICD_VENDORS $root/bench/opencl/daemon.sh shm 0" 2>&1 | tee "$work/cts.log"; then
            row cts "$(wc -l <"$kit/cts/native.tsv") sub-tests" "$(wc -l <"$kit/cts/shared.tsv") sub-tests" same
        else
            differ=$((differ + 1))
            row cts "$(grep -c pass "$kit/cts/native.tsv") pass" "$(grep -c pass "$kit/cts/shared.tsv") pass" DIFFERENT
        fi
        run=$((run + 1)) ;;
    *) echo "error: '$1' is not a part (--help lists them)" >&2; exit 2 ;;
    esac
}

[[ $mode == run ]] || { pack; exit; }

work=$(mktemp -d)
trap 'bench/opencl/daemon.sh down >/dev/null 2>&1; rm -rf "$work"' EXIT
mkdir "$work/vendors"
echo "$driver" >"$work/vendors/native.icd"
export LD_LIBRARY_PATH=$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} BALTRA=$kit/bin/baltra BALTRA_BENCH_NAME=gpu-$$
BALTRA_BENCH_PORT=${BALTRA_BENCH_PORT:-17476}
export BALTRA_BENCH_PORT
if ! bench/opencl/daemon.sh up --set "device.driver=$driver" --set "device.isolation=$isolation" >"$work/up.log" 2>&1; then
    cat "$work/up.log" >&2
    exit 3
fi
grep -a device0 "$work/up.log"
table=() figures=()
row part natively 'through Baltra' verdicts
for part in $parts; do run_part "$part"; done
((run)) || { echo "error: nothing of '$parts' is in $kit: gpu.sh pack collects it" >&2; exit 3; }

commit=$(cat "$kit/commit" 2>/dev/null || echo none)
mkdir -p "$out"
record=$out/$(date -u +%F)-gpu-$label-$commit.md
{
    echo "# Natively and through Baltra"
    echo
    echo "\`bench/opencl/gpu.sh\`, $(grep -a device0 "$work/up.log" | sed 's/^ *//'), $(nproc) cores, isolation \`$isolation\`, commit $commit."
    echo
    echo "| part | natively | through Baltra | verdicts |"
    echo "|---|---|---|---|"
    printf '%s\n' "${table[@]:1}"
    ((${#figures[@]} == 0)) || { printf '\n```text\n'; printf '%s\n' "${figures[@]}"; printf '```\n'; }
} >"$record"
printf '%s\n' ${figures[@]+"${figures[@]}"}
echo "written: $record"
((differ == 0))
