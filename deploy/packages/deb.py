"""The Debian package: a directory with the files' final paths, and dpkg-deb."""

import email.utils
import os
import shutil
import subprocess

from release import LIBRARY, PROGRAM, ROOT, compress, functions, hardware, output

DEBIAN = ROOT / "deploy/packages/debian"
DIRECTORY = "/usr/lib/baltra"
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/baltra",
    "zsh": "usr/share/zsh/vendor-completions/_baltra",
    "fish": "usr/share/fish/vendor_completions.d/baltra.fish",
}
CONFIGURATION = ["/etc/OpenCL/vendors/baltra.icd", "/etc/baltra/baltra.toml"]


def build(release, work, out):
    """Writes the package into `out`; returns its path."""
    architecture = output("dpkg", "--print-architecture").strip()
    root = work / "deb"
    shutil.rmtree(root, ignore_errors=True)
    put(root, "usr/bin/baltra", release.program.read_bytes(), 0o755)
    put(root, f"{DIRECTORY}/{LIBRARY}", release.library.read_bytes())
    put(root, "etc/OpenCL/vendors/baltra.icd", f"{DIRECTORY}/{LIBRARY}\n")
    put(root, "etc/baltra/baltra.toml", (DEBIAN / "baltra.toml").read_bytes())
    for name, (mode, content) in hardware().items():
        put(root, f"usr/share/baltra/hdl/{name}", content, mode)
    units(root)
    documents(release, root, work)
    control(release, root, architecture)
    stamp(root, release.epoch)
    package = out / f"{PROGRAM}_{release.version}_{architecture}.deb"
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(release.epoch)}
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--threads-max=1", "--build"]
    subprocess.run([*command, root, package], check=True, env=environment, stdout=subprocess.PIPE)
    return package


def put(root, path, content, mode=0o644):
    """Writes a file at its final path below `root`."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    target.chmod(mode)


def units(root):
    """The units of systemd start the installed program."""
    for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
        text = unit.read_text().replace("/usr/local/bin/", "/usr/bin/")
        put(root, f"lib/systemd/system/{unit.name}", text)


def documents(release, root, work):
    """Completions and manual pages, which the program writes; copyright, changelog, examples."""
    for shell, path in COMPLETIONS.items():
        put(root, path, output(release.program, "completion", shell))
    manual = work / "man"
    shutil.rmtree(manual, ignore_errors=True)
    manual.mkdir()
    output(release.program, "manual", manual)
    for page in sorted(manual.iterdir()):
        put(root, f"usr/share/man/man1/{page.name}.gz", compress(page.read_bytes()))
    share = "usr/share/doc/baltra"
    put(root, f"{share}/copyright", (DEBIAN / "copyright").read_bytes())
    put(root, f"{share}/changelog.gz", compress(changelog(release).encode()))
    for name, content in functions().items():
        put(root, f"{share}/examples/functions/{name}", content)
    put(root, "usr/share/lintian/overrides/baltra", (DEBIAN / "lintian-overrides").read_bytes())


def changelog(release):
    """Debian's format requires an entry per version; CHANGELOG.md has the changes."""
    date = email.utils.formatdate(release.epoch)
    return (
        f"baltra ({release.version}) stable; urgency=medium\n\n"
        f"  * Release {release.version}; CHANGELOG.md in the source lists the changes.\n\n"
        f" -- {maintainer()}  {date}\n"
    )


def maintainer():
    """The maintainer's line of the control file."""
    lines = (DEBIAN / "control").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("Maintainer:"))


def control(release, root, architecture):
    """The package's description and scripts."""
    files = [path for path in root.rglob("*") if path.is_file()]
    values = {
        "@VERSION@": release.version,
        "@ARCHITECTURE@": architecture,
        "@GLIBC@": ".".join(map(str, release.glibc)),
        "@SIZE@": str(sum(-(-path.stat().st_size // 1024) for path in files)),
    }
    text = (DEBIAN / "control").read_text()
    for name, value in values.items():
        text = text.replace(name, value)
    put(root, "DEBIAN/control", text)
    put(root, "DEBIAN/conffiles", "".join(f"{path}\n" for path in CONFIGURATION))
    for script in ("postinst", "prerm", "postrm"):
        put(root, f"DEBIAN/{script}", (DEBIAN / script).read_bytes(), 0o755)
    digests = output("md5sum", *sorted(str(path.relative_to(root)) for path in files), cwd=root)
    put(root, "DEBIAN/md5sums", digests)


def stamp(root, epoch):
    """Directories of mode 0755, and one time for everything."""
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    for path in [*root.rglob("*"), root]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)
