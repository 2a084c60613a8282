#!/usr/bin/env python3
"""Golden pools (crates/volume/tests/volume/golden.rs), for programs that are not built with them.

    golden.py unpack FILE             the image to standard output
    golden.py digest                  the digest of standard input
"""
import re
import sys


def unpack(packed):
    """Again and again a count of bytes, those bytes, where a repetition began and its length."""
    image, at = bytearray(), 0

    def number():
        nonlocal at
        at += 4
        return int.from_bytes(packed[at - 4:at], "little")

    while at < len(packed):
        count = number()
        image += packed[at:at + count]
        at += count
        start, length = number(), number()
        # It may repeat what it is just adding.
        period = len(image) - start
        while length:
            piece = image[start:start + min(length, period)]
            image += piece
            length -= len(piece)
            start += len(piece)
    return image


def digest(content):
    """FNV-1a of 64 bits; a run of zeros is one step."""
    total, prime, mask = 0xcbf29ce484222325, 0x100000001b3, 0xffffffffffffffff
    for piece in re.findall(rb"\0+|[^\0]+", content):
        if piece[0] == 0:
            total = total * pow(prime, len(piece), mask + 1) & mask
        else:
            for byte in piece:
                total = (total ^ byte) * prime & mask
    return f"{total:016x}"


if sys.argv[1] == "unpack":
    with open(sys.argv[2], "rb") as file:
        sys.stdout.buffer.write(unpack(file.read()))
else:
    print(digest(sys.stdin.buffer.read()))
