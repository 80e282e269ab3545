#!/usr/bin/env bash
# Builds some of CLBlast's correctness tests against the distribution's CLBlast and reference BLAS, for gpu.sh.
#
#   clblast.sh SOURCE OUT [ROUTINE…]    default: xaxpy xdot xamax xgemm
#
# SOURCE is a tree of CLBlast's sources of the installed library's version (Debian 12: tag 1.5.3), of which only the
# tests are compiled. Needs libclblast-dev, libblas-dev and ocl-icd-opencl-dev.
set -euo pipefail
[[ $# -ge 2 && -d ${1:-}/test/correctness ]] || { sed -n 's/^# \{0,1\}//;2,7p' "$0" >&2; exit 2; }
source=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
routines=("$@")
((${#routines[@]})) || routines=(xaxpy xdot xamax xgemm)
flags=(-std=c++11 -O2 -w -DOPENCL_API -DCLBLAST_REF_CBLAS -DCL_TARGET_OPENCL_VERSION=120 -I"$source/include" -I"$source/src" -I"$source")
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for file in test/test_utilities.cpp test/correctness/testblas.cpp test/correctness/tester.cpp \
    src/utilities/utilities.cpp src/utilities/clblast_exceptions.cpp; do
    g++ "${flags[@]}" -c "$source/$file" -o "$objects/$(basename "$file" .cpp).o"
done
for routine in "${routines[@]}"; do
    g++ "${flags[@]}" "$source"/test/correctness/routines/level*/"$routine.cpp" "$objects"/*.o \
        -s -o "$out/clblast_test_$routine" -lclblast -lblas -lOpenCL
done
