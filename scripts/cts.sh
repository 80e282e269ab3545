#!/usr/bin/env bash
# Runs Khronos' OpenCL conformance tests twice, natively and behind a command prefix, and compares
# the verdict of every sub-test. Needs a source tree of OpenCL-CTS (tag v2022-11-15-03 builds with
# the OpenCL headers of Debian 12); nothing of it is copied here.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/cts.sh SOURCE [options]

  --prefix 'COMMAND …'   what runs a program against the shared device
                         (default: target/release/baltra run --)
  --groups 'NAME …'      test groups (default: the eleven that SPECIFICATION.md names)
  --only 'PATTERN'       only sub-tests whose name matches this shell pattern
  --skip 'NAME …'        leave these sub-tests out, both times
  --native-only          run natively and stop: records the verdicts to compare with later
  --native-from FILE     take the native verdicts from an earlier run's native.tsv
  --out DIR              build and results (default: target/cts)
  --timeout SECONDS      per sub-test (default 300)
  --jobs N               compiler processes (default 1)
  --built                take what an earlier run built in DIR; SOURCE is not needed then
  --at-once N            groups at the same time (default 1; more only where each finds cores of its own)

Results: DIR/native.tsv, DIR/shared.tsv (group, sub-test, verdict, seconds) and a log per sub-test.
Verdicts: pass, fail, skip, timeout, crash-SIGNAL, exit-CODE. What timed out natively is not run again.
Exit status: 0 same, 1 different, 2 usage, 3 the suite could not be built.

example: scripts/cts.sh ~/OpenCL-CTS --groups 'basic events' --prefix 'target/release/baltra run --'
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
groups='basic api buffers events compiler computeinfo profiling multiple_device_context allocations mem_host_flags thread_dimensions'
prefix="$root/target/release/baltra run --"
out=$root/target/cts
limit_s=300 jobs=1 built=0 at_once=1 only='*' skip='' native_only=0 native_from='' source=''
# The allocation tests take this part of what the device says it has: all of it would starve the host.
allocation_part='2%'

while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --native-only) native_only=1; shift ;;
    --built) built=1; shift ;;
    --prefix | --groups | --only | --skip | --native-from | --out | --timeout | --jobs | --at-once)
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
        --at-once) at_once=$2 ;;
      esac
      shift 2 ;;
    -*) echo "error: unknown option '$1' (--help lists the options)" >&2; exit 2 ;;
    *) source=$1; shift ;;
  esac
done
if ((built)); then
  [[ -d $out/build/test_conformance ]] || { echo "error: nothing is built in $out: leave --built out" >&2; exit 2; }
elif [[ -z $source || ! -d $source/test_conformance/basic ]]; then
  echo "error: '${source}' is not an OpenCL-CTS source tree (name the directory that contains test_conformance/)" >&2
  exit 2
else
  source=$(cd "$source" && pwd)
fi
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
  # -Werror is the suite's own choice for its own compiler; newer compilers warn of more.
  if ! nice cmake -S "$overlay" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DCL_INCLUDE_DIR=/usr/include \
      -DCL_LIB_DIR="$lib" -DOPENCL_LIBRARIES=OpenCL -DCOMPILER_SUPPORTS_Werror=0 > "$log" 2>&1 ||
    ! nice -n 10 make -C "$out/build" -j"$jobs" >> "$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: the suite did not build; the whole log is $log" >&2
    exit 3
  fi
}

binary_of() { find "$out/build/test_conformance/$1" -maxdepth 1 -type f -name 'test_*' -perm -u+x | head -n 1; }

subtests_of() { "$1" --help 2>/dev/null | sed -n '/^Test names.*:$/,$s/^\t//p'; }

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
  printf '%s\t%s\t%s\t%.1f\n' "$group" "$name" "$verdict" "$(echo "$ended - $started" | bc)"
}

# run_group KIND GROUP PREFIX…: one group, into a table of its own.
run_group() {
  local kind=$1 group=$2 table=$out/$1/$2.tsv binary name line
  shift 2
  mkdir -p "${table%/*}"
  : > "$table"
  binary=$(binary_of "$group")
  while read -r name; do
    # shellcheck disable=SC2053 # a pattern on purpose
    [[ $name == $only && " $skip " != *" $name "* ]] || continue
    if [[ $kind == shared ]] && grep -qP "^$group\t$name\ttimeout\t" "$out/native.tsv"; then continue; fi
    line=$(run_one "$kind" "$group" "$binary" "$name" "$@")
    printf '%s\n' "$line" >> "$table"
    [[ -t 2 ]] && printf '\r\033[K%s %s' "$kind" "${line//$'\t'/ }" >&2
  done < <(subtests_of "$binary")
  echo "$kind $group: $(awk '{ n[$3]++ } END { for (v in n) printf "%s %d  ", v, n[v] }' "$table")" >&2
}

# run_all KIND PREFIX…
run_all() {
  local kind=$1 group
  shift
  for group in $groups; do
    while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
    run_group "$kind" "$group" "$@" &
  done
  wait
  for group in $groups; do cat "$out/$kind/$group.tsv"; done > "$out/$kind.tsv"
}

command -v bc > /dev/null || { echo "error: bc is missing: scripts/setup.sh bench installs it" >&2; exit 3; }
((built)) || build
if [[ -n $native_from ]]; then
  [[ $native_from -ef $out/native.tsv ]] || cp "$native_from" "$out/native.tsv"
else
  run_all native
fi
((native_only)) && exit 0

read -r -a words <<< "$prefix"
# The tests run in their own directories: a relative path of the prefix's program would be lost.
[[ ${words[0]} == */* ]] && words[0]=$(realpath "${words[0]}")
run_all shared "${words[@]}"
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
  { printf 'group\tsub-test\tnative\tshared\n'; printf '%s\n' "$differences"; } | column -t -s $'\t'
  echo "$(wc -l <<< "$differences") of $total sub-tests differ ($left_out left out that time out natively); logs: $out/{native,shared}/GROUP/SUBTEST.log"
  exit 1
fi
echo "$total sub-tests, every verdict the native one ($left_out left out that time out natively)"
