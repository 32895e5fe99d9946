"""Writes tests/fuzz/corpus/seeds/: one input for each form that the reader knows. What fuzz_reader has made of them, and went
somewhere new, is in tests/fuzz/corpus/grown/, written by fuzz_reader itself (reader_main.cpp says how).

The first byte of an input says what reads the rest: 0 an archive, 1 a deflate stream, 2 a pickle. Checksums are the one
that reader_target.h takes for right.
"""
import pathlib
import random
import struct
import zlib

CHECKSUM = 0x31415926
FOLDER = pathlib.Path(__file__).parent / "corpus" / "seeds"
STORED, DEFLATED = 0, 8
NO_DESCRIPTOR, SIGNED, SIGNED_LARGE, UNSIGNED = range(4)  # what follows a record's data


def deflated(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def archive(*records, zip64=False):
    """Each record is a name and its data, and may have a method, a descriptor and an extra field in its header."""
    out = directory = b""
    for name, data, *more in records:
        method, descriptor, extra = (more + [STORED, NO_DESCRIPTOR, b""][len(more):])[:3]
        stored, name, place = deflated(data) if method == DEFLATED else data, name.encode(), len(out)
        flags = 8 if descriptor else 0
        sizes = (0, 0, 0) if descriptor else (CHECKSUM, len(stored), len(data))
        out += struct.pack("<IHHHIIIIHH", 0x04034B50, 20, flags, method, 0, *sizes, len(name), len(extra)) + name + extra + stored
        if descriptor == SIGNED:
            out += struct.pack("<IIII", 0x08074B50, CHECKSUM, len(stored), len(data))
        elif descriptor == SIGNED_LARGE:
            out += struct.pack("<IIQQ", 0x08074B50, CHECKSUM, len(stored), len(data))
        elif descriptor == UNSIGNED:
            out += struct.pack("<III", CHECKSUM, len(stored), len(data))
        field = struct.pack("<HHQQQ", 1, 24, len(data), len(stored), place) if zip64 else b""
        numbers = (0xFFFFFFFF,) * 3 if zip64 else (len(stored), len(data), place)
        directory += struct.pack("<IHHHHIIIIHHHHHII", 0x02014B50, 20, 20, flags, method, 0, CHECKSUM, *numbers[:2], len(name),
                                 len(field), 0, 0, 0, 0, numbers[2]) + name + field
    begin, count = len(out), len(records)
    out += directory
    if zip64:
        place = len(out)
        out += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), begin)
        out += struct.pack("<IIQI", 0x07064B50, 0, place, 1)
    end = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if zip64 else (count, count, len(directory), begin)
    return out + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, *end, 0)


EMPTY = b"\x80\x02)."
TENSOR = (b"\x80\x02c__torch__\nM\nq\0)\x81}(X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\nq\2((X\7\0\0\0storageq\3"
          b"ctorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK%ctQK\0(K\2K\3t(K\3K\1t\x88ccollections\nOrderedDict\n)RtR"
          b"X\1\0\0\0a](K\1M\0\1J\0\0\0\0\x8a\x08\1\0\0\0\0\0\0\0G\0\0\0\0\0\0\0\0Ne"
          b"X\1\0\0\0b\x89h\3\x85h\3h\3\x86r\7\0\0\0j\7\0\0\0h\3h\3\x87ub.")
CALL = b"\x80\x02ctorch\ndevice\nX\3\0\0\0cpu\x85Rctorch.jit._pickle\nbuild_intlist\n](K\1K\2e\x85R\x86."


def inputs():
    plain = ("m/data.pkl", EMPTY), ("m/constants.pkl", EMPTY), ("m/version", b"3\n")
    yield "archive-plain", 0, archive(*plain)
    yield "archive-zip64", 0, archive(*plain, zip64=True)
    yield "archive-tensor", 0, archive(("m/data/0", b"x" * 24, STORED, NO_DESCRIPTOR, b"FB\4\0ZZZZ"), ("m/data.pkl", TENSOR % 6),
                                       ("m/constants.pkl", EMPTY), ("m/code/a.py.debug_pkl", EMPTY, DEFLATED), ("m/version", b"3\n"))
    yield "archive-descriptors", 0, archive(("m/data.pkl", EMPTY, STORED, SIGNED), ("m/constants.pkl", EMPTY, DEFLATED, SIGNED_LARGE),
                                            ("m/version", b"3\n", STORED, UNSIGNED), ("m/code/", b""))
    yield "archive-package", 0, archive(("m/data.pkl", EMPTY), ("m/.data/extern_modules", b""))
    # What becomes much larger: held whole where it is a pickle, and never held where it is not.
    large_pickle, large_text = EMPTY[:2] + b")" * (1 << 16) + b".", b"a" * (1 << 20)
    yield "archive-large-pickle", 0, archive(*plain, ("m/code/a.py.debug_pkl", large_pickle, DEFLATED))
    yield "archive-large-text", 0, archive(*plain, ("m/extra/more", large_text, DEFLATED))
    yield "stream-fixed", 1, bytes([0x4B, 0x4C, 0x84, 0x01, 0x00])
    yield "stream-stored", 1, bytes([1, 3, 0, 0xFC, 0xFF]) + b"abc"
    chance = random.Random(3)
    yield "stream-own-codes", 1, deflated(bytes(chance.choice(b"aaaaabbbcd \n") for _ in range(150)))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    yield "stream-blocks", 1, packer.compress(b"hello hello hello") + packer.flush(zlib.Z_FULL_FLUSH) + packer.compress(b"a" * 600) + packer.flush()
    yield "pickle-tensor", 2, TENSOR % (ord("0") // 4)  # its record has as many bytes as its key says
    yield "pickle-empty", 2, EMPTY
    yield "pickle-call", 2, CALL


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, reads, data in inputs():
        (FOLDER / name).write_bytes(bytes([reads]) + data)
