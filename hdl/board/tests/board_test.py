#!/usr/bin/env python3
"""Tests the functions of the board's model: calls, regions, images, and how it starts.

usage: board_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import concurrent.futures
import hashlib
import http.client
import json
import random
import socket
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from client import URL, Answers, call, cold_starts, connect, curl, metrics, patient, request
from harness import (
    BOARD_IP,
    DEVICE,
    MODEL,
    PATIENCE_S,
    REGIONS,
    Board,
    UserBoard,
    enter_namespace,
    functions,
    image,
    run,
)

BUILT_IN_FUNCTIONS = [
    "echo",
    "uppercase",
    "checksum",
    "sobel",
    "sha256",
    "aes128",
    "matmul",
    "convolution",
]


def test_ping():
    with Board():
        # One at a time: ping waits for the last reply only as long as the earlier ones took.
        for size in [1000] * 100 + [1472] * 5:
            done = subprocess.run(
                ["ping", "-c1", f"-W{PATIENCE_S}", "-s", str(size), "-q", BOARD_IP],
                capture_output=True,
                text=True,
            )
            assert " 0% packet loss" in done.stdout, done.stdout


def test_own_answers():
    with Board():
        assert curl(f"{URL}/healthz") == b"ok\n"
        names = [f["name"] for f in json.loads(curl(f"{URL}/system/functions"))]
        assert sorted(names) == sorted(BUILT_IN_FUNCTIONS), names
        numbers = metrics()
        assert numbers["requests_total"] == 2 and numbers["connections"] >= 1, numbers
        assert curl("-X", "POST", f"{URL}/function/echo") == b""


def test_functions():
    with Board():
        for size in [1, 7, 8, 9, 63, 64, 65, 1000, 1460, 4096, 50000]:
            body = random.Random(size).randbytes(size)
            assert curl("--data-binary", "@-", f"{URL}/function/echo", body=body) == body, size
            expect = bytes(b - 32 if 97 <= b <= 122 else b for b in body)
            assert curl("--data-binary", "@-", f"{URL}/function/uppercase", body=body) == expect, (
                size
            )
            crc = zlib.crc32(body)
            assert curl(
                "--data-binary", "@-", f"{URL}/function/checksum", body=body
            ) == struct.pack("<I", crc)
            assert (
                curl("--data-binary", "@-", f"{URL}/function/checksum?hex=1", body=body)
                == b"%08x" % crc
            )
            assert (
                curl("--data-binary", "@-", f"{URL}/function/sha256", body=body)
                == hashlib.sha256(body).digest()
            )


def sobel(pixels, width):
    height = len(pixels) // width
    at = lambda x, y: pixels[min(max(y, 0), height - 1) * width + min(max(x, 0), width - 1)]
    out = bytearray()
    for y in range(height):
        for x in range(width):
            n = [[at(x + i, y + j) for i in (-1, 0, 1)] for j in (-1, 0, 1)]
            gx = n[0][2] + 2 * n[1][2] + n[2][2] - n[0][0] - 2 * n[1][0] - n[2][0]
            gy = n[2][0] + 2 * n[2][1] + n[2][2] - n[0][0] - 2 * n[0][1] - n[0][2]
            out.append(min(abs(gx) + abs(gy), 255))
    return bytes(out)


def test_scalars():
    with Board():
        for width, height in [(1, 1), (8, 8), (33, 20), (100, 7)]:
            picture = random.Random(width).randbytes(width * height)
            got = curl("--data-binary", "@-", f"{URL}/function/sobel?width={width}", body=picture)
            assert got == sobel(picture, width), (width, height)
        # NIST SP 800-38A, F.5.1, the key in four scalars; a call with the reply returns the text.
        key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
        counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
        text = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
        query = "&".join(f"key{i}={n}" for i, n in enumerate(struct.unpack("<4I", key)))
        out = curl("--data-binary", "@-", f"{URL}/function/aes128?{query}", body=counter + text)
        assert out == counter + bytes.fromhex("874d6191b620e3261bef6864990db6ce")
        assert (
            curl("--data-binary", "@-", f"{URL}/function/aes128?{query}", body=out)
            == counter + text
        )


def signed(data):
    return [b - 256 if b > 127 else b for b in data]


def test_matrix_product():
    with Board():
        for rows, inner, columns in [(1, 1, 1), (3, 5, 2), (8, 8, 8), (9, 64, 17)]:
            body = random.Random(rows).randbytes(rows * inner + inner * columns)
            n = signed(body)
            a, b = n[: rows * inner], n[rows * inner :]
            want = [
                sum(a[i * inner + k] * b[k * columns + j] for k in range(inner))
                for i in range(rows)
                for j in range(columns)
            ]
            query = f"?rows={rows}&inner={inner}&columns={columns}"
            assert call("matmul", body, query) == (200, struct.pack(f"<{len(want)}i", *want)), (
                rows,
                inner,
                columns,
            )


def convolution(body, width, ins, outs, shift):
    weights, rest = signed(body[: outs * 9 * ins]), body[outs * 9 * ins :]
    bias, picture = struct.unpack(f"<{outs}i", rest[: 4 * outs]), signed(rest[4 * outs :])
    height = len(picture) // (width * ins)
    out = bytearray()
    for y in range(height):
        for x in range(width):
            for o in range(outs):
                total = bias[o]
                for ky in range(3):
                    for kx in range(3):
                        py, px = y + ky - 1, x + kx - 1
                        if 0 <= py < height and 0 <= px < width:
                            for c in range(ins):
                                total += (
                                    weights[((o * 3 + ky) * 3 + kx) * ins + c]
                                    * picture[(py * width + px) * ins + c]
                                )
                out.append(min(max((total + (1 << shift >> 1)) >> shift, 0), 127))
    return bytes(out)


def test_convolution_layer():
    draw = random.Random(2)
    with Board():
        for width, height, ins, outs, shift in [
            (1, 1, 1, 1, 0),
            (7, 5, 3, 4, 9),
            (12, 3, 2, 6, 10),
        ]:
            body = draw.randbytes(outs * 9 * ins)
            body += struct.pack(f"<{outs}i", *(draw.randrange(-20000, 20000) for _ in range(outs)))
            body += draw.randbytes(width * height * ins)
            query = f"?width={width}&in={ins}&out={outs}&shift={shift}"
            assert call("convolution", body, query) == (
                200,
                convolution(body, width, ins, outs, shift),
            ), query


def test_cold_then_warm():
    with Board():
        assert cold_starts() == 0
        for i in range(5):
            assert call("uppercase", b"again") == (200, b"AGAIN")
            assert cold_starts() == 1
        assert call("echo", b"another") == (200, b"another")
        numbers = metrics()
        assert sum(numbers[f'cold_starts_total{{region="{r}"}}'] for r in range(REGIONS)) == 2, (
            numbers
        )
        busy = [numbers[f'busy_cycles_total{{region="{r}"}}'] for r in range(REGIONS)]
        assert sum(n > 0 for n in busy) == 2 and sum(busy) == numbers["kernel_busy_cycles_total"], (
            numbers
        )


def test_more_functions_than_regions():
    names = {
        f"f{i}": ("uppercase", bytes.upper) if i % 2 else ("echo", bytes)
        for i in range(3 * REGIONS)
    }
    with functions(
        **{name: (image(kernel), "") for name, (kernel, _) in names.items()}
    ) as directory:
        for policy in ("fifo", "affinity", "shortest"):

            def client(i):
                draw = random.Random(i)
                connection = http.client.HTTPConnection(BOARD_IP, timeout=PATIENCE_S)
                for _ in range(40):
                    name, body = (
                        draw.choice(list(names)),
                        draw.randbytes(draw.choice([0, 1, 64, 1000, 5000])),
                    )
                    connection.request("POST", f"/function/{name}", body)
                    if connection.getresponse().read() != names[name][1](body):
                        return False
                return True

            with Board("--functions", directory, "--policy", policy, log=f"policy-{policy}"):
                with concurrent.futures.ThreadPoolExecutor(12) as pool:
                    assert all(pool.map(client, range(12))), policy
                assert cold_starts() >= len(names), policy


def test_many_functions():
    names = [f"function-{i}" for i in range(20)]
    with functions(**{name: (image("echo", 256), "") for name in names}) as directory:
        with Board("--functions", directory):
            assert sorted(f["name"] for f in json.loads(curl(f"{URL}/system/functions"))) == sorted(
                names
            )
            assert b"Content-Length:" in curl("--head", f"{URL}/system/functions")
            for name in names:
                assert call(name, name.encode()) == (200, name.encode())
                assert call(f"{name}x")[0] == 404 and call(name[:-1] + "y")[0] == 404


def test_images_that_are_refused():
    good = image("uppercase", 4096)
    flipped = lambda at: good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
    bad = {
        "damaged-body": flipped(2000),
        "damaged-header": flipped(17),
        "damaged-magic": flipped(1),
        "no-image": random.Random(1).randbytes(4096),
        "empty-file": b"",
        "cut-short": good[:1024],
    }
    images = {name: (content, "") for name, content in bad.items()}
    with functions(good=(good, ""), **images) as directory, Board("--functions", directory):
        for _ in range(2):
            for name in bad:
                status, text = call(name, b"x" * 3000)
                assert status == 500 and b"image" in text, (name, status, text)
                assert call("good", b"still") == (200, b"STILL"), name
        assert call("good", b"and now") == (200, b"AND NOW")
        # The connection is still synchronized after a refusal, with the body skipped.
        s = connect()
        s.sendall(request(b"a" * 5000, "damaged-magic") + request(b"next", "good"))
        answers = Answers(s)
        assert answers.next()[0] == 500 and answers.next() == (200, b"NEXT")


def test_functions_of_one_region():
    def loads():
        numbers = metrics()
        return [numbers[f'cold_starts_total{{region="{r}"}}'] for r in range(REGIONS)]

    by_image = {f"f{r}": (image("uppercase", region=r), "") for r in range(REGIONS)}
    by_line = {f"g{r}": (image("echo"), f"region={r}") for r in range(REGIONS)}
    with functions(**by_image, **by_line) as directory, Board("--functions", directory):
        for r in [*range(REGIONS), *reversed(range(REGIONS))]:
            before = loads()
            # The two functions of a region replace each other, and no others.
            assert call(f"f{r}", b"words") == (200, b"WORDS")
            assert call(f"g{r}", b"words") == (200, b"words")
            more = [new - old for old, new in zip(before, loads(), strict=True)]
            assert more == [2 if i == r else 0 for i in range(REGIONS)], (r, more)


def test_kernels_that_never_end():
    stuck = image("stuck", 256)
    with (
        functions(
            stuck=(stuck, "timeout=20000 scalars=deaf"),
            echo=(image("echo"), ""),
            unknown=(image(200, 256), "timeout=20000"),
        ) as directory,
        Board("--functions", directory),
    ):
        for body in (b"", b"x", b"x" * 50000):
            for query in ("", "?deaf=1"):
                status, text = call("stuck", body, query)
                assert status == 503 and b"in time" in text, (len(body), query, status, text)
                assert call("echo", body) == (200, body)
        # An image that names a missing kernel behaves like a kernel that does nothing.
        assert call("unknown", b"anyone?")[0] == 503
        s = connect()
        s.sendall(request(b"a" * 5000, "stuck") + request(b"next", "echo"))
        answers = Answers(s)
        assert answers.next()[0] == 503 and answers.next() == (200, b"next")
        numbers = metrics()
        assert numbers["errors_total"] == 8, numbers


def test_other_regions_answer_while_some_are_stuck():
    with (
        functions(
            **{f"stuck{i}": (image("stuck", 256), "timeout=3000000") for i in range(REGIONS - 1)},
            echo=(image("echo"), ""),
            upper=(image("uppercase"), ""),
        ) as directory,
        Board("--functions", directory),
    ):
        with concurrent.futures.ThreadPoolExecutor(REGIONS) as pool:
            stuck = [pool.submit(call, f"stuck{i}", b"for long") for i in range(REGIONS - 1)]
            while cold_starts() < REGIONS - 1:
                pass
            for i in range(20):  # both share the remaining region
                assert call("echo", b"%d" % i) == (200, b"%d" % i)
                assert call("upper", b"x%d" % i) == (200, b"X%d" % i)
            assert not any(s.done() for s in stuck), (
                "stuck calls ended before the others had replies"
            )
            assert [s.result()[0] for s in stuck] == [503] * (REGIONS - 1)
        alive_functions = json.loads(curl(f"{URL}/system/functions"))
        assert len(alive_functions) == REGIONS + 1
        for i in range(REGIONS + 1):
            assert call("echo", b"all of them again") == (200, b"all of them again")


def test_other_regions_answer_during_a_load():
    with functions(large=(image("uppercase", 8 << 20), ""), echo=(image("echo"), "")) as directory:
        with Board("--functions", directory):
            assert call("echo", b"warm") == (200, b"warm")
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                cold = pool.submit(call, "large", b"two million cycles")
                # Two more than there are regions: these calls do not wait for the load.
                for i in range(20):
                    body = random.Random(i).randbytes(1000)
                    assert call("echo", body) == (200, body)
                assert not cold.done(), "the load ended before the others had replies"
                assert cold.result() == (200, b"TWO MILLION CYCLES")
            assert call("large", b"warm") == (200, b"WARM")
            assert cold_starts() == 2


def test_slow_and_quick_functions_on_one_connection():
    slow = random.Random(3).randbytes(20000)
    with Board():
        s = connect()
        calls = [
            ("sha256", slow),
            ("echo", b"a"),
            ("uppercase", b"b"),
            ("sha256", slow),
            ("echo", b"c"),
        ] * 4
        s.sendall(b"".join(request(body, name) for name, body in calls))
        want = {
            "sha256": lambda b: hashlib.sha256(b).digest(),
            "echo": bytes,
            "uppercase": bytes.upper,
        }
        answers = Answers(s)
        for name, body in calls:
            assert answers.next() == (200, want[name](body)), name


def test_clients_that_leave_during_a_call():
    reset = struct.pack("ii", 1, 0)
    with functions(
        stuck=(image("stuck", 256), "timeout=200000"),
        large=(image("uppercase", 1 << 20), ""),
        echo=(image("echo"), ""),
        upper=(image("uppercase"), ""),
    ) as directory:
        with Board("--functions", directory):
            for i in range(40):
                s = connect(5)
                s.sendall(request(b"gone" * 100, ["stuck", "large", "echo"][i % 3]))
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                s.close()
            for i in range(5):
                assert patient(lambda: call("upper", b"still here", seconds=20)) == (
                    200,
                    b"STILL HERE",
                )


def refused(directory, *options):
    done = subprocess.run(
        [MODEL, "--tap", DEVICE, "--functions", directory, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


def test_functions_that_cannot_be_provisioned():
    lines = {
        "a/b echo.img": "not a valid function name",
        "sixteen-letters- echo.img": "not a valid function name",
        'quo"te echo.img': "not a valid function name",
        "echo": "not a file of this directory",
        "echo ../functions/echo.img": "not a file of this directory",
        "echo missing.img": "cannot be read",
        "echo echo.img timeout=-1": "not a number",
        "echo echo.img timeout=4294967296": "not a number",
        "echo echo.img speed=8": "not a number",
        "echo echo.img scalars=a,b,c,d,e": "four scalars",
        "echo echo.img scalars=ninechars": "not a valid scalar name",
        f"echo echo.img region={REGIONS}": "not a number",
        "echo echo.img color=red": "unknown",
        "echo shell.img": "the image is for shell 0x2, the board has 0x1",
        "echo region.img": f"the image is for region 77, the board has {REGIONS}",
        "echo echo.img\necho2 huge.img": "is full",
        "# nothing": "no functions",
    }
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "echo.img").write_bytes(image("echo"))
        (Path(directory) / "shell.img").write_bytes(image("echo", shell=2))
        (Path(directory) / "region.img").write_bytes(image("echo", region=77))
        with open(Path(directory) / "huge.img", "wb") as huge:
            huge.truncate(40 << 20)
        for line, why in lines.items():
            (Path(directory) / "functions.conf").write_text(line + "\n")
            text = refused(directory)
            assert why in text and "functions.conf" in text or "missing.img" in text, (line, text)
        assert "cannot be read" in refused(directory + "/nowhere")
        assert "--policy" in refused(directory, "--policy", "best")


def test_user_mode_networking():
    with UserBoard() as board:
        for size in [0, 1, 1459, 1460, 1461, 70000, 1 << 20]:
            body = random.Random(size).randbytes(size)
            out = curl("--data-binary", "@-", f"{board.url}/function/echo", body=body)
            assert out == body, (size, len(out))

        def client(i):
            draw = random.Random(i)
            connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=PATIENCE_S)
            for _ in range(20):
                body = draw.randbytes(draw.choice([0, 1, 64, 1460, 10000, 60000]))
                connection.request("POST", "/function/uppercase", body)
                if connection.getresponse().read() != body.upper():
                    return False
            connection.close()
            return True

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            assert all(pool.map(client, range(12)))
        # Both directions: the client closes first, the board closes first, the client resets.
        s = socket.create_connection(("127.0.0.1", board.port), PATIENCE_S)
        s.sendall(request(b"half"))
        s.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: s.recv(4096), b"")).endswith(b"half")
        s = socket.create_connection(("127.0.0.1", board.port), PATIENCE_S)
        s.sendall(request(b"close", head="Connection: close\r\n"))
        assert b"".join(iter(lambda: s.recv(4096), b"")).endswith(b"close")
        for i in range(40):
            s = socket.create_connection(("127.0.0.1", board.port), PATIENCE_S)
            s.sendall(request(b"z" * 20000)[: [1, 500, 30000][i % 3]])
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        # A client that does not read blocks no others.
        s = socket.create_connection(("127.0.0.1", board.port), PATIENCE_S)
        body = random.Random(1).randbytes(1 << 20)
        s.sendall(request(body))
        assert curl("-d", "others", f"{board.url}/function/uppercase") == b"OTHERS"
        assert Answers(s).next() == (200, body)
        # More clients than the board has sessions: idle ones are closed for new ones.
        idle = [socket.create_connection(("127.0.0.1", board.port), PATIENCE_S) for _ in range(16)]
        for s in idle:
            s.sendall(request(b"x"))
            assert Answers(s).next() == (200, b"x")
        assert curl("-d", "seventeenth", f"{board.url}/function/uppercase") == b"SEVENTEENTH"


def test_networks_that_cannot_be_had():
    taken = socket.create_server(("127.0.0.1", 0))
    cases = {
        ("--net", "user", "--forward", f"127.0.0.1:{taken.getsockname()[1]}"): "in use",
        ("--net", "user", "--forward", "nowhere:80"): "IPv4",
        ("--net", "user", "--forward", "127.0.0.1:65536"): "not a port",
        ("--net", "user", "--loss", "0.1"): "TAP",
        ("--net", "user", "--tap", DEVICE): "--tap",
        ("--net", "token-ring"): "token-ring",
        (): "--tap",
    }
    for options, why in cases.items():
        done = subprocess.run([MODEL, *options], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 2 and why in done.stderr, (options, done.returncode, done.stderr)


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
