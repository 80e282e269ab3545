#!/usr/bin/env bash
# Builds the programs of the previous release from its commit, for the tests of compatibility, and keeps them in
# target/releases/VERSION. It takes about 15 minutes of a processor once; a second run changes nothing.
#
# usage: scripts/previous_release.sh           prints the directory
#
# BALTRA_RELEASES=DIRECTORY   keeps the releases there, for several checkouts (default: target/releases)
set -euo pipefail
cd "$(dirname "$0")/.."

# The last commit of the release.
version=0.1.0
commit=902fb8588542

releases=$(realpath -m "${BALTRA_RELEASES:-target/releases}")
kept=$releases/$version
if [[ ! -d $kept ]]; then
    if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
        echo "error: the repository lacks commit $commit of release $version (git fetch --unshallow)" >&2
        exit 1
    fi
    work=$releases/$version.partial
    rm -rf "$work/source"
    mkdir -p "$work/source" "$work/programs"
    git archive "$commit" | tar --extract --directory "$work/source"
    # Without debug information, which takes a third of the build's time and most of its space. A build that is
    # interrupted continues where it stopped.
    (cd "$work/source" && CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR=$work/target \
        cargo build --locked -p baltra-cli -p baltra-icd) >&2
    for program in baltra libbaltra_opencl.so; do
        cp "$work/target/debug/$program" "$work/programs/"
    done
    echo "$version $commit" >"$work/programs/RELEASE"
    mv "$work/programs" "$kept"
    rm -rf "$work"
fi
echo "$kept"
