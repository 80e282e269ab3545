#!/usr/bin/env python3
"""Tests the board as a device of the pool: functions pushed by the tool, OpenCL and the gateway
over its host port, and the same bytes by every way.

usage: device_test.py [PART OF A NAME …]     (no root; needs target/release/baltra and
                                             target/board/board)
"""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness import BUILT_IN, LOGS, PATIENCE_S, REGIONS, ROOT, UserBoard, functions, image, run

BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
PROGRAM = ROOT / "target/board/device"
WIDTH, HEIGHT = 128, 32
PICTURE = random.Random(8).randbytes(WIDTH * HEIGHT)


def until(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not (got := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)
    return got


class Node:
    """A manager with PoCL and boards, in separate directories."""

    def __init__(self, boards, home, settings):
        self.run_dir, self.home = home / "run", home
        text = '[metrics]\naddress = ""\n[[device]]\nname = "pocl"\nhost_memory = false\n'
        for i, board in enumerate(boards):
            text += (
                f'[[device]]\nname = "board{i or ""}"\ndriver = "board:{board.path}"\n{settings}\n'
            )
        (home / "config.toml").write_text(text)

    def __enter__(self):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = open(LOGS / "device-test.log", "w")
        start = lambda daemon, *more: subprocess.Popen(
            [
                BALTRA,
                daemon,
                "--runtime-dir",
                self.run_dir,
                "--state-dir",
                self.home / f"{daemon}-state",
                *more,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=self.environment(),
        )
        self.manager = start("manager", "--config", self.home / "config.toml")
        until(
            "the manager is ready",
            lambda: '"ready": true' in self.baltra("status", "--json", check=False).stdout,
        )
        return self

    def __exit__(self, *_):
        self.manager.terminate()
        self.manager.wait(PATIENCE_S)
        self.log.close()

    def environment(self):
        return {k: v for k, v in os.environ.items() if not k.startswith(("BALTRA_", "OCL_ICD"))}

    def baltra(self, *words, check=True, **more):
        done = subprocess.run(
            [BALTRA, "--runtime-dir", self.run_dir, *map(str, words)],
            capture_output=True,
            text=more.pop("text", True),
            env=self.environment(),
            timeout=PATIENCE_S,
            **more,
        )
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    def start(self, device, *words):
        """Starts the OpenCL program on a device."""
        command = [BALTRA, "--runtime-dir", self.run_dir, "run", "--device", device, "--", PROGRAM]
        return subprocess.Popen(
            [*command, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.environment(),
        )

    def program(self, device, *words, body=b""):
        """Runs the OpenCL program on a device; returns its output and its times."""
        done = self.baltra("run", "--device", device, "--", PROGRAM, *words, input=body, text=False)
        return done.stdout, [tuple(map(int, line.split())) for line in done.stderr.splitlines()]


@contextlib.contextmanager
def node(settings=""):
    """A board, and a node that has it."""
    with nodes(1, settings) as (boards, running):
        yield boards[0], running


@contextlib.contextmanager
def nodes(count, settings=""):
    compile_ = [
        "cc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-O1",
        "-o",
        PROGRAM,
        Path(__file__).with_name("device.c"),
        "-lOpenCL",
    ]
    subprocess.run(compile_, check=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        boards = []
        for i in range(count):
            path = directory / f"board{i}.sock"
            boards.append(stack.enter_context(UserBoard("--host-port", path)))
            boards[-1].path = path
        yield boards, stack.enter_context(Node(boards, directory, settings))


def http(url, body):
    """Status and body of a call over HTTP."""
    request = urllib.request.Request(
        url, data=body, method="POST", headers={"Content-Type": "application/octet-stream"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_same_bytes_by_every_way():
    with node() as (board, pool):
        source = ROOT / "apps/functions/sobel/sobel.cl"
        on_pocl, _ = pool.program("pocl", "sobel", "source", source, WIDTH, HEIGHT, body=PICTURE)
        on_board, times = pool.program(
            "board", "sobel", "image", BUILT_IN / "sobel.img", WIDTH, HEIGHT, body=PICTURE
        )
        by_itself = http(f"{board.url}/function/sobel?width={WIDTH}", PICTURE)
        with gateway(pool, board_function(pool)) as url:
            over_gateway = http(f"{url}/function/edges?width={WIDTH}&height={HEIGHT}", PICTURE)
        assert len(on_pocl) == len(PICTURE) and on_pocl != PICTURE
        assert on_board == on_pocl, "OpenCL on the board and on PoCL differ"
        assert by_itself == (200, on_pocl), "HTTP on the board differs"
        assert over_gateway == (200, on_pocl), (
            f"the gateway differs: {over_gateway[0]} {over_gateway[1][:200]}"
        )
        # Cycles of 6.4 ns, whatever the model's speed: eight bytes per cycle, and some more.
        (first_wait, first), (wait, second) = times
        assert all(len(PICTURE) / 8 * 6.4 <= ns <= len(PICTURE) * 6.4 for ns in (first, second)), (
            times
        )
        assert first_wait > wait, f"the first call was to load a region: {times}"


def test_opencl_c_runs_in_a_region():
    with node() as (_, pool):
        pool.program("pocl", "compiled")
        pool.program("board", "compiled", BUILT_IN / "echo.img")
        source = ROOT / "apps/functions/sobel/sobel.cl"
        words = ("sobel", "source", source, WIDTH, HEIGHT)
        on_pocl, _ = pool.program("pocl", *words, body=PICTURE)
        on_board, _ = pool.program("board", *words, body=PICTURE)
        assert on_board == on_pocl, "OpenCL C on the board and on PoCL differ"


def test_a_program_moves_from_a_processor_into_a_region_and_back():
    life = ROOT / "target/apps/life"
    subprocess.run(["make", "-s", "-C", ROOT / "apps", "life"], check=True)
    with node() as (_, pool):
        words = "--size 32x24 --generations 0 --read-every 1 --check".split()
        program = subprocess.Popen(
            [BALTRA, "--runtime-dir", pool.run_dir, "run", "--device", "pocl", "--", life, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=pool.log,
            text=True,
            env=pool.environment(),
        )
        try:
            assert program.stdout.readline().startswith("generation"), "it ended"
            for to in ("board", "pocl", "board"):
                (session,) = json.loads(pool.baltra("session", "ls", "--json").stdout)
                pool.baltra("session", "move", session["id"], "--to", to, "--force")
                for _ in range(2):
                    line = program.stdout.readline()
                    assert line.startswith("generation"), f"it ended on {to}: {line}"
                (session,) = json.loads(pool.baltra("session", "ls", "--json").stdout)
                assert session["device"] == to, session
        finally:
            program.kill()
            program.wait()


def test_kernels_in_regions_exchange_packets_of_pipes():
    program = PROGRAM.with_name("pipes")
    files = ["crates/tests/programs/pipes.c", "apps/common/clu.c"]
    compile_ = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-I", ROOT / "apps/common", "-o", program]
    files = [ROOT / file for file in files]
    subprocess.run([*compile_, *files, "-lOpenCL", "-lm"], check=True)
    with node() as (_, pool):
        modes = ("describes", "in_order", "queues", "errors")
        done = pool.baltra("run", "--device", "board", "--", program, "board", *modes)
        lines = done.stdout.splitlines()
        expected = (
            "support 1 args 15 reservations 65536 bytes 1024",
            "pipe 12 34 0 type 10f7 flags 201",
            "in order wrong 0 status 0",
            "together wrong 0 status 0",
            "argument -38 -50 -50 -38",
            "both -52",
        )
        assert not set(expected) - set(lines), lines


def board_function(pool):
    """A function whose only implementation is the board's."""
    directory = pool.home / "edges"
    directory.mkdir()
    (directory / "sobel.img").write_bytes((BUILT_IN / "sobel.img").read_bytes())
    shutil.copy(Path(__file__).with_name("edges.yaml"), directory / "function.yaml")
    return directory


@contextlib.contextmanager
def gateway(pool, *directories):
    settings = [
        "gateway.address=127.0.0.1:0",
        "gateway.grpc_address=",
        f"gateway.engine.endpoints=['unix:{pool.run_dir}/baltra.sock']",
    ]
    process = subprocess.Popen(
        [
            BALTRA,
            "--runtime-dir",
            pool.run_dir,
            "gateway",
            "--state-dir",
            pool.home / "gateway",
            *(word for setting in settings for word in ("--set", setting)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=pool.log,
        stderr=pool.log,
        env=pool.environment(),
    )
    try:
        url = until("the gateway listens", lambda: process.poll() is None and gateway_url(pool))
        for directory in directories:
            pool.baltra("function", "deploy", directory, "--gateway", url)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def gateway_url(pool):
    text = pool.baltra("status", check=False).stdout
    return next(
        (
            word
            for line in text.splitlines()
            for word in line.split()
            if word.startswith("http://127.0.0.1:")
        ),
        None,
    )


def test_a_board_has_what_opencl_says_and_refuses_the_rest():
    with node() as (_, pool):
        pool.program("board", "facts", BUILT_IN / "echo.img")
        # No state remains: another tenant's process finds the board unchanged.
        pool.program("board", "facts", BUILT_IN / "echo.img")


def test_programs_of_many_processes_share_the_regions():
    with node() as (board, pool):
        work = []
        for i in range(6):
            picture = random.Random(i).randbytes(WIDTH * HEIGHT)
            command = [
                BALTRA,
                "--runtime-dir",
                pool.run_dir,
                "run",
                "--device",
                "board",
                "--",
                PROGRAM,
                "sobel",
                "image",
                BUILT_IN / "sobel.img",
                str(WIDTH),
                str(HEIGHT),
            ]
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=pool.environment(),
            )
            work.append((picture, process))
        for picture, process in work:
            edges, _ = process.communicate(picture, timeout=PATIENCE_S)
            assert process.returncode == 0 and (200, edges) == http(
                f"{board.url}/function/sobel?width={WIDTH}", picture
            )


def test_the_images_of_the_regions_are_reported():
    with node() as (board, pool):

        def held():
            devices = json.loads(pool.baltra("devices", "--local", "--json").stdout)
            regions = {device["name"]: device["regions"] for device in devices}
            assert regions["pocl"] == []
            return {(region["digest"], region["name"]) for region in regions["board"]}

        assert held() == set()
        assert http(f"{board.url}/function/uppercase", b"words") == (200, b"WORDS")
        until("a function's image", lambda: held() == {("", "function uppercase")})
        assert ":function uppercase" in pool.baltra("devices", "--local").stdout
        pool.program("board", "sobel", "image", BUILT_IN / "sobel.img", WIDTH, HEIGHT, body=PICTURE)
        digest = hashlib.sha256((BUILT_IN / "sobel.img").read_bytes()).hexdigest()
        until("a program's image", lambda: (digest, "") in held())


def region_counts(pool):
    devices = json.loads(pool.baltra("devices", "--local", "--json").stdout)
    return {device["name"]: device["region_count"] for device in devices}


def test_the_manager_reports_the_board_s_regions():
    with node() as (_, pool):
        assert region_counts(pool) == {"pocl": 1, "board": REGIONS}


def test_a_board_that_holds_one_image_at_a_time():
    with node('image = "exclusive"') as (board, pool):
        assert region_counts(pool) == {"pocl": 1, "board": 1}
        for _ in range(2):
            edges, _ = pool.program(
                "board", "sobel", "image", BUILT_IN / "sobel.img", WIDTH, HEIGHT, body=PICTURE
            )
            assert (200, edges) == http(f"{board.url}/function/sobel?width={WIDTH}", PICTURE)
            pool.program("board", "facts", BUILT_IN / "echo.img")


def test_the_operator_learns_why_an_image_does_not_load():
    with node('image = "exclusive"') as (_, pool), tempfile.TemporaryDirectory() as home:
        whole = (BUILT_IN / "sobel.img").read_bytes()

        def load(name, content):
            path = Path(home) / name
            path.write_bytes(content)
            pool.baltra("accelerator", "push", path, "--name", name)
            return pool.baltra("accelerator", "load", name, "--device", "board", check=False)

        assert load("whole", whole).returncode == 0
        for name, content, reason in (
            ("shell", image("echo", shell=9), "for shell 0x9, but this board has shell 0x1"),
            ("damaged", image("echo")[:-300] + b"x" * 300, "body is damaged"),
            ("truncated", image("echo")[:-300], "truncated"),
            ("foreign", b"#!/bin/sh\n", "not an image of a region"),
        ):
            done = load(name, content)
            assert done.returncode != 0 and reason in done.stderr, (name, done.stderr)


def busy_cycles(board):
    with urllib.request.urlopen(f"{board.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        int(line.split()[1])
        for line in lines
        if line.startswith("baltra_board_kernel_busy_cycles_total")
    )


BOARDS_LIMIT = 1 << 26  # cycles of any launch


def test_an_endless_kernel_ends_with_its_session_or_at_its_limit():
    with node("task_ms = 5000") as (board, pool):
        words = ("sobel", "image", BUILT_IN / "sobel.img", WIDTH, HEIGHT)
        edges, _ = pool.program("board", *words, body=PICTURE)
        for leaves in (True, False):
            before = busy_cycles(board)
            with pool.start("board", "endless") as running:
                assert running.stdout.readline() == b"ready\n"
                until("the kernel runs", lambda: busy_cycles(board) > before + 5000)
                if leaves:
                    running.kill()
                # Other regions continue.
                assert http(f"{board.url}/function/sobel?width={WIDTH}", PICTURE) == (200, edges)
                if not leaves:
                    assert running.stdout.readline() == b"finish -2\n"  # CL_DEVICE_NOT_AVAILABLE
                # The board accepts calls over its host port again.
                assert pool.program("board", *words, body=PICTURE)[0] == edges
            # Reading the metrics occupies no region.
            until("the regions are idle", lambda: busy_cycles(board) == busy_cycles(board))
            assert busy_cycles(board) - before < BOARDS_LIMIT


def test_the_gateway_spreads_calls_over_boards():
    with nodes(2) as (boards, pool), gateway(pool, board_function(pool)) as url:
        right = http(f"{boards[0].url}/function/sobel?width={WIDTH}", PICTURE)
        before = [busy_cycles(board) for board in boards]
        pool.baltra("function", "scale", "edges", "2", "--gateway", url)

        def both_have_worked():
            with concurrent.futures.ThreadPoolExecutor(8) as callers:
                answers = callers.map(
                    lambda _: http(f"{url}/function/edges?width={WIDTH}&height={HEIGHT}", PICTURE),
                    range(16),
                )
                assert set(answers) == {right}
            return all(busy_cycles(board) > earlier for board, earlier in zip(boards, before))

        until("both boards have run calls", both_have_worked)


def test_a_board_that_is_gone_is_said():
    with node() as (board, pool):
        pool.program("board", "facts", BUILT_IN / "echo.img")
        board.process.terminate()
        board.process.wait(PATIENCE_S)
        done = pool.baltra(
            "run", "--device", "board", "--", PROGRAM, "facts", BUILT_IN / "echo.img", check=False
        )
        assert done.returncode != 0
        # Other devices continue.
        source = ROOT / "apps/functions/sobel/sobel.cl"
        edges, _ = pool.program("pocl", "sobel", "source", source, WIDTH, HEIGHT, body=PICTURE)
        assert len(edges) == len(PICTURE)


def test_the_tool_pushes_and_removes():
    with functions(only=(image("echo"), "")) as directory, tempfile.TemporaryDirectory() as home:
        path, home = Path(home) / "board.sock", Path(home)
        with UserBoard("--functions", directory, "--host-port", path) as board:
            tool = lambda *words: subprocess.run(
                [BALTRA, "function", *map(str, words), "--board", path],
                capture_output=True,
                text=True,
            )
            whole = BUILT_IN / "uppercase.img"
            done = tool("push", whole, f"shout={whole}")
            assert (
                done.returncode == 0
                and "uppercase: function" in done.stdout
                and "shout: function" in done.stdout
            ), done
            assert http(f"{board.url}/function/shout", b"words") == (200, b"WORDS")
            done = tool(
                "push",
                f"edges={BUILT_IN / 'sobel.img'}",
                "--scalars",
                "wide",
                "--timeout",
                "1000000",
            )
            assert (
                done.returncode == 0
                and http(f"{board.url}/function/edges?wide=8", bytes(64))[0] == 200
            ), done
            # Errors are detected before any image is pushed.
            bare, damaged, foreign, other = (
                home / "bare",
                home / "damaged",
                home / "foreign",
                home / "other",
            )
            bare.write_bytes(image("echo"))
            damaged.write_bytes(image("echo")[:-300] + b"x" * 300)
            foreign.write_bytes(b"#!/bin/sh\n")
            other.write_bytes(image("echo", shell=9))
            cases = [
                ((bare,), "does not name its kernel"),
                ((f"new={whole}", f"x={damaged}"), "body is damaged"),
                ((f"new={whole}", f"x={foreign}"), "not an image of a region"),
                (
                    (f"new={whole}", f"x={other}"),
                    "for shell 0x9, but this board has shell 0x1",
                ),
                ((f"a/b={whole}",), "invalid function name"),
                ((home / "nothing",), "No such file"),
                ((f"n={whole}", "--scalars", "a,b,c,d,e"), "at most 4"),
            ]
            for words, reason in cases:
                done = tool("push", *words)
                assert done.returncode != 0 and reason in done.stderr, (words, done.stderr)
            assert http(f"{board.url}/function/new", b"words")[0] == 404
            assert tool("remove", "shout").returncode == 0
            assert http(f"{board.url}/function/shout", b"words")[0] == 404
            done = tool("remove", "shout")
            assert done.returncode != 0 and "the function does not exist" in done.stderr, done
        done = subprocess.run(
            [BALTRA, "function", "push", whole, "--board", path], capture_output=True, text=True
        )
        assert done.returncode != 0 and "baltra board --host-port" in done.stderr, done


if __name__ == "__main__":
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
