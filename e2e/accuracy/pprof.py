# SPDX-License-Identifier: Apache-2.0
"""Reads a pprof file that `podflame record` wrote: google/pprof's proto/profile.proto."""
import gzip
from collections import defaultdict

SAMPLE, LOCATION, FUNCTION, STRING = 2, 4, 5, 6


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(data):
    """{number of a field: its values}; the file has no fields of a fixed size."""
    fields, at = defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7:
            value, at = data[at:at + value], at + value
        fields[key >> 3].append(value)
    return fields


def packed(fields, number):
    data, at = fields[number][0], 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def read(path):
    """[(frames from the outermost on, value, {label: text})]"""
    with gzip.open(path) as f:
        profile = message(f.read())
    text = [s.decode() for s in profile[STRING]]
    functions = {f[1][0]: text[f[2][0]] for f in map(message, profile[FUNCTION])}
    # the lines of a location are functions, the innermost first, that are inlined in each other
    locations = {x[1][0]: [functions[message(line)[1][0]] for line in x[4]]
                 for x in map(message, profile[LOCATION])}
    rows = []
    for sample in map(message, profile[SAMPLE]):
        frames = [name for i in packed(sample, 1) for name in locations[i]][::-1]
        labels = {text[x[1][0]]: text[x[2][0]] for x in map(message, sample[3])}
        rows.append((frames, list(packed(sample, 2))[1], labels))
    return rows
