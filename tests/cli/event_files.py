# SPDX-License-Identifier: Apache-2.0
"""Read the event files of TensorBoard in a directory, by the description of the format alone.

    event_files.py scalars DIR           print {"TAG": [[STEP, VALUE], ..]} as JSON
    event_files.py starts DIR            print the step of each mark of a start, file by file
    event_files.py same DIR METRICS      the scalars must be the numbers of metrics.jsonl, as floats
    event_files.py tensorboard DIR       like scalars, but read by PyPI's tensorboard
    event_files.py importable            exit with 1 if that package is missing

Every record must be whole, with the right checksums.
"""
import json
import math
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C (iSCSI)


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        assert at + 12 <= len(data), f"{path}: a record is cut off at byte {at}"
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at : at + 8]), f"{path}: wrong checksum of a length at byte {at}"
        assert at + 12 + length + 4 <= len(data), f"{path}: a record is cut off at byte {at}"
        event = data[at + 12 : at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked(event), f"{path}: wrong checksum of an event at byte {at}"
        yield event
        at += 12 + length + 4


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    """Yield (number, value) of a message of protobuf."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        else:
            size = 8
            if kind == 2:
                size, at = varint(message, at)
            elif kind == 5:
                size = 4
            value, at = message[at : at + size], at + size
            assert len(value) == size
        yield key >> 3, value


def read(directory):
    """Return scalars {tag: [(step, value)]} and the marks of starts, in the order of files."""
    scalars, starts = {}, []
    names = sorted(n for n in os.listdir(directory) if "tfevents" in n)
    assert names, f"{directory}: has no event file"
    for name in names:
        first = True
        for event in records(os.path.join(directory, name)):
            parts = list(fields(event))
            one = dict(parts)
            step = one.get(2, 0)
            assert 0 < struct.unpack("<d", one[1])[0] < 1e11
            if first:
                assert one[3] == b"brain.Event:2" and 5 not in one
            first = False
            if 7 in one:
                assert dict(fields(one[7])) == {1: 1}
                starts.append(step)
            for number, summary in parts:
                if number != 5:
                    continue
                for value in (v for n, v in fields(summary) if n == 1):
                    of = dict(fields(value))
                    scalars.setdefault(of[1].decode(), []).append(
                        (step, struct.unpack("<f", of[2])[0])
                    )
        assert not first, f"{name}: is empty"
    return scalars, starts


def same(directory, metrics):
    expected = {}
    with open(metrics, encoding="utf-8") as file:
        for line in file:
            numbers = json.loads(line)
            for key, value in numbers.items():
                if key != "step" and not isinstance(value, str):
                    value = math.nan if value is None else value
                    as_float = struct.unpack("<f", struct.pack("<f", value))[0]
                    expected.setdefault(key, []).append((numbers["step"], as_float))
    scalars, _ = read(directory)
    assert repr(scalars) == repr({k: expected[k] for k in scalars}), "other numbers"
    assert set(scalars) == set(expected), set(scalars) ^ set(expected)
    assert "loss" in scalars


def tensorboard(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(directory, size_guidance={"scalars": 0})
    reader.Reload()
    return {t: [(e.step, e.value) for e in reader.Scalars(t)] for t in reader.Tags()["scalars"]}


command, *words = sys.argv[1:]
if command == "scalars":
    print(json.dumps(read(words[0])[0], sort_keys=True))
elif command == "starts":
    print(*read(words[0])[1])
elif command == "same":
    same(*words)
elif command == "tensorboard":
    print(json.dumps(tensorboard(words[0]), sort_keys=True))
elif command == "importable":
    try:
        import tensorboard.backend  # noqa: F401
    except ImportError:
        sys.exit(1)
