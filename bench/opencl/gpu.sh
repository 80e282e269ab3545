#!/usr/bin/env bash
# Runs programs on a device natively and through Baltra, and compares their results.
#
#   gpu.sh pack KIT            collect the files for `run` from this host in the folder KIT
#   gpu.sh run KIT [options]   run the programs of KIT, on a host without network access
#
# run's options:
#   --driver LIBRARY   the vendor's OpenCL library (default libnvidia-opencl.so.1)
#   --isolation 'LIST' of device, tenant, session: cts runs with each, other parts with the first (default tenant)
#   --parts 'NAME …'   default: clinfo transfers clpeak clblast hashcat pyopencl cts faults endless cold
#   --sizes LIST       of transfers (default 1M,16M,64M,256M,1G)
#   --rounds N         of transfers and cold (default 5)
#   --limit SECONDS    per program (default 300)
#   --at-once N        sub-tests of cts at the same time (default 8)
#   --label NAME       the machine, in the record's name (default: the host's name)
#   --out DIR          folder of the record (default bench/results/opencl)
#
# pack takes Baltra from the folder of BALTRA (default: target/release/baltra), other programs from
# the PATH and from these variables, if they are set: CLBLAST_TESTS (the output of clblast.sh),
# HASHCAT (a folder with hashcat and its OpenCL, modules and tunings), CTS (the output of
# scripts/cts.sh), PYTHON_SITE (a folder with pyopencl and pytest) and PYOPENCL_TESTS (pyopencl's
# folder test/). README.md describes how to build them.
#
# Exit status: 0 every result equals the native one, 1 some differ, 2 usage, 3 no program could be
# run.
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
parts='clinfo transfers clpeak clblast hashcat pyopencl cts faults endless cold'
driver=libnvidia-opencl.so.1 isolations=tenant sizes=1M,16M,64M,256M,1G rounds=5 limit=300 at_once=8 label=$(uname -n)
out=$root/bench/results/opencl
# Number of processes in the part cold.
cold_count=10

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
    --isolation) isolations=$2 ;;
    --parts) parts=$2 ;;
    --sizes) sizes=$2 ;;
    --rounds) rounds=$2 ;;
    --limit) limit=$2 ;;
    --at-once) at_once=$2 ;;
    --label) label=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
    esac
    shift 2
done

pack() {
    local program found built
    built=$(dirname "${BALTRA:-target/release/baltra}")
    mkdir -p "$kit/bin" "$kit/lib"
    for program in baltra libbaltra_opencl.so; do
        strip -o "$kit/bin/$program" "$built/$program" || exit 3
    done
    make -s -C bench/opencl OUT="$kit/bin" "$kit/bin/transfers" "$kit/bin/faults" || exit 3
    echo "$(git rev-parse --short=10 HEAD)$([[ -z $(git status --porcelain -uno) ]] || echo -dirty)" >"$kit/commit"
    for program in clinfo clpeak; do
        if found=$(command -v "$program"); then cp "$found" "$kit/bin/"; fi
    done
    # The loader; the vendor's library is taken from the target host.
    cp -L "$(ldconfig -p | awk '/libOpenCL.so.1 /{print $NF; exit}')" "$kit/lib/"
    [[ -z ${CLBLAST_TESTS:-} ]] || { mkdir -p "$kit/clblast" && cp "$CLBLAST_TESTS"/clblast_test_* "$kit/clblast/"; }
    [[ -z ${HASHCAT:-} ]] || cp -rT "$HASHCAT" "$kit/hashcat"
    [[ -z ${CTS:-} ]] || pack_cts
    [[ -z ${PYTHON_SITE:-} ]] || cp -rT "$PYTHON_SITE" "$kit/python"
    [[ -z ${PYOPENCL_TESTS:-} ]] || cp -rT "$PYOPENCL_TESTS" "$kit/pyopencl"
    # Libraries that the target host may lack, except the C library, which must be the host's own.
    for program in "$kit"/bin/cl* "$kit"/clblast/* "$kit"/hashcat/hashcat; do
        [[ -x $program ]] || continue
        ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
            while read -r found; do cp -Lu "$found" "$kit/lib/"; done
    done
    du -sh "$kit"
}

# The suite's programs and the folders that they need, without the compiler's intermediate files.
pack_cts() {
    local folder to file
    for folder in "$CTS"/build/test_conformance/*/; do
        to=$kit/cts/build/test_conformance/$(basename "$folder")
        for file in "$folder"test_*; do
            [[ -f $file && -x $file ]] && mkdir -p "$to" && strip -o "$to/${file##*/}" "$file"
        done
        for file in "$folder"*/; do
            [[ ! -d $file || $file == */CMakeFiles/ || ! -d $to ]] || cp -r "$file" "$to/"
        done
    done
}

# Summarizes a program's output in a line that must be the same natively and through Baltra.
verdict_of() {
    local part=$1 log=$2 code=$3
    [[ $code -ne 124 ]] || { echo "no end after $limit s"; return; }
    case $part in
    clinfo) echo "exit $code,$(sed -n 's/^ *Device Name  */ /p' "$log" | sort -u | tr '\n' ' ')" ;;
    clblast) echo "exit $code, $(awk '{ for (i = 2; i < NF; i++) if ($i == "test(s)") n[$(i + 1)] += $(i - 1) }
        END { printf "%d passed %d failed", n["passed"], n["failed"] }' <(sed 's/\x1b\[[0-9;]*m//g' "$log"))" ;;
    pyopencl) echo "exit $code, $(grep -aoE '[0-9]+ (passed|failed|error|skipped|xfailed)[a-z]*' "$log" | tr '\n' ' ')" ;;
    *) echo "exit $code" ;;
    esac
}

# Measurements that are shown next to the result, without a comparison.
figures_of() {
    local part=$1 log=$2
    case $part in
    clpeak) grep -aE 'enqueue|memcpy|float  |float16|Kernel launch' "$log" | sed 's/  */ /g' ;;
    hashcat) grep -aE "^(Speed|[0-9a-f]{32}:|Recovered|Status)" "$log" ;;
    esac
}

natively() { OCL_ICD_VENDORS=$work/vendors timeout -k 5 "$limit" "$@"; }
shared() { shared_as 0 "$@"; }
# shared_as TENANT COMMAND…
shared_as() { timeout -k 5 "$limit" bench/opencl/daemon.sh shm "$@"; }

# Starts the daemon with the requested isolation.
up=''
serve() {
    [[ $up != "$1" ]] || return 0
    [[ -z $up ]] || bench/opencl/daemon.sh down >/dev/null 2>&1
    up=''
    if ! bench/opencl/daemon.sh up --set "device.driver=$driver" --set "device.isolation=$1" >"$work/up.log" 2>&1; then
        cat "$work/up.log" >&2
        exit 3
    fi
    up=$1
    device=$(grep -a device0 "$work/up.log" | sed 's/^ *//;s/, [a-z]*)$/)/')
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# median_of FILE: prints the median and the range of a file with one number per line.
median_of() { sort -n "$1" | awk '{ v[NR] = $1 } END { m = int((NR + 1) / 2); printf "%s (%s to %s)", NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2, v[1], v[NR] }'; }

differ=0 run=0 table=() figures=()
row() {
    table+=("| $1 | $2 | $3 | $4 |")
    printf '%-28s %-40s %-40s %s\n' "$@"
}

skip() { row "$1" - - "skipped: $2 did not travel"; }

# judge NAME NATIVE SHARED [same]: prints a row, and whether the two are equal.
judge() {
    local same=${4:-same}
    run=$((run + 1))
    [[ $2 == "$3" ]] || { same=DIFFERENT; differ=$((differ + 1)); }
    row "$1" "$2${5:-}" "$3${6:-}" "$same"
}

# compare PART NAME COMMAND…: one row of the table.
compare() {
    local part=$1 name=$2 kind log code codes=() verdict=() seconds=() started same=same
    shift 2
    for kind in natively shared; do
        log=$work/$name.$kind.log started=$SECONDS code=0
        "$kind" "$@" >"$log" 2>&1 </dev/null || code=$?
        verdict+=("$(verdict_of "$part" "$log" "$code")")
        seconds+=($((SECONDS - started))) codes+=("$code")
        while read -r line; do figures+=("$name, ${kind/natively/native}: $line"); done < <(figures_of "$part" "$log")
    done
    ((codes[0] == 0)) || { same='same, and fails natively'; tail -n 5 "$work/$name.natively.log" | sed "s/^/    /"; }
    judge "$name" "${verdict[0]}" "${verdict[1]}" "$same" " (${seconds[0]} s)" " (${seconds[1]} s)"
    [[ ${verdict[0]} == "${verdict[1]}" ]] || tail -n 5 "$work/$name.shared.log" | sed "s/^/    /"
}

# Rounds of all kinds of transfers, alternating between native and shared.
transfers() {
    local round kind codes=(0 0) kinds
    for ((round = 0; round < rounds; round++)); do
        kinds=(natively shared)
        ((round % 2)) && kinds=(shared natively)
        for kind in "${kinds[@]}"; do
            "$kind" "$kit/bin/transfers" --sizes "$sizes" >>"$work/transfers.$kind" 2>&1 </dev/null || codes[$([[ $kind == shared ]] && echo 1 || echo 0)]=$?
        done
    done
    judge transfers "exit ${codes[0]}" "exit ${codes[1]}"
    transfer_table=$(awk -v rounds="$rounds" '
        function sort_row(key, n,   i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[key, j - 1] > v[key, j]; j--) { t = v[key, j]; v[key, j] = v[key, j - 1]; v[key, j - 1] = t }
        }
        function median(key, n) { return n % 2 ? v[key, (n + 1) / 2] : (v[key, n / 2] + v[key, n / 2 + 1]) / 2 }
        function cell(key, n) { return sprintf("%.2f (%.2f to %.2f)", median(key, n), v[key, 1], v[key, n]) }
        FNR == 1 { side++ }
        $2 == "bytes:" {
            for (i = 3; i < NF; i += 2) {
                key = $1 SUBSEP $i
                if (side == 1 && !(key in seen)) { seen[key] = 1; order[++rows] = key }
                v[side, key, ++n[side, key]] = $(i + 1) + 0
            }
        }
        END {
            printf "GB/s: median and range of %d rounds, natively and through Baltra in turn.\n\n", rounds
            print "| bytes | kind | natively | through Baltra | ratio |\n|--:|---|--:|--:|--:|"
            for (r = 1; r <= rows; r++) {
                key = order[r]; split(key, part, SUBSEP)
                a = 1 SUBSEP key; b = 2 SUBSEP key
                if (!n[1, key] || !n[2, key]) continue
                sort_row(a, n[1, key]); sort_row(b, n[2, key])
                printf "| %d | %s | %s | %s | %.2f |\n", part[1], part[2], cell(a, n[1, key]), cell(b, n[2, key]), median(b, n[2, key]) / median(a, n[1, key])
            }
        }' "$work/transfers.natively" "$work/transfers.shared")
    printf '%s\n' "$transfer_table"
}
transfer_table=''

cts() {
    local isolation kept=$work/cts native=() common
    mkdir -p "$kept"
    rm -f "$kit/cts/native.tsv"
    for isolation in $isolations; do
        serve "$isolation"
        rm -f "$kit/cts/shared.tsv"
        common=(--built --out "$kit/cts" --timeout "$limit" --at-once "$at_once")
        OCL_ICD_VENDORS=$work/vendors scripts/cts.sh "${common[@]}" "${native[@]}" \
            --prefix "env -u OCL_ICD_VENDORS $root/bench/opencl/daemon.sh shm 0" >"$kept/$isolation" 2>&1
        cat "$kept/$isolation"
        [[ -s $kit/cts/shared.tsv ]] || { differ=$((differ + 1)); row "cts, $isolation" - - 'not run'; continue; }
        native=(--native-from "$kit/cts/native.tsv")
        cp "$kit/cts/shared.tsv" "$kept/shared.$isolation"
        while read -r line; do figures+=("cts, $isolation: $line"); done < <(grep -E ' differ |^[A-Za-z_]+ +[a-z_0-9]+ +[a-z0-9-]+ +[a-z0-9-]+$' "$kept/$isolation" | grep -v '^group ')
        judge "cts, $isolation" "$(cts_verdicts "$kit/cts/native.tsv" "$kit/cts/native.tsv")" \
            "$(cts_verdicts "$kit/cts/shared.tsv" "$kit/cts/native.tsv")" same \
            " ($(cts_seconds "$kit/cts/native.tsv"))" " ($(cts_seconds "$kit/cts/shared.tsv"))"
    done
}

# cts_verdicts FILE NATIVE: prints the number of each verdict, and how many differ from NATIVE.
cts_verdicts() {
    awk -F '\t' '{ n[$3]++ } END { for (v in n) printf "%d %s\n", n[v], v }' "$1" | sort -k2 | tr '\n' ' '
    awk -F '\t' 'NR == FNR { native[$1 FS $2] = $3; next } native[$1 FS $2] != $3 { d++ } END { if (d) printf "(%d differ)", d }' "$2" "$1"
}

cts_seconds() { cut -f 4 "$1" | sort -n | awk '{ v[NR] = $1; all += $1 } END { printf "median %.1f s, all %d s", v[int((NR + 1) / 2)], all }'; }

# Tests the effect of one program's fault on later programs of its tenant, and on a program of
# another tenant that runs meanwhile.
faults() {
    local isolation mode native code meanwhile
    for mode in stray null; do
        natively "$kit/bin/faults" "$mode" >"$work/fault.log" 2>&1
        native="then exit $(natively "$kit/bin/faults" good >>"$work/fault.log" 2>&1; echo $?)"
        for isolation in device tenant session; do
            serve "$isolation"
            shared_as 1 "$kit/bin/faults" good 6 >"$work/meanwhile.log" 2>&1 &
            meanwhile=$!
            sleep 1
            shared_as 0 "$kit/bin/faults" "$mode" >"$work/fault.log" 2>&1
            code=$(shared_as 0 "$kit/bin/faults" good >"$work/good.log" 2>&1; echo $?)
            figures+=("$mode, $isolation: $(tail -n 1 "$work/fault.log")")
            wait "$meanwhile"
            figures+=("$mode, $isolation: another tenant's program meanwhile: exit $?, $(tail -n 1 "$work/meanwhile.log")")
            figures+=("$mode, $isolation: another tenant's program afterwards: exit $(shared_as 1 "$kit/bin/faults" good >"$work/other.log" 2>&1; echo $?)")
            judge "$mode, $isolation" "$native" "then exit $code"
        done
    done
}

# answer_ms FROM COMMAND…: retries the command until it succeeds; prints the milliseconds since
# FROM.
answer_ms() {
    local from=$1 deadline=$((SECONDS + limit))
    shift
    until "$@" >"$work/answer.log" 2>&1; do
        ((SECONDS < deadline)) || { echo never; return; }
    done
    echo $(($(now_ms) - from))
}

# kill_endless COMMAND…: starts an endless kernel and kills its process; prints the time.
kill_endless() {
    local log=$work/endless.log starter pid
    : >"$log"
    "$@" "$kit/bin/faults" endless >"$log" 2>&1 &
    starter=$!
    until pid=$(grep -m 1 -E '^[0-9]+$' "$log"); do
        kill -0 "$starter" 2>/dev/null || { cat "$log" >&2; return 1; }
        sleep 0.05
    done
    kill -KILL "$pid"
    now_ms
}

# Time until another program, in a new session, gets a result after a program with an endless kernel
# was killed, with default settings.
endless() {
    local isolation from native alone shared
    from=$(kill_endless natively) || return
    native=$(answer_ms "$from" natively "$kit/bin/faults" good)
    for isolation in device tenant session; do
        serve "$isolation"
        alone=$(answer_ms "$(now_ms)" shared_as 1 "$kit/bin/faults" good)
        from=$(kill_endless shared_as 0) || return
        shared=$(answer_ms "$from" shared_as 1 "$kit/bin/faults" good)
        judge "endless, $isolation" "$([[ $native == never ]] && echo never || echo answers)" "$([[ $shared == never ]] && echo never || echo answers)" \
            same " after $native ms" " after $shared ms (undisturbed $alone ms)"
    done
}

# Time of each of several processes that start concurrently, to build and run a kernel, with
# isolation by session.
cold() {
    local round kind n from pids pid codes=(0 0)
    serve session
    for ((round = 0; round < rounds; round++)); do
        for kind in natively shared; do
            pids=()
            for ((n = 0; n < cold_count; n++)); do
                { from=$(now_ms) && "$kind" "$kit/bin/faults" good >"$work/cold.$n.log" 2>&1 && echo $(($(now_ms) - from)) >>"$work/cold.$kind"; } &
                pids+=($!)
            done
            for pid in "${pids[@]}"; do
                wait "$pid" || codes[$([[ $kind == shared ]] && echo 1 || echo 0)]=$?
            done
        done
    done
    judge "cold, $cold_count at once" "exit ${codes[0]}" "exit ${codes[1]}" same ", $(median_of "$work/cold.natively") ms" ", $(median_of "$work/cold.shared") ms"
}

# All sizes, except for the matrix product, which takes minutes on the reference's single processor:
# it has the default sizes.
compare_clblast() {
    local all=(-full_test)
    [[ $1 != *xgemm ]] || all=()
    compare clblast "${1##*/}" "$1" ${all[@]+"${all[@]}"}
}

run_part() {
    local test
    case $1 in
    clinfo | clpeak)
        if [[ -x $kit/bin/$1 ]]; then compare "$1" "$1" "$kit/bin/$1"; else skip "$1" "bin/$1"; fi ;;
    transfers)
        if [[ -x $kit/bin/transfers ]]; then transfers; else skip transfers bin/transfers; fi ;;
    clblast)
        [[ -d $kit/clblast ]] || { skip clblast clblast; return; }
        for test in "$kit"/clblast/clblast_test_*; do compare_clblast "$test"; done ;;
    hashcat)
        [[ -x $kit/hashcat/hashcat ]] || { skip hashcat hashcat; return; }
        # MD5 of "hashcat" by its alphabet, and the speed.
        compare hashcat hashcat-crack env -C "$kit/hashcat" HOME="$work" ./hashcat -m 0 -a 3 --potfile-disable --backend-ignore-cuda \
            8743b52063cd84097a65d1633f5c74f5 '?l?l?l?l?l?l?l'
        compare hashcat hashcat-speed env -C "$kit/hashcat" HOME="$work" ./hashcat -b -m 0 --backend-ignore-cuda ;;
    pyopencl)
        [[ -d $kit/pyopencl ]] || { skip pyopencl pyopencl; return; }
        for test in "$kit"/pyopencl/test_*.py; do
            compare pyopencl "pyopencl ${test##*/}" env -C "$kit/pyopencl" PYTHONPATH="$kit/python" \
                python3 -m pytest -q -p no:cacheprovider "${test##*/}"
        done ;;
    cts)
        if [[ -d $kit/cts/build ]]; then cts; else skip cts cts/build; fi ;;
    faults | endless | cold)
        if [[ -x $kit/bin/faults ]]; then "$1"; else skip "$1" bin/faults; fi ;;
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
serve "${isolations%% *}"
echo "$device"
row part natively 'through Baltra' verdicts
for part in $parts; do
    serve "${isolations%% *}"
    run_part "$part"
done
((run)) || { echo "error: nothing of '$parts' is in $kit: gpu.sh pack collects it" >&2; exit 3; }

commit=$(cat "$kit/commit" 2>/dev/null || echo none)
mkdir -p "$out"
record=$out/$(date -u +%F)-gpu-$label-$commit.md
{
    echo "# Natively and through Baltra"
    echo
    echo "\`bench/opencl/gpu.sh\`, $device, $(nproc) cores, isolation \`${isolations%% *}\` unless a row names another, commit $commit."
    echo
    echo "| part | natively | through Baltra | verdicts |"
    echo "|---|---|---|---|"
    printf '%s\n' "${table[@]:1}"
    [[ -z $transfer_table ]] || printf '\n%s\n' "$transfer_table"
    ((${#figures[@]} == 0)) || { printf '\n```text\n'; printf '%s\n' "${figures[@]}"; printf '```\n'; }
} >"$record"
printf '%s\n' ${figures[@]+"${figures[@]}"}
echo "written: $record"
((differ == 0))
