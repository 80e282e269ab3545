"""The program `baltra` of this package, and its environment."""

import importlib.util
import os
from pathlib import Path
from typing import Dict, Mapping, Optional

PACKAGE = Path(__file__).resolve().parent
PROGRAM = PACKAGE / "bin" / "baltra"
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
# The package of the extra `pocl` adds its driver to this one.
POCL_PACKAGE = "pyopencl"
POCL_DRIVER = "libpocl*.so*"


def environment(base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """A copy of `base` (by default, of this process's environment) for the program.

    If the host registers no OpenCL driver and PoCL is installed as a Python package, the daemons
    use that one."""
    variables = dict(os.environ if base is None else base)
    # Baltra's own file does not count: it registers the shared devices.
    if all(icd.name == "baltra.icd" for icd in SYSTEM_VENDORS.glob("*.icd")):
        driver = _pocl()
        if driver is not None:
            variables.setdefault("BALTRA_DEVICE__DRIVER", str(driver))
    return variables


def _pocl() -> Optional[Path]:
    """The driver in PoCL's Python package."""
    found = importlib.util.find_spec(POCL_PACKAGE)
    for directory in (found.submodule_search_locations or []) if found else []:
        for driver in sorted((Path(directory) / ".libs").glob(POCL_DRIVER)):
            return driver.resolve()
    return None
