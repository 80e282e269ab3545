"""Runs the demonstration's program in a guest: kernel_demo_guest.py DIRECTORY OPTIONS."""

import json
import sys
from pathlib import Path

from guest import Guest

run, options = Path(sys.argv[1]), sys.argv[2]
vm = json.loads((run / "vm").read_text())
device = ["-chardev", f"socket,path={vm['socket']},id=vfun"]
device += ["-device", f"ivshmem-doorbell,vectors={vm['vectors']},chardev=vfun"]
guest = Guest("demo", device)
try:
    guest.ready()
    environment = "LD_LIBRARY_PATH=/opencl BALTRA_TRANSPORT=ivshmem BALTRA_DEVICE=board"
    said = guest.command(f"{environment} /opencl/sobel {options} --output /tmp/edges.ppm")
    # The loader may print something before it.
    (run / "vm.json").write_text(said.splitlines()[-1])
    (run / "vm.sha256").write_text(guest.command("sha256sum /tmp/edges.ppm").split()[0])
finally:
    guest.kill()
