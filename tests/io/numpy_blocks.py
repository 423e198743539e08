# SPDX-License-Identifier: Apache-2.0
"""Unpacks ggml's blocks with NumPy, by the description of the format alone, and compares bit for bit.

usage: numpy_blocks.py FILE

FILE: for each type, "TYPE.blocks" U8 [n, bytes] and "TYPE.weights" F32 [n, weights].
"""

import sys

import numpy
from numpy_reader import TensorFile


def halves(blocks, offset):
    return numpy.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype("<f4")


def q8_0(blocks):
    return halves(blocks, 0) * blocks[:, 2:].view("i1").astype("<f4")


def q6_k(blocks):
    low = blocks[:, :128].reshape(-1, 2, 2, 32)  # half, which of its two rows, l
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    scales = blocks[:, 192:208].view("i1").astype("<f4")
    quarters = [
        (low[:, :, 0] & 15) | ((high[:, :, 0] & 3) << 4),
        (low[:, :, 1] & 15) | (((high[:, :, 0] >> 2) & 3) << 4),
        (low[:, :, 0] >> 4) | (((high[:, :, 0] >> 4) & 3) << 4),
        (low[:, :, 1] >> 4) | ((high[:, :, 0] >> 6) << 4),
    ]
    q = numpy.stack(quarters, axis=2).reshape(-1, 16, 16).astype("<f4") - 32
    weights = (halves(blocks, 208) * scales)[:, :, None] * q
    return weights.reshape(len(blocks), 256)


def q4_k(blocks):
    packed = blocks[:, 4:16].astype(numpy.uint8)
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = numpy.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1).astype("<f4")
    minima = numpy.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1).astype("<f4")
    nibbles = blocks[:, 16:].reshape(-1, 4, 1, 32)
    q = numpy.concatenate([nibbles & 15, nibbles >> 4], axis=2).reshape(-1, 8, 32).astype("<f4")
    weights = (halves(blocks, 0) * scales)[:, :, None] * q - (halves(blocks, 2) * minima)[:, :, None]
    return weights.reshape(len(blocks), 256)


def main(path):
    file = TensorFile(path)
    for name, unpack in {"q8_0": q8_0, "q6_k": q6_k, "q4_k": q4_k}.items():
        expected = unpack(numpy.array(file[name + ".blocks"])).astype("<f4")
        found = numpy.array(file[name + ".weights"])
        assert expected.shape == found.shape, (name, expected.shape, found.shape)
        assert numpy.isfinite(expected).all(), name
        # A zero's sign depends on nothing that matters.
        same = (expected.view("<u4") == found.view("<u4")) | ((expected == 0) & (found == 0))
        assert same.all(), (name, numpy.argwhere(~same)[:5])


main(*sys.argv[1:])
