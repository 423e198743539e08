# SPDX-License-Identifier: Apache-2.0
"""Writes W, b and contexts, given as raw float32, with NumPy: numpy_arrays.py FOLDER V D N."""
import copy
import pathlib
import struct
import sys
import zipfile

import numpy as np

folder = pathlib.Path(sys.argv[1])
vocab, dim, count = map(int, sys.argv[2:])
weight = np.fromfile(folder / "weight.raw", np.float32).reshape(vocab, dim)
bias = np.fromfile(folder / "bias.raw", np.float32)
contexts = np.fromfile(folder / "contexts.raw", np.float32).reshape(count, dim)

np.save(folder / "weight.npy", weight)
np.save(folder / "bias.npy", bias)
np.save(folder / "contexts.npy", contexts)
np.save(folder / "columns.npy", np.asfortranarray(contexts))
np.save(folder / "doubles.npy", contexts.astype(np.float64))
np.save(folder / "halves.npy", weight.astype(np.float16))
np.save(folder / "beyond.npy", np.full((vocab, dim), 1e300))
infinite = weight.copy()
infinite[3, 2] = np.inf
np.save(folder / "infinite.npy", infinite)
np.save(folder / "swapped.npy", contexts.astype(">f4"))
np.save(folder / "objects.npy", np.array([{}], dtype=object))
np.save(folder / "cube.npy", np.zeros((2, 3, 4), np.float32, order="F"))
np.savez(folder / "plain.npz", W=weight, b=bias, contexts_train=contexts[: count // 2], contexts_test=contexts[count // 2 :])
np.savez(folder / "tested.npz", **{"W": weight, "b": bias, "contexts.test": contexts})
np.savez(folder / "underlined.npz", W=weight, b=bias, contexts_test=contexts)
np.savez(folder / "weights.npz", W=contexts)
np.savez_compressed(folder / "packed.npz", **{"weight": weight, "bias": bias.astype(np.float64), "contexts": contexts})

# A size that is no size, and one value of a million that many entries of an archive share.
header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775808), }\n"
(folder / "endless.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
with zipfile.ZipFile(folder / "shared.npz", "w", zipfile.ZIP_DEFLATED) as archive:
    with archive.open("contexts.npy", "w") as entry:
        np.save(entry, np.zeros((1_000_000 // dim, dim), np.float32))
    for number in range(50):
        again = copy.copy(archive.filelist[0])
        again.filename = f"contexts{number}.npy"
        archive.filelist.append(again)
with zipfile.ZipFile(folder / "twice.npz", "w") as archive:
    with archive.open("contexts.npy", "w") as entry:
        np.save(entry, contexts)
    archive.filelist.append(archive.filelist[0])
