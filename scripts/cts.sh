#!/usr/bin/env bash
# Runs Khronos' OpenCL conformance tests twice, natively and behind a command prefix, and compares
# the verdict of every sub-test. Needs a source tree of OpenCL-CTS (tag v2022-11-15-03 builds with
# the OpenCL headers of Debian 12, v2024-08-08-00 with those of OpenCL-Headers v2024.05.08 in
# --headers); nothing of it is copied here.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/cts.sh SOURCE [options]

  --prefix 'COMMAND …'   what runs a program against the shared device
                         (default: target/release/baltra run --)
  --moves                instead of --prefix: a node with two devices of PoCL, between which all
                         sessions move every 100 ms with their contents; DIR/moves counts the moves
                         (BALTRA: the command line, default target/release/baltra)
  --groups 'NAME …'      test groups (default: the eleven that SPECIFICATION.md names)
  --only 'PATTERN'       only sub-tests whose name matches this shell pattern
  --skip 'NAME …'        leave these sub-tests out, both times
  --native-only          run natively and stop: records the verdicts to compare with later
  --native-from FILE     take the native verdicts from an earlier run's native.tsv
  --out DIR              build and results (default: target/cts)
  --timeout SECONDS      per sub-test (default 300)
  --headers DIR          a directory with CL/cl.h, to build with (default /usr/include)
  --jobs N               compiler processes (default 1)
  --build-only           build and stop
  --built                take what an earlier run built in DIR; SOURCE is not needed then, and
                         the default groups are those that are built
  --at-once N            sub-tests at the same time (default 1; more only where each finds cores of its own)

Results: DIR/native.tsv, DIR/shared.tsv (group, sub-test, verdict, seconds) and a log per sub-test.
Verdicts: pass, fail, skip, timeout, crash-SIGNAL, exit-CODE. A program that timed out natively is not run again.
Exit status: 0 same, 1 different, 2 usage, 3 the suite could not be built.

example: scripts/cts.sh ~/OpenCL-CTS --groups 'basic events' --prefix 'target/release/baltra run --'
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
groups=''
default_groups='basic api buffers events compiler computeinfo profiling multiple_device_context allocations mem_host_flags thread_dimensions'
prefix="$root/target/release/baltra run --"
out=$root/target/cts
limit_s=300 jobs=1 built=0 build_only=0 headers=/usr/include at_once=1 only='*' skip='' native_only=0 native_from='' source='' moves=0
# The allocation tests use this part of the reported device memory; all of it would exhaust the
# host's.
allocation_part='2%'

while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --moves) moves=1; shift ;;
    --native-only) native_only=1; shift ;;
    --built) built=1; shift ;;
    --build-only) build_only=1; shift ;;
    --prefix | --groups | --only | --skip | --native-from | --out | --timeout | --jobs | --at-once | --headers)
      (($# > 1)) || { echo "error: $1 needs a value" >&2; exit 2; }
      case $1 in
        --prefix) prefix=$2 ;;
        --groups) groups=$2 ;;
        --only) only=$2 ;;
        --skip) skip=$2 ;;
        --native-from) native_from=$2 ;;
        --out) out=$2 ;;
        --timeout) limit_s=$2 ;;
        --jobs) jobs=$2 ;;
        --headers) headers=$2 ;;
        --at-once) at_once=$2 ;;
      esac
      shift 2 ;;
    -*) echo "error: unknown option '$1' (--help lists the options)" >&2; exit 2 ;;
    *) source=$1; shift ;;
  esac
done
if ((built)); then
  [[ -d $out/build/test_conformance ]] || { echo "error: nothing is built in $out: leave --built out" >&2; exit 2; }
  [[ $groups ]] || groups=$(cd "$out/build/test_conformance" && find . -mindepth 2 -maxdepth 2 -type f -name 'test_*' \
    -perm -u+x | cut -d / -f 2 | sort | tr '\n' ' ')
elif [[ -z $source || ! -d $source/test_conformance/basic ]]; then
  echo "error: '${source}' is not an OpenCL-CTS source tree (name the directory that contains test_conformance/)" >&2
  exit 2
else
  source=$(cd "$source" && pwd)
fi
groups=${groups:-$default_groups}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# Builds through a tree of links that names only the wanted groups: the suite's own top level builds
# everything, including what needs SPIR-V tools.
build() {
  local overlay=$out/overlay log=$out/build.log lib group
  mkdir -p "$overlay/test_conformance"
  cp "$source/CMakeLists.txt" "$overlay/"
  ln -sfn "$source/test_common" "$overlay/test_common"
  ln -sfn "$source/test_conformance/CMakeCommon.txt" "$overlay/test_conformance/CMakeCommon.txt"
  {
    # shellcheck disable=SC2016 # CMake's variable, not ours
    echo 'set(HARNESS_LIB harness)'
    for group in $groups; do
      ln -sfn "$source/test_conformance/$group" "$overlay/test_conformance/$group"
      echo "add_subdirectory($group)"
    done
  } > "$overlay/test_conformance/CMakeLists.txt"
  lib=$(dirname "$(cc -print-file-name=libOpenCL.so)")
  echo "building the suite ($out/build.log)" >&2
  # The suite sets -Werror for its own compiler; newer compilers have more warnings.
  if ! nice cmake -S "$overlay" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DCL_INCLUDE_DIR="$headers" \
      -DCL_LIB_DIR="$lib" -DOPENCL_LIBRARIES=OpenCL -DCOMPILER_SUPPORTS_Werror=0 > "$log" 2>&1 ||
    ! nice -n 10 make -C "$out/build" -j"$jobs" >> "$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: the suite did not build; the whole log is $log" >&2
    exit 3
  fi
}

binary_of() { find "$out/build/test_conformance/$1" -maxdepth 1 -type f -name 'test_*' -perm -u+x | head -n 1; }

# The help of printf lists its sub-tests without a heading.
subtests_of() {
  local help
  help=$("$1" --help 2>/dev/null) || true
  grep -q '^Test names.*:$' <<< "$help" && { sed -n '/^Test names.*:$/,$s/^\t//p' <<< "$help"; return; }
  sed -n 's/^\t\([[:alnum:]_]*\)$/\1/p' <<< "$help"
}

# run_one KIND GROUP BINARY SUBTEST PREFIX…: prints one line of the table.
run_one() {
  local kind=$1 group=$2 binary=$3 name=$4 code=0 verdict started ended
  shift 4
  local log=$out/$kind/$group/$name.log json=$out/$kind/$group/$name.json arguments=()
  mkdir -p "${log%/*}"
  rm -f "$json"
  [[ $group == allocations ]] && arguments=(single multiple "$allocation_part")
  started=$(date +%s.%N)
  # The tests find their include directories beside the binary.
  (cd "${binary%/*}" && CL_CONFORMANCE_RESULTS_FILENAME=$json exec timeout -k 5 "$limit_s" \
    "$@" "$binary" "${arguments[@]}" "$name") > "$log" 2>&1 < /dev/null || code=$?
  ended=$(date +%s.%N)
  verdict=$(sed -n "s/^\t\t\"$name\": \"\([a-z]*\)\".*/\1/p" "$json" 2>/dev/null | head -n 1)
  if ((code == 124)) || { ((code == 137)) && [[ -z $verdict ]]; }; then
    verdict=timeout
  elif ((code > 128)); then
    verdict=crash-$((code - 128))
  elif [[ -z $verdict ]]; then
    verdict=exit-$code
  fi
  printf '%s\t%s\t%s\t%.1f\n' "$group" "$name" "$verdict" \
    "$(awk -v from="$started" -v to="$ended" 'BEGIN { print to - from }')"
}

# run_subtest KIND GROUP BINARY SUBTEST PREFIX…: runs one sub-test, with a table of its own.
run_subtest() {
  local kind=$1 group=$2 name=$4 line
  line=$(run_one "$@")
  printf '%s\n' "$line" > "$out/$kind/$group/$name.tsv"
  if [[ -t 2 ]]; then printf '\r\033[K%s %s' "$kind" "${line//$'\t'/ }" >&2; fi
}

# run_all KIND PREFIX…
run_all() {
  local kind=$1 group binary name tables=() table
  shift
  for group in $groups; do
    binary=$(binary_of "$group")
    [[ $binary ]] || { echo "error: no test program of '$group' in $out/build: build it, or leave it out of --groups" >&2; exit 2; }
    while read -r name; do
      # shellcheck disable=SC2053 # a pattern on purpose
      [[ $name == $only && " $skip " != *" $name "* ]] || continue
      if [[ $kind == shared ]] && grep -qP "^$group\t$name\ttimeout\t" "$out/native.tsv"; then continue; fi
      while (($(jobs -rp | wc -l) >= at_once)); do wait -n || true; done
      run_subtest "$kind" "$group" "$binary" "$name" "$@" &
      tables+=("$out/$kind/$group/$name.tsv")
    done < <(subtests_of "$binary")
  done
  wait
  : > "$out/$kind.tsv"
  for table in ${tables[@]+"${tables[@]}"}; do cat "$table" >> "$out/$kind.tsv"; done
  for group in $groups; do
    echo "$kind $group: $(awk -F '\t' -v g="$group" '$1 == g { n[$3]++ } END { for (v in n) printf "%s %d  ", v, n[v] }' "$out/$kind.tsv")" >&2
  done
}

# A node whose sessions move between its devices until the script ends.
start_moving_node() {
  local baltra device
  baltra=$(realpath "${BALTRA:-$root/target/release/baltra}")
  node=$(mktemp -d "${TMPDIR:-/tmp}/baltra-cts.XXXXXX")
  for device in a b; do
    printf '[[device]]\nname = "%s"\nselect = "%d"\ndriver = "libpocl.so.2"\nhost_memory = false\n' \
      "$device" "$([[ $device == a ]]; echo $?)"
  done > "$node/config.toml"
  POCL_DEVICES='pthread pthread' "$baltra" manager --runtime-dir "$node/run" --state-dir "$node/state" \
    --config "$node/config.toml" --set metrics.address= > "$node/log" 2>&1 &
  manager=$!
  disown "$manager" # run_all waits for all jobs
  trap stop_moving_node EXIT
  for _ in {1..300}; do
    kill -0 "$manager" 2>/dev/null || { cat "$node/log" >&2; exit 3; }
    "$baltra" --runtime-dir "$node/run" status --json 2>/dev/null | grep -q '"ready": true' && break
    sleep 0.1
  done
  "$root/scripts/move_sessions.py" "$baltra" "$node/run" a b > "$out/moves" &
  mover=$!
  disown "$mover"
  words=("$baltra" run --runtime-dir "$node/run" --device a --)
}

stop_moving_node() {
  local pid
  for pid in $mover $manager; do
    kill "$pid" 2>/dev/null || continue
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  done
  rm -rf "$node"
}

((built)) || build
((build_only)) && exit 0
if [[ -n $native_from ]]; then
  [[ $native_from -ef $out/native.tsv ]] || cp "$native_from" "$out/native.tsv"
else
  run_all native
fi
((native_only)) && exit 0

node='' manager='' mover=''
if ((moves)); then
  start_moving_node
else
  read -r -a words <<< "$prefix"
  # The tests run in their own directories: a relative path of the prefix's program would be lost.
  [[ ${words[0]} != */* ]] || words[0]=$(realpath "${words[0]}")
fi
run_all shared "${words[@]}"
if ((moves)); then
  stop_moving_node
  trap - EXIT
  cat "$out/moves"
fi
left_out=$(awk -F '\t' -v groups=" $groups " 'NR == FNR { run[$1 FS $2]; next }
  $3 == "timeout" && index(groups, " " $1 " ") && !(($1 FS $2) in run)' "$out/shared.tsv" "$out/native.tsv" | wc -l)

differences=$(awk -F '\t' -v groups=" $groups " -v OFS='\t' '
  NR == FNR { native[$1 FS $2] = $3; next }
  { key = $1 FS $2; shared[key] = 1
    if (!(key in native)) print $1, $2, "-", $3
    else if (native[key] != $3) print $1, $2, native[key], $3 }
' "$out/native.tsv" "$out/shared.tsv")
total=$(wc -l < "$out/shared.tsv")
if [[ -n $differences ]]; then
  { printf 'group\tsub-test\tnative\tshared\n'; printf '%s\n' "$differences"; } | awk -F '\t' '{ printf "%-24s %-52s %-12s %s\n", $1, $2, $3, $4 }'
  echo "$(wc -l <<< "$differences") of $total sub-tests differ ($left_out left out that time out natively); logs: $out/{native,shared}/GROUP/SUBTEST.log"
  exit 1
fi
echo "$total sub-tests, every verdict the native one ($left_out left out that time out natively)"
