#!/usr/bin/env python3
"""Differential test of the board's HTTP parser against h11, on generated requests.

usage: reference_test.py [--requests N] [--seed N]   (make -C hdl/board units builds the bench)

- The parser does not accept a request that h11 rejects.
- If the parser rejects a request that h11 accepts, `stricter` names the reason.
- If both accept it, method, path, parameters, body and the bytes left over are equal.
"""

import argparse
import collections
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote_to_bytes

import h11

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "target" / "hdl" / "board-tb" / "http_parse-0" / "bench"
METHODS = {0: "GET", 1: "HEAD", 2: "POST", 3: "OPTIONS"}
OTHER_METHODS = {"PUT", "DELETE", "PATCH"}
ROUTES = {b"/system/functions": 5, b"/healthz": 3, b"/metrics": 4}
LONGEST_BODY, LONGEST_HEAD = 12 << 20, 8192
# RFC 3986: the characters of a host and its port, and of a path or a query.
HOST = re.compile(rb"[A-Za-z0-9\-._~%!$&'()*+,;=:\[\]]*")
TARGET = re.compile(rb"[!-~]*")
CONTROL = rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
NO_TARGET = re.compile(rb"[#^`|]")
UNRESERVED = re.compile(rb"%(2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")


def decoded(path):
    """The path with its unreserved characters decoded, or None if others are encoded."""
    plain = UNRESERVED.sub(lambda match: unquote_to_bytes(match[0]), path)
    return None if b"%" in plain else plain


class Reference:
    """h11's result: `why` it rejects the request, or the request, its body and the bytes left."""

    def __init__(self, text):
        self.why, self.complete, self.body, self.request, self.left = None, False, b"", None, b""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        try:
            # h11 does not accept empty lines before a request (RFC 9112 section 2.2).
            connection.receive_data(re.sub(rb"^(\r?\n)+", b"", text))
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    self.request = event
                    self.expects = connection.client_is_waiting_for_100_continue
                elif isinstance(event, h11.Data):
                    self.body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self.complete = True
                    self.left = connection.trailing_data[0]
                    break
        except h11.RemoteProtocolError as error:
            self.why = str(error)

    def fields(self, name):
        return [bytes(value) for field, value in self.request.headers if field == name]


def origin(target):
    """(path, query) of a target in an accepted form, or None."""
    absolute = re.fullmatch(rb"(?i:http)://([^/?]*)(.*)", target, re.S)
    if absolute:
        authority, target = absolute[1], absolute[2]
        if not authority or authority.startswith(b":") or not HOST.fullmatch(authority):
            return None
    elif not target.startswith(b"/"):
        return None
    path, mark, query = target.partition(b"?")
    return path, query if mark else None


def route_of(target):
    """(http_pkg::route_t, function name, value of `hex`); '!' if a parameter is invalid."""
    if target == b"*":
        return 6, b"", None
    path, query = origin(target)
    path = decoded(path)
    if path is None:
        return 0, b"", None
    if not path.startswith(b"/function/") or len(path) > 25:
        return ROUTES.get(path, 0), b"", None
    parts = [part for part in (query or b"").split(b"&") if part]
    if not parts:
        return 1, path[10:], None
    right = len(parts) == 1 and re.fullmatch(rb"hex=([0-9]+)", parts[0])
    # A value is followed by the next key, even an empty one.
    return 1, path[10:], int(right[1]) if right and int(right[1]) < 1 << 32 else "!"


def of_chunks(text):
    """Why a chunked body violates RFC 9112 section 7.1: the reasons of its first invalid line."""
    line = re.compile(
        rb"(?P<size>[0-9a-fA-F]+)(?P<blank>[ \t]*)(?P<extension>;[^\r\n]*)?(?P<end>\r?\n|)"
    )
    while match := line.match(text):
        size, text = int(match["size"], 16), text[match.end() :]
        found = []
        if size > LONGEST_BODY:
            found.append((413, "a chunk that is too long"))
        if match["blank"]:
            found.append((400, "blanks behind a chunk's size"))
        if re.search(CONTROL, match["extension"] or b""):
            found.append((400, "a control character in an extension"))
        if match["end"] != b"\r\n" and (match["end"] or text):
            found.append((400, "a line of a chunk that ends in LF"))
        if found or not match["end"]:
            return found
        if size == 0:
            break
        if len(text) < size + 2:
            return []
        if text[size : size + 2] != b"\r\n":
            return [(400, "a chunk that does not end in CR LF")]
        text = text[size + 2 :]
    for field in re.split(rb"(?<=\n)", text):
        if field == b"\r\n":
            return []
        if not re.fullmatch(
            rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+(:[^\x00-\x08\x0a-\x1f\x7f]*(\r(\n)?)?)?|\r)?", field
        ):
            return [(400, "a trailer that is none")]
    return []


def stricter(text, reference):
    """(status, reason) of each rule by which the board is stricter than h11."""
    _, _, rest = text.lstrip(b"\r\n").partition(b"\n")
    over = re.search(rb"(?:^|\n)(\r?\n)", rest)
    head, chunks = (rest[: over.start(1)], rest[over.end(1) :]) if over else (rest, b"")
    found = []
    if re.search(CONTROL, head):
        found.append((400, "a control character"))
    if re.search(rb"(^|\n)[ \t]", head):
        found.append((400, "a folded line"))
    if (request := reference.request) is None:
        return found
    method, target = bytes(request.method).decode(), bytes(request.target)
    if request.http_version[:1] != b"1":
        found.append((505, "another version"))
    if (
        NO_TARGET.search(target)
        or not TARGET.fullmatch(target)
        or (origin(target) is None and not (target == b"*" and method == "OPTIONS"))
    ):
        found.append((400, "a target that is none"))
    elif route_of(target)[2] == "!":
        found.append((400, "parameters that the function has not"))
    if request.http_version not in (b"1.0", b"1.1") and not reference.fields(b"host"):
        found.append((400, "no host"))
    if any(not HOST.fullmatch(host) for host in reference.fields(b"host")):
        found.append((400, "a host that is none"))
    if len(re.findall(rb"(?im)^content-length:", head)) > 1 or re.search(
        rb"(?im)^content-length:[^\r\n]*,", head
    ):
        found.append((400, "two lengths"))
    coded = b"transfer-encoding" in dict(request.headers)
    if coded and (
        b"content-length" in dict(request.headers) or re.search(rb"(?im)^content-length:", head)
    ):
        found.append((400, "a length and chunks"))
    if coded and request.http_version == b"1.0":
        found.append((400, "chunks in HTTP/1.0"))
    if request.http_version != b"1.0" and any(
        value.lower() != b"100-continue" and value for value in reference.fields(b"expect")
    ):
        found.append((417, "another expectation"))
    if method not in METHODS.values() and method not in OTHER_METHODS:
        found.append((501, "another method"))
    if coded:
        found += of_chunks(chunks)
    if any(
        length.isdigit() and int(length) > LONGEST_BODY
        for length in reference.fields(b"content-length")
    ):
        found.append((413, "a body that is too long"))
    return found


class Generator:
    """Generates requests that are valid or nearly so."""

    def __init__(self, draw):
        self.draw = draw

    def some(self, *choices):
        """Mostly the first choice."""
        return choices[0] if self.draw.random() < 0.7 else self.draw.choice(choices)

    def encoded(self, path):
        if self.draw.random() < 0.8:
            return path
        return b"".join(
            (
                b"%%%02x" % c
                if self.draw.random() < 0.2
                else b"%%%02X" % c
                if self.draw.random() < 0.1
                else bytes([c])
            )
            for c in path
        )

    def target(self):
        path = self.draw.choice(
            [
                b"/function/echo",
                b"/function/checksum",
                b"/healthz",
                b"/metrics",
                b"/system/functions",
                b"/",
                b"/none/of/them",
                b"/function/",
                b"/function/a-b_c.d~e9",
                b"/function/this-is-a-long-name",
                b"/system/functionss",
                b"/" + b"p" * 40,
            ]
        )
        path = self.some(
            self.encoded(path),
            path,
            path + b"%",
            path + b"%4",
            path + b"%zz",
            path + b"%2f",
            path + b"#f",
            path.lstrip(b"/"),
            b"*",
            b"",
        )
        query = self.some(
            b"",
            b"?",
            b"?hex=7",
            b"?hex=4294967295",
            b"?hex=4294967296",
            b"?hex=1&hex=2",
            b"?hex=",
            b"?hex",
            b"?hex=1&",
            b"?&hex=12",
            b"?x=y",
            b"?hex=0x1",
            b"?a?b/c",
            b"?" + b"q" * 30,
        )
        front = self.some(
            b"",
            b"http://b",
            b"http://b:80",
            b"HTTP://[::1]:8",
            b"http://",
            b"http://u@b",
            b"http://:8",
            b"https://b",
            b"http://b%41",
            b"http:/b",
        )
        return front + path + query

    def fields(self, body):
        draw, lines = self.draw, []
        blank = lambda: self.some(b" ", b"", b"\t", b"  ", b" \t ")
        lines.append(
            b"Host:"
            + blank()
            + self.some(
                b"b",
                b"",
                b"b:80",
                b"[::1]",
                b"a b",
                b"b/c",
                b"b?c",
                b"u@b",
                b"b#c",
                b"b\xff",
                b"a,b",
                b"very-long.host.example:8080",
            )
            + self.some(b"", b" ", b"\t ")
        )
        if draw.random() < 0.1:
            lines = lines * draw.choice([0, 2])
        if draw.random() < 0.4:
            lines.append(
                self.some(
                    b"X-Long-Name-Of-A-Header-That-Is-Long",
                    b"A",
                    b"!#$%&'*+-.^_`|~",
                    b"b@d",
                    b"B(d",
                    b"a b",
                    b"",
                    b"X;",
                )
                + b":"
                + blank()
                + self.some(
                    b"value", b"", b"v a l", b"\x80\xff", b"a\0b", b"a\x01b", b"\x7f", b"a\rb"
                )
            )
        if draw.random() < 0.3:
            lines.append(
                b"Expect:"
                + blank()
                + self.some(
                    b"100-continue",
                    b"100-Continue",
                    b"100-continueXYZ",
                    b"100-continue x",
                    b"",
                    b"other",
                )
                + self.some(b"", b" ")
            )
        if draw.random() < 0.3:
            lines.append(
                b"Connection:"
                + blank()
                + self.some(b"close", b"keep-alive", b"a, close", b",", b"close\0", b"x y")
            )
        if draw.random() < 0.2:
            lines.append(b"X-Request-Id: " + self.some(b"id-7", b"#1", b"a\0", b"\xff"))
        chunked = draw.random() < 0.5
        if chunked:
            lines.append(
                self.some(
                    b"Transfer-Encoding",
                    b"transfer-encoding",
                    b"Transfer-Encoding ",
                    b"Transfer-Encodin",
                )
                + b":"
                + blank()
                + self.some(
                    b"chunked",
                    b"Chunked",
                    b"chunked ",
                    b"chunke",
                    b"gzip, chunked",
                    b"chunked, chunked",
                    b"xchunked",
                    b"chunked\0",
                )
            )
        if not chunked and (body or draw.random() < 0.5) or draw.random() < 0.05:
            length = b"%d" % len(body)
            lines.append(
                b"Content-Length:"
                + blank()
                + self.some(
                    length,
                    b"0" + length,
                    b"+" + length,
                    length + b"x",
                    b"",
                    length + b", " + length,
                    b"-1",
                    b"99999999",
                    b"99999999999999999999",
                    length + b" ",
                    length + b" 0",
                )
            )
            if draw.random() < 0.05:
                lines.append(b"Content-Length: " + length)
        draw.shuffle(lines)
        if draw.random() < 0.04:
            lines.insert(draw.randrange(len(lines) + 1), b" folded")
        return lines, chunked

    def chunks(self, body):
        text, draw = b"", self.draw
        while body:
            n = draw.choice([1, 3, 17, draw.randrange(1, 200)])
            part, body = body[:n], body[n:]
            size = b"%x" % len(part)
            size = (
                size
                if draw.random() < 0.95
                else draw.choice(
                    [
                        size.upper(),
                        b"0" + size,
                        b"0x" + size,
                        size + b"zz",
                        size + b",",
                        size + b" ",
                        size + b" ;x",
                        b" " + size,
                        b"",
                        b"+" + size,
                        b"-" + size,
                        size + b"\0",
                        b"fffffff",
                        b"c00001",
                    ]
                )
            )
            line = size + (
                b""
                if draw.random() < 0.9
                else draw.choice([b";x", b'; a="b" ', b";\xff", b";a\0", b" ; x", b";"])
            )
            end = lambda: (
                b"\r\n" if draw.random() < 0.98 else draw.choice([b"\n", b"\r", b"", b"x\r\n"])
            )
            text += line + end() + part + end()
        trailer = self.some(
            b"",
            b"T: v\r\n",
            b"T: v\r\nU:\r\n",
            b"T : v\r\n",
            b"no colon\r\n",
            b": v\r\n",
            b"T: \0\r\n",
            b"T: v\n",
            b"A-Trailer-Of-More-Than-One-Word: x\r\n",
            b"B@d: v\r\n",
        )
        return text + b"0" + self.some(b"", b";x") + b"\r\n" + trailer + b"\r\n"

    def request(self):
        draw = self.draw
        body = draw.randbytes(draw.choice([0, 0, 1, 3, 40, 300]))
        lines, chunked = self.fields(body)
        end = self.some(b"\r\n", b"\n")
        method = self.some(
            b"POST",
            b"GET",
            b"HEAD",
            b"OPTIONS",
            b"PUT",
            b"DELETE",
            b"BREW",
            b"G@T(",
            b"get",
            b"A-METHOD-OF-MORE-THAN-ONE-WORD",
            b"",
            b"P{}T",
        )
        version = self.some(
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"HTTP/2.0",
            b"HTTP/1.2",
            b"http/1.1",
            b"HTTP/11",
            b"HTTP/1.1 ",
            b"HTTP/1.10",
            b"HTTP/0.9",
        )
        text = (
            self.some(b"", b"\r\n", b"\n", b"\r", b" ")
            + method
            + self.some(b" ", b"  ", b"\t")
            + self.target()
            + self.some(b" ", b"\t", b"  ")
            + version
            + end
        )
        text += b"".join(line + end for line in lines) + end
        text += self.chunks(body) if chunked else body
        # Some byte is another one, is missing or is there twice.
        if draw.random() < 0.3:
            at = draw.randrange(len(text))
            new = draw.choice(
                [
                    b"",
                    text[at : at + 1] * 2,
                    bytes([draw.choice(b"\0\t\r\n :;,%@/?#x0")]),
                    draw.randbytes(1),
                ]
            )
            text = text[:at] + new + text[at + 1 :]
        return text + draw.choice([b"", b"", b"GET / HTTP/1.1\r\n"])


class Parser:
    """The bench of http_parse in its `serve` mode."""

    def __init__(self):
        self.process = subprocess.Popen(
            [BENCH, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, text, most):
        self.process.stdin.write(f"{most} {text.hex()}\n")
        self.process.stdin.flush()
        status, complete, used, method, route, http10, expects, value, name, body = (
            self.process.stdout.readline().split()
        )
        return {
            "status": int(status),
            "complete": complete == "1",
            "used": int(used),
            "method": METHODS.get(int(method)),
            "route": int(route),
            "http10": http10 == "1",
            "expects": expects == "1",
            "value": None if value == "-" else int(value),
            "name": bytes.fromhex(name[1:]),
            "body": bytes.fromhex(body[1:]),
        }


def compare(text, got, reasons):
    """The difference between the parser's result and the reference, or None."""
    reference = Reference(text)
    found = stricter(text, reference)
    if got["status"]:
        # h11 looks at a head when it is complete.
        if reference.why or reference.request is None:
            return None
        if met := [reason for status, reason in found if status == got["status"]]:
            reasons.update(met)
            return None
        return f"refused with {got['status']}, and h11 takes it"
    if reference.why:
        return f"taken, and h11 refuses it: {reference.why}" if got["complete"] else None
    if found:
        return f"taken in spite of {found}" if got["complete"] else None
    if got["complete"] != reference.complete:
        return f"complete is {got['complete']}, by h11 {reference.complete}"
    if not got["complete"]:
        return None
    request = reference.request
    route, name, value = route_of(bytes(request.target))
    method = bytes(request.method).decode()
    wanted = {
        "used": len(text) - len(reference.left),
        "method": method if method in METHODS.values() else None,
        "route": route,
        "http10": request.http_version == b"1.0",
        "value": value,
        "name": name,
        "body": reference.body,
    }
    return next(
        (
            f"{key} is {got[key]!r}, by h11 {want!r}"
            for key, want in wanted.items()
            if got[key] != want
        ),
        None,
    )


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--requests", type=int, default=20000)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    options = options.parse_args()
    print(f"{options.requests} requests, --seed {options.seed}")
    draw, parser = random.Random(options.seed), Parser()
    generator, reasons, accepted, wrong = Generator(draw), collections.Counter(), 0, []
    for _ in range(options.requests):
        text = generator.request()
        got = parser(text, draw.choice([1, 2, 7, 30, 100000]))
        accepted += got["complete"] and not got["status"]
        if why := compare(text, got, reasons):
            wrong.append((text, why))
    for text, why in wrong[:10]:
        print(f"    {why}: {text!r}")
    parser.process.stdin.close()
    parser.process.wait()
    print(
        f"{accepted} accepted; refused, where h11 is lenient: "
        + ", ".join(f"{n} for {reason}" for reason, n in reasons.most_common())
    )
    # The generator must still cover the compared features.
    passed = not wrong and accepted > options.requests // 20 and len(reasons) >= 10
    state = "ok" if passed else "FAILED"
    print(f"test http::reference ... {state} ({len(wrong)} differ, --seed {options.seed})")
    print(f"\ntest result: {state}. {int(passed)} passed; {int(not passed)} failed")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
