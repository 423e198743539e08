#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies a head file with fewer contexts, evenly spaced: fewer_contexts.py HEAD OUT TRAIN TEST. A sweep that learns from
fewer contexts takes minutes in place of hours."""
import json
import struct
import sys

import numpy as np

TENSORS = ("weight", "weight.scale", "bias", "counts", "contexts.train", "contexts.test")


def main(source, target, train, test):
    with open(source, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    data = np.memmap(source, np.uint8, "r")[8 + size:]
    kept = {"contexts.train": int(train), "contexts.test": int(test)}
    written = {"__metadata__": header.get("__metadata__", {})}
    parts = []
    end = 0
    for name in TENSORS:
        if name not in header:
            continue
        tensor = header[name]
        begin, stop = tensor["data_offsets"]
        rows = data[begin:stop].reshape(tensor["shape"][0], -1)
        if name in kept:
            rows = rows[np.linspace(0, len(rows) - 1, min(kept[name], len(rows))).astype(int)]
        written[name] = {"dtype": tensor["dtype"], "shape": [len(rows)] + tensor["shape"][1:],
                         "data_offsets": [end, end + rows.size]}
        end += rows.size
        parts.append(rows.tobytes())
    text = json.dumps(written).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
