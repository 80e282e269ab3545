"""Runs the demonstration's program in a guest: kernel_demo_guest.py DIRECTORY OPTIONS."""

import json
import sys
from pathlib import Path

from guest import Guest, ivshmem

run, options = Path(sys.argv[1]), sys.argv[2]
guest = Guest("demo", ivshmem(json.loads((run / "vm").read_text())))
try:
    guest.ready()
    environment = "LD_LIBRARY_PATH=/opencl BALTRA_TRANSPORT=ivshmem BALTRA_DEVICE=board"
    said = guest.command(f"{environment} /opencl/sobel {options} --output /tmp/edges.ppm")
    # The loader may print something before it.
    (run / "vm.json").write_text(said.splitlines()[-1])
    (run / "vm.sha256").write_text(guest.command("sha256sum /tmp/edges.ppm").split()[0])
finally:
    guest.kill()
