# SPDX-License-Identifier: Apache-2.0
"""Answers the test contexts of a head file with NumPy, and compares with what the library has answered.

usage: numpy_answers.py HEAD ANSWERS [INDEX]

ANSWERS: ids [M, k], logits [M, k] and log_z [M] of contexts.test, NaN where it was not learned.
INDEX: what finds the candidates; all tokens if none.
"""

import sys

import numpy
from numpy_reader import Head, Index, TensorFile, widened

BLOCK = 16


def l2s(index, layer, h, k):
    cluster = numpy.argmax(index["clusters"] @ h)
    first, last = index["offsets"][cluster : cluster + 2]
    return index["ids"][first:last]


def best(estimates, count):
    return numpy.argsort(-estimates, kind="stable")[:count]


def svd(index, layer, h, k):
    previews = index["tokens"] @ (index["directions"] @ h) + layer.b
    return best(previews, max(index.options()["refine_width"], k))


def adaptive(index, layer, h, k):
    ids, starts = index["ids"], index["starts"].astype(int)
    gates = index["gates"] @ h + index["gates.offsets"] + index["gates.reach"] * numpy.linalg.norm(h)
    candidates = ids[: starts[0]]
    for tier, gate in enumerate(gates):
        if gate >= numpy.sort(layer.logits(h, candidates))[-k]:
            candidates = numpy.concatenate([candidates, ids[starts[tier] : starts[tier + 1]]])
    return candidates


def shortlist(index, layer, h, k):
    return index["list"]


def row_clusters(index, layer, h, k):
    starts = index["starts"].astype(int)
    clusters = [index["tokens"][first:last] for first, last in zip(starts, starts[1:])]
    scores = index["centroids"] @ h + [layer.b[tokens].max() for tokens in clusters]
    visited = best(scores, int(index.options()["visited"]))
    return numpy.concatenate([clusters[t] for t in visited])


def int4_width(index):
    return index.options().get("int4_width", 0)


def halves_at(blocks, at):
    """The bfloat16 of each row of a block, from so many bytes a row on."""
    return widened(blocks[:, at * BLOCK : (at + 2) * BLOCK].copy().view("<u2"))


def prefix_blocks(index, name, rows):
    """Bias, radius [rows] and the int8 coordinates [rows, width] of kernels::PrefixBlocks."""
    blocks = numpy.array(index[name])
    int4 = int4_width(index) if name == "prefixes" else 0
    bias = blocks[:, : 4 * BLOCK].view("<f4")
    scale, radius = halves_at(blocks, 4), halves_at(blocks, 6)
    q = blocks[:, (12 if int4 else 8) * BLOCK : blocks.shape[1] - int4 // 2 * BLOCK]
    q = q.reshape(len(blocks), -1, BLOCK, 4).transpose(0, 2, 1, 3)
    w = (q.reshape(len(blocks), BLOCK, -1).astype("f8") - 128) * scale[:, :, None]
    return bias.reshape(-1)[:rows], radius.reshape(-1)[:rows], w.reshape(-1, w.shape[2])[:rows]


def int4_blocks(index, name, rows):
    """Radius [rows] and coordinates [rows, width] of what they have as int4."""
    blocks = numpy.array(index[name])
    if not int4_width(index):
        return numpy.zeros(rows), numpy.zeros((rows, 0))
    scale, radius = halves_at(blocks, 8), halves_at(blocks, 10)
    pairs = blocks[:, -(int4_width(index) // 2) * BLOCK :].reshape(len(blocks), -1, BLOCK, 4)
    u = numpy.stack([pairs & 15, pairs >> 4], axis=3).transpose(0, 2, 1, 3, 4)
    w = (2 * u.reshape(len(blocks), BLOCK, -1).astype("f8") - 15) * scale[:, :, None]
    return radius.reshape(-1)[:rows], w.reshape(-1, w.shape[2])[:rows]


def quantized(index, layer, h, k):
    bias, _, w = prefix_blocks(index, "prefixes", index.vocab)
    return best(bias + w[:, : len(h)] @ h, max(index.options()["refine_width"], 2 * k))


def certified(index, layer, h, k):
    """The tokens that the bounds do not rule out, and that the bounds are true."""
    bias, radius, w = prefix_blocks(index, "prefixes", index.vocab)
    prefix = w.shape[1]
    int4_radius, int4_w = int4_blocks(index, "prefixes", index.vocab)
    behind = prefix + int4_w.shape[1]
    norm = numpy.linalg.norm
    if "RQ" in index:
        x, outside = prefix_blocks(index, "RQ", len(h))[2][:, : len(h)] @ h, norm(h)
    else:
        c = h @ index["Q"].astype("f8")
        M = len(index["R"])
        x = (c[:M] @ index["R"].astype("f8"))[:M]
        outside = numpy.sqrt(max(h @ h - c @ c / (1 + index["norms"][0]), 0))
    tokens = index["order"] if "order" in index else numpy.arange(index.vocab)

    def context_radius(weights, *terms):
        return norm(weights[:3] * numpy.array(terms))  # the others are for roundings, which float64 has not

    logits = layer.logits(h)[tokens]
    estimates = bias + w @ x[:prefix] + int4_w @ x[prefix:behind]
    of_boxes, of_prefixes, of_tails = index["bound_weights"]
    ours = context_radius(of_prefixes, norm(x[behind:]), outside, norm(x[:prefix]))
    bounds = radius * ours
    if behind > prefix:  # contexts are not rounded here
        bounds += int4_radius * index["code_weights"][0] * norm(x[prefix:behind])
    assert (abs(logits - estimates) <= bounds * (1 + 1e-9)).all()
    uppers = estimates + bounds
    if "boxes.centres" in index:
        boxes = -(-index.vocab // BLOCK)
        top, reach, centres = prefix_blocks(index, "boxes.centres", boxes)
        spreads = prefix_blocks(index, "boxes.spreads", boxes)[2]
        inside = x[: index.options()["box_width"]]
        theirs = context_radius(of_boxes, norm(x[len(inside) :]), outside, norm(inside))
        highest = top + centres @ inside + spreads @ abs(inside) + reach * theirs
        assert (numpy.repeat(highest, BLOCK)[: index.vocab] >= logits - abs(logits) * 1e-9).all()
    if "tails" in index:
        tails = numpy.array(index["tails"])
        scale, radius = tails[:, -8:].copy().view("<f4").T
        width = index.options()["width"]
        q = tails[:, : width - prefix].view("i1")
        estimates = estimates + scale * (q @ x[prefix:width])
        bounds = radius * context_radius(of_tails, norm(x[width:]), outside, norm(x[:width]))
        assert (abs(logits - estimates) <= bounds * (1 + 1e-9)).all()
        uppers = numpy.minimum(uppers, estimates + bounds)
    return tokens[numpy.flatnonzero(uppers >= logits[best(estimates, k)].min())]


def learned_log_z(index, h, candidates, own):
    """log Z of candidates with these logits, and of the mass outside of them."""
    masses = index["outside.weights"].astype("f8") @ h + index["outside.offsets"]
    if index.kind == "adaptive":  # of the tiers, of which those count that were not scored
        firsts = index["ids"][index["starts"][:-1].astype(int)]
        outside = numpy.logaddexp.reduce(masses[~numpy.isin(firsts, candidates)])
    else:
        outside = masses[numpy.argmax(index["clusters"] @ h) if "clusters" in index else 0]
    inside = numpy.logaddexp.reduce(own)
    return numpy.logaddexp(inside, min(outside, inside + index["outside.error"][2]))


SCREENERS = {
    f.__name__.replace("_", "-"): f
    for f in (l2s, svd, row_clusters, adaptive, shortlist, quantized, certified)
}


class Layer:
    def __init__(self, head):
        self.W, self.b = head.weights(), head.biases()

    def logits(self, h, ids=slice(None)):
        return self.W[ids] @ h + self.b[ids]

    def rounding(self, h):
        """How far a logit in float32 may be off (.github/docs/architecture.md says so)."""
        return (len(h) + 2) * 2.0**-24 * (abs(self.W) @ abs(h) + abs(self.b))


def main(head_path, answers_path, index_path=None):
    head, answers = Head(head_path), TensorFile(answers_path)
    layer = Layer(head)
    vocab, k = len(layer.b), answers["ids"].shape[1]
    index = Index(index_path) if index_path else None
    if index is not None:
        assert (index.vocab, index.dim) == layer.W.shape
        assert index.metadata["dtype"] == head.header["weight"]["dtype"]
    scored = 0
    expected = zip(head["contexts.test"].astype("f8"), answers["ids"], answers["logits"], answers["log_z"])
    for h, ids, logits, log_z in expected:
        candidates = numpy.arange(vocab)
        if index is not None:
            found = numpy.sort(SCREENERS[index.kind](index, layer, h, k))
            candidates = found if len(found) >= k else candidates
        scored += len(candidates)
        own = layer.logits(h, candidates)
        first = best(own, k)
        assert (candidates[first] == ids).all(), (candidates[first], ids)
        assert (abs(own[first] - logits) <= layer.rounding(h)[ids]).all(), (own[first], logits)
        if not numpy.isnan(log_z):
            expected_log_z = learned_log_z(index, h, candidates, own)
            assert abs(expected_log_z - log_z) < 1e-4, (expected_log_z, log_z)
    assert index is None or scored < vocab * len(answers["ids"]), "nothing was ruled out"


main(*sys.argv[1:])
