# SPDX-License-Identifier: Apache-2.0
"""Reads safetensors files with NumPy: eight bytes for the header's length, the header in JSON, the tensors."""

import json

import numpy

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}


def widened(bfloat16):
    """bfloat16, as the upper halves of float32, which NumPy has."""
    return (bfloat16.astype("<u4") << 16).view("<f4")


class TensorFile:
    """The tensors of a file by their names, where they lie in it, and its metadata."""

    def __init__(self, path):
        data = numpy.memmap(path, mode="r")
        begin = 8 + int(data[:8].view("<u8")[0])
        self.header = json.loads(bytes(data[8:begin]))
        self.metadata = self.header.pop("__metadata__", {})
        self.offsets = {}
        self.tensors = {}
        end = begin
        for name, entry in sorted(self.header.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = (begin + offset for offset in entry["data_offsets"])
            assert first == end, f"{path}: {name} does not begin where the tensor before it ends"
            end = last
            self.offsets[name] = first
            tensor = data[first:last].view(TYPES[entry["dtype"]]).reshape(entry["shape"])
            self.tensors[name] = widened(tensor) if entry["dtype"] == "BF16" else tensor
        assert end == len(data), f"{path}: there are bytes behind the last tensor"

    def __getitem__(self, name):
        return self.tensors[name]

    def __contains__(self, name):
        return name in self.tensors


class Index(TensorFile):
    """An index file: its kind, its options as numbers, and its tensors without the padding between them."""

    def __init__(self, path):
        super().__init__(path)
        self.kind = self.metadata["kind"]
        self.vocab, self.dim = int(self.metadata["vocab"]), int(self.metadata["dim"])
        assert self.metadata["format_version"] == "1", self.metadata
        for key in ("layer_hash", "checksum"):
            assert len(self.metadata[key]) == 16 and int(self.metadata[key], 16) >= 0, self.metadata
        for name in [name for name in self.tensors if name.startswith("__padding__")]:
            del self.tensors[name]
        for name in self.tensors:
            assert self.offsets[name] % 64 == 0, f"{path}: {name} does not begin at a multiple of 64 bytes"

    def options(self, prefix="options."):
        """By their names; all are numbers but the name of an L2S."""
        found = {key[len(prefix) :]: value for key, value in self.metadata.items() if key.startswith(prefix)}
        return {name: json.loads(value) for name, value in found.items() if name != "name"}


class Head(TensorFile):
    """A head file: its layer in float64."""

    def weights(self):
        weights = self["weight"].astype("f8")
        return weights * self["weight.scale"].astype("f8")[:, None] if "weight.scale" in self else weights

    def biases(self):
        return self["bias"].astype("f8") if "bias" in self else numpy.zeros(len(self["weight"]))
