# SPDX-License-Identifier: Apache-2.0
"""A language model's head from a file: the words it finds probable, proven, and some that are drawn."""

import argparse
import json
import pathlib
import time

import numpy as np
import topksoftmax as tks


def words_of(path):
    """The vocabulary that lies in the file: the tensor vocab.utf8, a word a line."""
    data = np.memmap(path, mode="r")
    begin = 8 + int(data[:8].view("<u8")[0])
    first, last = json.loads(bytes(data[8:begin]))["vocab.utf8"]["data_offsets"]
    return bytes(data[begin + first : begin + last]).decode().split("\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="TOPKSOFTMAX_C_LIBRARY of the environment names libtopksoftmax_c.so.")
    parser.add_argument("head", nargs="?", help="a language model's file; without it, the embedded one",
                        default=pathlib.Path(__file__).parents[1] / "data/novels-lm.safetensors")
    path = parser.parse_args().head
    file = tks.HeadFile(path)
    layer = file.layer
    words = words_of(path)
    learn, ask = np.array_split(file.contexts("test"), 2)  # views, which the library uses where they lie

    fused = tks.Backend.build(layer, "fused")
    certified = tks.Backend.build(layer, "certified", learn)
    vocab, dim = layer.shape
    print(f"V = {vocab}, d = {dim}; {certified.name} keeps {certified.index_bytes / 1e6:.1f} MB beside W")

    workspace = tks.Workspace(threads=1)
    for h in ask[:4]:
        top = certified.query(h, k=4, workspace=workspace)
        likely = "  ".join(f"{words[i]} {100 * np.exp(p):.0f} %" for i, p in zip(top.ids, top.log_probs))
        proof = "proven to be the top 4" if top.certified else "approximate"
        print(f"  {likely:45} {proof}, {top.candidates} of {len(words)} rows read")

    no_unknown = np.ones(vocab, bool)
    no_unknown[0] = False  # <unk>
    sampler, random = tks.Sampler(temperature=0.8, top_p=0.9), tks.Random(seed=1)
    drawn = [sampler.draw(certified, h, random, mask=no_unknown).id for h in ask[:12]]
    print("drawn after the first contexts:", " ".join(words[i] for i in drawn))

    for head in (fused, certified):
        out = tks.Answers.empty(len(ask), 5)
        begin = time.perf_counter()
        head.query_batch(ask, k=5, workspace=workspace, out=out, probabilities=False)
        seconds = time.perf_counter() - begin
        proven = 100 * out.certified.mean()
        print(f"{head.name:>10}: {1e6 * seconds / len(ask):6.1f} µs a context, {proven:.0f} % proven")


if __name__ == "__main__":
    main()
