#!/usr/bin/env python3
"""Checks that files and functions stay short enough to read.

A source file has at most 800 lines. At most 0.2 % of the functions in Rust have more than 100 lines,
counted from `fn` to the closing brace as rustfmt places it.

usage: scripts/check_lengths.py           exit status: 0 clean, 1 too long
       scripts/check_lengths.py --list    also prints the functions over the limit
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 100
LONG_FUNCTIONS_MAX = 0.002
SOURCES = ["*.rs", "*.sv", "*.svh", "*.c", "*.h", "*.cpp", "*.hpp", "*.py", "*.js", "*.sh"]
# Generated from OpenCL's headers.
GENERATED = {"crates/opencl/src/bindings.rs"}

FUNCTION = re.compile(
    r"^( *)(?:pub(?:\([a-z: ]+\))? )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"[^\"]*\" )?fn (\w+)"
)


def functions(lines):
    """(name, line number, number of lines) of each function with a body of several lines."""
    for number, line in enumerate(lines):
        start = FUNCTION.match(line)
        if not start or line.endswith(("}", ";")):
            continue
        for end in range(number + 1, len(lines)):
            if lines[end] == start[1] + "}":
                yield start[2], number + 1, end - number + 1
                break
            # A declaration without a body, over several lines.
            if lines[end].startswith(start[1] + ")") and lines[end].endswith(";"):
                break


def main():
    if sys.argv[1:] not in ([], ["--list"]):
        sys.exit(__doc__)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    count, long, failed = 0, [], False
    for name in sorted(set(listed.stdout.split()) - GENERATED):
        path = ROOT / name
        # Git lists a file that was deleted until the deletion is committed.
        if not path.is_file():
            continue
        lines = path.read_text().splitlines()
        if len(lines) > FILE_LINES_MAX:
            print(f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}: split it by reason")
            failed = True
        if name.endswith(".rs"):
            for function, number, length in functions(lines):
                count += 1
                if length > FUNCTION_LINES_MAX:
                    long.append(f"{name}:{number}: '{function}' has {length} lines")
    share = len(long) / count
    failed |= share > LONG_FUNCTIONS_MAX
    if share > LONG_FUNCTIONS_MAX or sys.argv[1:]:
        print("\n".join(long))
    print(
        f"{len(long)} of {count} functions have more than {FUNCTION_LINES_MAX} lines"
        f" ({share:.2%}, at most {LONG_FUNCTIONS_MAX:.1%})"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
