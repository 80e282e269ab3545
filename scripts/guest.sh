#!/usr/bin/env bash
# Builds the guest of the VM door's tests: target/vm/vmlinuz and target/vm/initramfs, the static guest programs
# target/vm/bin/vfun and target/vm/lib/libvfun.a, and vfun.h in target/vm/include. Kernel and shell are unpacked
# from their Debian packages without installing them. The script can be run again at any time.
# OpenCL programs (run make build apps first) are copied from the host unchanged, with their libraries.
#   scripts/guest.sh            everything
#   scripts/guest.sh programs   only the static programs
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/vm
mkdir -p "$out/bin" "$out/lib" "$out/include" "$out/packages"

# Static linking gives one file for any guest. The flags would rebuild all crates, hence a target directory of its own.
RUSTFLAGS='-C target-feature=+crt-static' cargo rustc --quiet --release --locked -p baltra-vguest \
  --target x86_64-unknown-linux-gnu --lib --crate-type staticlib
RUSTFLAGS='-C target-feature=+crt-static' cargo build --quiet --release --locked -p baltra-vguest \
  --target x86_64-unknown-linux-gnu --bin vfun
built=target/x86_64-unknown-linux-gnu/release
objcopy --strip-debug "$built/vfun" "$out/bin/vfun"
objcopy --strip-debug "$built/libbaltra_vguest.a" "$out/lib/libvfun.a"
cp crates/vguest/include/vfun.h "$out/include/"
[[ ${1:-} == programs ]] && exit

# package FILE…: unpacks the newest version of a package, unless the files exist.
unpack() {
  local package=$1 file
  for file in "${@:2}"; do
    compgen -G "$out/unpacked/$file" > /dev/null || {
      (cd "$out/packages" && rm -f "$package"_*.deb && apt-get -qq -o APT::Sandbox::User=root download "$package")
      dpkg-deb -x "$out/packages/$package"_*.deb "$out/unpacked"
      return
    }
  done
}
kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
if [[ -z $kernel ]]; then
  echo "error: package linux-image-cloud-amd64 not found (run apt-get update)" >&2
  exit 3
fi
unpack "$kernel" "boot/vmlinuz-*"
unpack busybox-static bin/busybox
cp "$out"/unpacked/boot/vmlinuz-* "$out/vmlinuz"

tests=crates/vfun/tests/guest
cc=(cc -O2 -g -std=gnu11 -Wall -Wextra -Werror -static -Wl,--gc-sections,--no-warnings -I "$out/include" -I crates/native/include)
"${cc[@]}" "$tests/hostile.c" -o "$out/bin/hostile" -L "$out/lib" -lvfun -lpthread
"${cc[@]}" bench/vm/caller.c -o "$out/bin/caller" -L "$out/lib" -lvfun -lpthread -lm

tree=$out/tree
rm -rf "$tree"
mkdir -p "$tree"/{bin,lib,proc,run,sys,dev,tmp}
cp "$out/unpacked/bin/busybox" "$out/bin/vfun" "$out/bin/hostile" "$out/bin/caller" "$tree/bin/"
for applet in sh mount stty grep cat echo ls sleep kill poweroff insmod ip head seq sha256sum tr wc dd true timeout; do
  ln -s busybox "$tree/bin/$applet"
done
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net virtio_console \
  irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do
  find "$out/unpacked/lib/modules" -name "$module.ko" -exec cp {} "$tree/lib/" \;
done
# The loader keeps the path that it has on the host, because the programs are copied unchanged.
mkdir -p "$tree/opencl" "$tree/lib64"
cp target/apps/sobel target/apps/matmul "$tree/opencl/"
objcopy --strip-debug "$(dirname "${BALTRA:-target/release/baltra}")/libbaltra_opencl.so" "$tree/opencl/libOpenCL.so.1"
for file in "$tree"/opencl/*; do
  ldd "$file" | awk '/=> \// && !/libOpenCL/ {print $3}'
done | sort -u | xargs -I{} cp -L {} "$tree/opencl/"
cp -L /lib64/ld-linux-x86-64.so.2 "$tree/lib64/"
cp "$tests/init" "$tree/init"
chmod +x "$tree/init"
(cd "$tree" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 | gzip -1) > "$out/initramfs"
