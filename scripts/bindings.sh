#!/usr/bin/env bash
# Regenerates crates/opencl/src/bindings.rs from the installed opencl-headers.
# Needs bindgen (cargo install bindgen-cli) and libclang 14 (libclang-14-dev).
set -euo pipefail
cd "$(dirname "$0")/.."
header=$(mktemp --suffix .h)
trap 'rm -f "$header"' EXIT
{
    echo '#define CL_TARGET_OPENCL_VERSION 300'
    for v in 1_0 1_1 1_2 2_0 2_1 2_2; do echo "#define CL_USE_DEPRECATED_OPENCL_${v}_APIS"; done
    printf '#include <CL/%s>\n' cl.h cl_ext.h cl_icd.h
} >"$header"
clang=$(echo /usr/lib/llvm-14/lib/clang/14*/include)
LIBCLANG_PATH=/usr/lib/llvm-14/lib bindgen "$header" \
    --allowlist-var 'CL_.*' --allowlist-type '_?cl_.*' \
    --no-layout-tests --no-doc-comments --default-macro-constant-type signed --use-core \
    -- -nostdinc -isystem "$clang" -isystem /usr/include -isystem /usr/include/x86_64-linux-gnu \
    -U__SSE__ -U__SSE2__ -U__MMX__ >crates/opencl/src/bindings.rs
