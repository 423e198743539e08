# SPDX-License-Identifier: Apache-2.0
"""The C interface from Python, by examples/python/topksoftmax.py, against the full softmax in NumPy."""

import concurrent.futures
import ctypes
import json
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import tracemalloc
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples/python"))
import topksoftmax as tks

VOCAB, DIM, K = 700, 32, 5


def make_contexts(count, seed):
    random = np.random.default_rng(seed)
    topics = np.random.default_rng(7).normal(0, 1.5, (12, DIM))
    noise = random.normal(0, 0.3, (count, DIM))
    return (topics[np.arange(count) % 12] + noise).astype(np.float32)


class Reference:
    """All answers in double precision."""

    def __init__(self, W, b, contexts, allowed=None):
        self.logits = contexts.astype(np.float64) @ W.astype(np.float64).T + b
        if allowed is not None:
            self.logits[:, ~allowed] = -np.inf
        most = self.logits.max(axis=1, keepdims=True)
        self.log_z = (most + np.log(np.exp(self.logits - most).sum(axis=1, keepdims=True)))[:, 0]
        self.ids = np.argsort(-self.logits, axis=1, kind="stable")

    def check(self, test, answers, k=K):
        np.testing.assert_array_equal(answers.ids, self.ids[:, :k])
        expected = np.take_along_axis(self.logits, answers.ids.astype(int), axis=1)
        np.testing.assert_allclose(answers.logits, expected, atol=1e-4)
        test.assertTrue(answers.certified.all())


class CtypesTest(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(1)
        self.W = random.normal(0, 0.4, (VOCAB, DIM)).astype(np.float32)
        self.b = random.normal(0, 1, VOCAB).astype(np.float32)
        self.layer = tks.Layer(self.W, self.b)
        self.train = make_contexts(600, 2)
        self.test = make_contexts(100, 3)

    def test_version_and_list(self):
        self.assertRegex(tks.version(), r"^\d+\.\d+\.\d+$")
        self.assertIn("clusters=100", tks.list_backends())

    def test_every_function_of_the_header(self):
        header = pathlib.Path(__file__).parents[2] / "include/topksoftmax/c/topksoftmax.h"
        declared = re.findall(r"TOPK_API [^(]*?(topk_[a-z0-9_]+)\(", header.read_text(encoding="utf-8"))
        self.assertGreater(len(declared), 20)
        self.assertEqual(sorted(declared), sorted([*tks._CALLS, *tks._FUNCTIONS]))

    def test_exact_backends_are_numpys_softmax(self):
        reference = Reference(self.W, self.b, self.test)
        for name in ("fused", "certified"):
            head = tks.Backend.build(self.layer, name, self.train)
            self.assertEqual(head.name, name)
            self.assertTrue(head.certifies)
            batch = head.query_batch(self.test, k=K, log_z_tolerance=0)
            reference.check(self, batch)
            np.testing.assert_allclose(batch.log_z, reference.log_z, atol=1e-4)
            np.testing.assert_allclose(head.logits(self.test), reference.logits, atol=1e-4)
            for q, h in enumerate(self.test):
                top = head.query(h, k=K)
                np.testing.assert_array_equal(top.ids, batch.ids[q])
                np.testing.assert_array_equal(top.logits, batch.logits[q])
                low, high = top.log_z_interval
                self.assertTrue(low - 1e-5 <= reference.log_z[q] <= high + 1e-5)
                exact = head.query(h, k=K, log_z_tolerance=0)
                np.testing.assert_allclose(exact.log_probs, top.logits - reference.log_z[q], atol=1e-4)

    def test_contexts_with_options_of_their_own(self):
        allowed = np.arange(VOCAB) % 3 == 0
        words = np.zeros((2, (VOCAB + 31) // 32), np.int32)
        for token in (7, 40):
            words[1, token // 32] |= 1 << token % 32
        each = [{}, {"k": K, "mask": allowed}, {"k": 3, "biases": {0: 2.5, 599: -1.0}},
                {"k": K, "mask": words[1]}, {"probabilities": False}] * 3
        contexts = self.test[: len(each)]
        for name in ("fused", "certified"):
            head = tks.Backend.build(self.layer, name, self.train)
            answers = head.query_each(contexts, each)
            self.assertEqual(answers.ids.shape, (len(each), K))
            for q, options in enumerate(each):
                alone = head.query(contexts[q], **options)
                np.testing.assert_array_equal(answers.ids[q, : len(alone.ids)], alone.ids)
                np.testing.assert_array_equal(answers.logits[q, : len(alone.ids)], alone.logits)
                self.assertTrue((answers.ids[q, len(alone.ids) :] == -1).all())
                np.testing.assert_array_equal(answers.log_z[q], alone.log_z)
            again = head.query_each(contexts, each, workspace=tks.Workspace(1), out=tks.Answers.empty(len(each), K))
            np.testing.assert_array_equal(again.ids, answers.ids)
            # What NumPy makes of no rows need not have their strides.
            for none in (contexts[:0], contexts[[]], contexts[np.zeros(len(each), bool)],
                         np.empty((0, DIM), np.float32)):
                self.assertEqual(head.query_each(none, []).ids.shape, (0, 1))
                self.assertEqual(head.query_batch(none, k=K).ids.shape, (0, K))
                self.assertEqual(head.logits(none).shape, (0, VOCAB))
        with self.assertRaisesRegex(ValueError, "2 contexts and 15 options"):
            head.query_each(contexts[:2], each)
        with self.assertRaisesRegex(TypeError, "sharpness"):
            head.query_each(contexts[:1], [{"sharpness": 2}])
        wrong = contexts.copy()
        wrong[2, 0] = np.nan
        with self.assertRaisesRegex(ValueError, "context 2: "):
            head.query_each(wrong, each)

    def test_every_weight_type(self):
        bits = (self.W.view(np.uint32) >> 16).astype(np.uint16)
        scales = (np.abs(self.W).max(axis=1) / 127).astype(np.float32)
        int8 = np.round(self.W / scales[:, None]).astype(np.int8)
        half = self.W.astype(np.float16)
        for stored, values, kept in (
            (half, half, None),
            (bits, (bits.astype(np.uint32) << 16).view(np.float32), None),
            (int8, int8 * scales[:, None].astype(np.float64), scales),
        ):
            head = tks.Backend.build(tks.Layer(stored, self.b, kept), "fused")
            Reference(values, self.b, self.test).check(self, head.query_batch(self.test, k=K))

    def test_blocks_of_weights(self):
        factors = (np.abs(self.W).max(axis=1) / 127).astype(np.float16)
        q = np.round(self.W / factors[:, None].astype(np.float32)).clip(-127, 127).astype(np.int8)
        blocks = np.concatenate([factors[:, None].view(np.uint8), q.view(np.uint8)], axis=1)  # d = 32: one a row
        layer = tks.Layer.from_blocks(np.ascontiguousarray(blocks), "q8_0", self.b)
        self.assertEqual(layer.shape, (VOCAB, DIM))
        values = q * factors[:, None].astype(np.float64)
        for name in ("fused", "certified"):
            head = tks.Backend.build(layer, name, self.train)
            Reference(values, self.b, self.test).check(self, head.query_batch(self.test, k=K))
        with self.assertRaisesRegex(ValueError, "34 for each 32"):
            tks.Layer.from_blocks(np.ascontiguousarray(blocks[:, :33]), "q8_0")
        with self.assertRaisesRegex(tks.Error, "must be finite"):
            tks.Layer.from_blocks(np.full_like(blocks, 0xff, order="C"), "q8_0")

    def test_scale_and_soft_cap(self):
        products = self.test.astype(np.float64) @ self.W.astype(np.float64).T + self.b
        capped = self.layer.with_transform(logit_scale=0.5, soft_cap=3.0)
        top = tks.Backend.build(capped, "certified", self.train).query_batch(self.test, k=K)
        logits = 3.0 * np.tanh(0.5 * products / 3.0)
        np.testing.assert_array_equal(top.ids, np.argsort(-products, axis=1, kind="stable")[:, :K])
        np.testing.assert_allclose(top.logits, np.take_along_axis(logits, top.ids.astype(int), axis=1), atol=1e-4)
        log_z = np.log(np.exp(logits).sum(axis=1))
        exact = tks.Backend.build(capped, "fused").query_batch(self.test, k=K)
        np.testing.assert_allclose(exact.log_z, log_z, atol=1e-4)
        with self.assertRaisesRegex(tks.Error, "soft cap is -1"):
            self.layer.with_transform(soft_cap=-1.0)

    def test_arrays_are_used_where_they_lie(self):
        wide = np.full((VOCAB, DIM + 3), np.nan, np.float32)
        wide[:, 2 : 2 + DIM] = self.W
        contexts = np.full((300, 2 * DIM), np.nan, np.float32)[::3]
        contexts[:, :DIM] = self.test
        reference = Reference(self.W, self.b, self.test)
        layer = tks.Layer(wide[:, 2 : 2 + DIM], self.b)
        head = tks.Backend.build(layer, "certified", contexts[:, :DIM])
        out = tks.Answers.empty(100, K)
        addresses = [array.ctypes.data for array in out]
        answers = head.query_batch(contexts[:, :DIM], k=K, out=out)
        self.assertEqual([array.ctypes.data for array in answers], addresses)
        reference.check(self, out)

        # Nothing as large as W or the contexts is made on the way.
        large = np.zeros((40000, DIM), np.float32)
        workspace = tks.Workspace()
        tracemalloc.start()
        head = tks.Backend.build(tks.Layer(large), "fused")
        head.query_batch(large[:100], k=K, out=out, workspace=workspace)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(most, large.nbytes / 10)

        # What would have to be copied is refused.
        for W in (self.W.T, self.W.astype(np.float64), self.W[:, ::2], self.W[::-1]):
            self.assertRaises(ValueError, tks.Layer, W)
        self.assertRaises(ValueError, tks.Layer, self.W, self.b[::2])
        self.assertRaises(ValueError, head.query, np.zeros(2 * DIM, np.float32)[::2])
        self.assertRaises(ValueError, head.query_batch, self.test.astype(np.float64))

    def test_a_backend_keeps_its_arrays(self):
        head = tks.Backend.build(tks.Layer(self.W.copy(), self.b.copy()), "certified", self.train.copy())
        Reference(self.W, self.b, self.test).check(self, head.query_batch(self.test, k=K))

    def test_approximate_backends(self):
        exact = tks.Backend.build(self.layer, "fused").query_batch(self.test, k=K)
        told = []
        heads = [
            tks.Backend.build(self.layer, "l2s", self.train, clusters=8, budget=150, rounds=2,
                              progress=lambda step, done: told.append((step, done))),
            tks.Backend.build(self.layer, "fgd", M=8, ef_search=20),
        ]
        self.assertGreater(len(told), 1)
        for head in heads:
            found = head.query_batch(self.test, k=K)
            same = [len(np.intersect1d(a, b)) for a, b in zip(found.ids, exact.ids)]
            self.assertGreater(np.mean(same) / K, 0.7)
            self.assertFalse(found.certified.any())
            full = head.query_batch(self.test, k=K, effort=tks.FULL_EFFORT)
            np.testing.assert_array_equal(full.ids, exact.ids)
            np.testing.assert_array_equal(full.logits, exact.logits)

    def test_masks_and_biases(self):
        allowed = np.zeros(VOCAB, bool)
        allowed[::3] = True
        biases = {699: 3.0, 6: -2.0}
        b = self.b.copy()
        for token, bias in biases.items():
            b[token] += np.float32(bias)
        reference = Reference(self.W, b, self.test, allowed)
        for name in ("fused", "certified"):
            head = tks.Backend.build(self.layer, name, self.train)
            reference.check(self, head.query_batch(self.test, k=K, mask=allowed, biases=biases))
            logits = head.logits(self.test[:2], mask=allowed, biases=biases)
            np.testing.assert_allclose(logits, reference.logits[:2], atol=1e-4)
        two = np.zeros(VOCAB, bool)
        two[[3, 5]] = True
        self.assertEqual(sorted(head.query(self.test[0], k=K, mask=two).ids), [3, 5])
        batch = head.query_batch(self.test[:1], k=K, mask=two)
        np.testing.assert_array_equal(batch.ids[0, 2:], -1)
        np.testing.assert_array_equal(batch.logits[0, 2:], -np.inf)

    def test_masks_of_words(self):
        allowed = np.random.default_rng(5).random(VOCAB) < 0.3
        bits = np.zeros((VOCAB + 31) // 32 * 32, bool)
        bits[:VOCAB] = allowed
        words = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
        reference = Reference(self.W, self.b, self.test, allowed)
        head = tks.Backend.build(self.layer, "certified", self.train)
        for mask in (words, words.view(np.int32)):
            reference.check(self, head.query_batch(self.test, k=K, mask=mask))
            one = head.query(self.test[0], k=K, mask=mask)
            np.testing.assert_array_equal(one.ids, reference.ids[0, :K])
            np.testing.assert_array_equal(head.logits(self.test[:1], mask=mask)[0] > -np.inf, allowed)
            drawn = [tks.Sampler().draw(head, self.test[0], tks.Random(3), mask=m).id for m in (mask, allowed)]
            self.assertEqual(*drawn)
        self.assertEqual(tks._Query(VOCAB, mask=words)._options.allowed32, words.ctypes.data)  # not copied
        token_ids = np.arange(100, dtype=np.int32)
        for wrong in (words[:-1], words[None, :], token_ids):
            with self.assertRaisesRegex(ValueError, "a mask in words of 32 bits must be a contiguous array"):
                head.query(self.test[0], mask=wrong)
        with self.assertRaisesRegex(ValueError, "a mask without words of 32 bits must be a contiguous array"):
            head.query(self.test[0], mask=words.astype(np.int64))

    def test_logits_of(self):
        head = tks.Backend.build(self.layer, "certified", self.train)
        ids = np.array([5, 699, 5, 0], np.int32)
        expected = head.logits(self.test[:1], biases={5: 2.0})[0, ids]
        np.testing.assert_array_equal(head.logits_of(self.test[0], ids, biases={5: 2.0}), expected)
        with self.assertRaisesRegex(ValueError, "700"):
            head.logits_of(self.test[0], np.array([700], np.int32))
        with self.assertRaisesRegex(ValueError, "ids must be a contiguous array"):
            head.logits_of(self.test[0], ids.astype(np.int64))

    def test_sampled_log_z(self):
        head = tks.Backend.build(self.layer, "certified", self.train)
        allowed = np.arange(VOCAB) % 3 > 0
        for options in ({}, {"mask": allowed, "biases": {5: 2.0}, "temperature": 0.7}):
            temperature = options.pop("temperature", 1.0)
            logits = head.logits(self.test[:20], **options).astype(np.float64) / temperature
            for h, exact in zip(self.test, np.log(np.exp(logits).sum(1))):
                sampled = head.sample_log_z(h, 0.02, temperature, **options)
                self.assertLessEqual(sampled.error, 0.02)
                self.assertAlmostEqual(sampled.log_z, exact, delta=0.03)
                self.assertTrue(0 < sampled.rows_read <= VOCAB, sampled)
        self.assertIsNone(tks.Backend.build(self.layer, "fused").sample_log_z(self.test[0]))
        with self.assertRaisesRegex(ValueError, "above 0"):
            head.sample_log_z(self.test[0], error=0.0)

    def test_penalties(self):
        head = tks.Backend.build(self.layer, "certified", self.train)
        history = np.array([5, 699, 5, 0], np.int32)
        for h in self.test[:10]:
            biases = head.penalise(h, history, repetition=1.2, presence=0.5, frequency=0.25, biases={1: 1.0})
            self.assertEqual(list(biases), [0, 1, 5, 699])
            expected = head.logits(h[None, :])[0].astype(np.float64)
            expected[1] += 1.0
            for token, count in ((0, 1), (5, 2), (699, 1)):
                z = expected[token]
                expected[token] = (z / 1.2 if z > 0 else z * 1.2) - 0.5 - 0.25 * count
            top = head.query(h, k=K, biases=biases)
            np.testing.assert_array_equal(top.ids, np.argsort(-expected, kind="stable")[:K])
            np.testing.assert_allclose(top.logits, expected[top.ids], atol=1e-5)
        with self.assertRaisesRegex(ValueError, "repetition is 0"):
            head.penalise(self.test[0], history, repetition=0.0)

    def test_cursor(self):
        allowed = np.zeros(VOCAB, bool)
        allowed[::2] = True
        head = tks.Backend.build(self.layer, "certified", self.train)
        top = head.query(self.test[0], k=VOCAB, mask=allowed, biases={4: 3.0})
        cursor = head.cursor(self.test[0], mask=allowed, biases={4: 3.0})
        self.assertTrue(cursor.certified)
        self.assertEqual(next(cursor), (top.ids[0], top.logits[0]))
        self.assertEqual(list(cursor), list(zip(top.ids[1:], top.logits[1:])))
        self.assertEqual(list(cursor), [])
        cursor.start(self.test[1])
        self.assertEqual(next(cursor)[0], head.query(self.test[1], k=1).ids[0])
        with self.assertRaises(ValueError):
            cursor.start(self.test[1][1:])

    def test_what_answers_tell_of_the_work(self):
        h = self.test[0]
        top = tks.Backend.build(self.layer, "fused").query(h, k=K)
        self.assertEqual((top.confidence, top.candidates, top.screened), (1.0, VOCAB, 0))
        self.assertEqual(top.bytes_read, self.W.nbytes + self.b.nbytes)
        self.assertFalse(top.fell_back or top.repaired)

        settings = {"clusters": 8, "budget": 20}
        few = tks.Backend.build(self.layer, "l2s", self.train, **settings)
        top = few.query(h, k=K)
        self.assertEqual((top.confidence, top.fell_back), (0.0, False))
        self.assertGreater(top.screened, 0)
        self.assertLess(top.candidates, 100)
        self.assertTrue(few.query(h, k=100).fell_back)  # more than there are candidates

        certify = tks.Backend.build(self.layer, "certify:l2s", self.train, **settings)
        repaired = [certify.query(h, k=K).repaired for h in self.test]
        self.assertEqual(set(repaired), {False, True})

        # Rows and contexts that bounds do not tell apart: exact but for a probability.
        random = np.random.default_rng(4)
        W, contexts = (random.normal(0, 1, (n, 128)).astype(np.float32) for n in (700, 200))
        likely = tks.Backend.build(tks.Layer(W), "certified", contexts, prefix=8, int4_width=32,
                                   failure_probability=1e-3)
        top = likely.query(contexts[0], k=K)
        self.assertEqual((top.certified, top.confidence), (False, 1 - 1e-3))

    def test_indexes(self):
        head = tks.Backend.build(self.layer, "l2s", self.train, clusters=8, rounds=1)
        other = tks.Layer(self.W)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "head.index"
            head.save(path)
            tks.verify_index(path)
            tks.verify_layer(path, self.layer)
            loaded = tks.Backend.load(path, self.layer)
            copied = tks.Backend.load(path, self.layer, copy=True)
            for refused in (tks.Backend.load, tks.verify_layer):
                with self.assertRaisesRegex(tks.Error, "another layer"):
                    refused(path, other)
            with self.assertRaisesRegex(tks.Error, "another layer"):
                tks.Backend.load(path, other, copy=True)
            expected = head.query_batch(self.test, k=K)
            for a, b in zip(expected, loaded.query_batch(self.test, k=K)):
                np.testing.assert_array_equal(a, b)
            self.assertEqual((loaded.name, loaded.index_bytes), ("l2s", head.index_bytes))

            # Asked with the effort that tune has found, unless a query names another.
            data = path.read_bytes()
            end = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:end])
            header["__metadata__"]["effort"] = "3"
            text = json.dumps(header).encode()
            text += b" " * (-(len(text) + 8) % 64)
            tuned = pathlib.Path(folder) / "tuned.index"
            tuned.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])
            tuned = tks.Backend.load(tuned, self.layer)
            for asked, meant in ((0, 3), (2, 2)):
                for a, b in zip(head.query_batch(self.test, k=K, effort=meant),
                                tuned.query_batch(self.test, k=K, effort=asked)):
                    np.testing.assert_array_equal(a, b)

            del loaded  # uses the file where it lies
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            with self.assertRaisesRegex(tks.Error, "checksum"):
                tks.verify_index(path)
            path.write_bytes(b"")  # which matters to none that has a copy
            for a, b in zip(expected, copied.query_batch(self.test, k=K)):
                np.testing.assert_array_equal(a, b)
            self.assertRaises(tks.Error, tks.Backend.load, path, self.layer)

    def test_sampling(self):
        heads = [tks.Backend.build(self.layer, name, self.train) for name in ("fused", "certified")]
        sampler = tks.Sampler(temperature=0.8, top_p=0.9)

        def draw(head, seed):
            random = tks.Random(seed)
            return [sampler.draw(head, h, random).id for h in self.test]

        self.assertEqual(draw(heads[0], 1), draw(heads[1], 1))
        self.assertNotEqual(draw(heads[0], 1), draw(heads[0], 2))
        for seed, h in enumerate(self.test):
            exact, token = (sampler.draw(head, h, tks.Random(seed)) for head in heads)
            low, high = token.log_prob_interval
            self.assertTrue(low - 1e-4 <= exact.log_prob <= high + 1e-4 and low <= token.log_prob <= high)
        greedy = tks.Sampler(temperature=0)
        token = greedy.draw(heads[1], self.test[0], tks.Random())
        self.assertEqual(token.id, heads[0].query(self.test[0]).ids[0])
        self.assertEqual(token.log_prob, 0.0)

        with self.assertRaisesRegex(ValueError, "log_z_error is -1"):
            tks.Sampler(log_z_error=-1)
        near = tks.Sampler(temperature=0.8, top_p=0.9, log_z_error=0.01)
        same = [near.draw(heads[1], h, tks.Random(i)).id == sampler.draw(heads[1], h, tks.Random(i)).id
                for i, h in enumerate(self.test)]
        self.assertGreater(np.mean(same), 0.95)

        # Cuts in an order of one's own: which tokens are among the 3 best does not depend on the temperature, but
        # who of them reaches a share does.
        llama_cpp = ("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")
        hot = {"temperature": 5.0, "top_k": 3, "top_p": 0.5}

        def draw_by(order):
            ordered = tks.Sampler(order=order, **hot)
            return [ordered.draw(heads[1], h, tks.Random(i)).id for i, h in enumerate(self.test)]

        self.assertEqual(draw_by(llama_cpp), draw_by("llama_cpp"))
        self.assertNotEqual(draw_by(reversed(llama_cpp)), draw_by("llama_cpp"))
        for wrong, message in (("mirostat", "order is 'mirostat'; it must be one of"),
                               (["top_q"], "a step of order is 'top_q'"), (["top_k"], "step_count is 1; there are 7"),
                               (["top_k"] * 7, "every step once")):
            with self.assertRaisesRegex(ValueError, message):
                tks.Sampler(order=wrong)

        # Frequencies are those of the softmax: within six standard deviations.
        random, draws = tks.Random(3), 20000
        plain = tks.Sampler()
        drawn = [plain.draw(heads[1], self.test[0], random).id for _ in range(draws)]
        found = np.bincount(drawn, minlength=VOCAB)
        reference = Reference(self.W, self.b, self.test[:1])
        expected = np.exp(reference.logits[0] - reference.log_z[0])
        deviations = np.abs(found - draws * expected) / np.sqrt(draws * expected + 1)
        self.assertLess(deviations.max(), 6)

    def test_draws_for_many_requests(self):
        each = [{}, {"mask": np.arange(VOCAB) % 3 == 0}, {"biases": {0: 2.5}, "probabilities": False}] * 4
        contexts = self.test[: len(each)]
        ways = [{}, {"temperature": 0}, {"top_k": 5}, {"temperature": 0.8, "top_p": 0.9}] * 3
        for name in ("fused", "certified"):
            head = tks.Backend.build(self.layer, name, self.train)
            samplers = [tks.Sampler(**way) for way in ways]
            randoms, same = ([tks.Random(seed) for seed in range(len(each))] for _ in range(2))
            for workspace in (None, tks.Workspace(1)):
                tokens = head.draw_each(contexts, samplers, randoms, each, workspace)
                alone = [sampler.draw(head, h, random, **options)
                         for sampler, h, random, options in zip(samplers, contexts, same, each)]
                self.assertEqual(tokens, alone)
            self.assertEqual(head.draw_each(contexts, samplers, randoms),
                             [by.draw(head, h, random) for by, h, random in zip(samplers, contexts, same)])
            self.assertEqual(head.draw_each(contexts[:0], [], []), [])
        with self.assertRaisesRegex(ValueError, "12 contexts and 11 samplers"):
            head.draw_each(contexts, samplers[1:], randoms)
        with self.assertRaisesRegex(ValueError, "12 contexts and 11 randoms"):
            head.draw_each(contexts, samplers, randoms[1:])
        with self.assertRaisesRegex(ValueError, "two requests have the same sampler"):
            head.draw_each(contexts, samplers[:1] * len(each), randoms)
        with self.assertRaisesRegex(TypeError, "a sampler is needed, not Random"):
            head.draw_each(contexts, randoms, samplers)
        with self.assertRaisesRegex(ValueError, "context 11: "):
            head.draw_each(contexts, samplers, randoms, [{}] * 11 + [{"mask": np.zeros(VOCAB, bool)}])

    def test_threads_share_a_backend(self):
        head = tks.Backend.build(self.layer, "certified", self.train)
        expected = head.query_batch(self.test, k=K, workspace=tks.Workspace(1))
        found = [None] * 4

        def ask(i):
            found[i] = head.query_batch(self.test, k=K, workspace=tks.Workspace(1))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answers in (*found, head.query_batch(self.test, k=K, workspace=tks.Workspace(3))):
            for a, b in zip(expected, answers):
                np.testing.assert_array_equal(a, b)

    def test_threads_of_a_pool(self):
        expected = tks.Backend.build(self.layer, "certified", self.train)
        answers = expected.query_batch(self.test, k=K)
        met = set()

        class Pool(concurrent.futures.ThreadPoolExecutor):
            def submit(self, work, *arguments):
                def meet():
                    met.add(threading.get_ident())
                    return work(*arguments)

                return super().submit(meet)

        with Pool(3) as pool:
            executor = tks.Executor(pool, 3)
            head = tks.Backend.build(self.layer, "certified", self.train, executor=executor)
            workspace = tks.Workspace(0, executor)
            del executor  # which the workspace keeps
            for _ in range(20):
                for a, b in zip(answers, head.query_batch(self.test, k=K, workspace=workspace)):
                    np.testing.assert_array_equal(a, b)
            self.assertTrue(met and threading.get_ident() not in met)
            # From a thread of the pool, all of which wait for theirs.
            nested = [pool.submit(head.query_batch, self.test, K, tks.Workspace(3, tks.Executor(pool, 3)))
                      for _ in range(6)]
            for found in nested:
                np.testing.assert_array_equal(found.result(timeout=60).ids, answers.ids)
        with self.assertRaisesRegex(tks.Error, "executor.run has failed"):  # the pool is shut down
            head.query_batch(self.test, k=K, workspace=workspace)

    def test_draws_and_cursors_on_threads(self):
        W = np.random.default_rng(8).standard_normal((30000, 64), np.float32)  # whose reading is worth threads
        head = tks.Backend.build(tks.Layer(W), "quantized")
        H = np.random.default_rng(9).standard_normal((5, 64), np.float32)
        submitted = []

        class Pool(concurrent.futures.ThreadPoolExecutor):
            def submit(self, work, *arguments):
                submitted.append(work)
                return super().submit(work, *arguments)

        with Pool(3) as pool:
            one, many = tks.Sampler(), tks.Sampler()
            many.lend_threads(executor=tks.Executor(pool, 3))
            random, same = tks.Random(5), tks.Random(5)
            for h in H:
                self.assertEqual(one.draw(head, h, random), many.draw(head, h, same))
                self.assertEqual(one.draw_own(head, h, random), many.draw_own(head, h, same))
            self.assertGreater(len(submitted), 0)
            submitted.clear()
            cursor = head.cursor(H[0])
            self.assertEqual(len(submitted), 0)
            cursor.lend_threads(2, tks.Executor(pool, 3))
            cursor.start(H[1])
            for _, got, wanted in zip(range(30), cursor, head.cursor(H[1])):
                self.assertEqual(got, wanted)
            self.assertGreater(len(submitted), 0)
        many.lend_threads(1)  # the pool is shut down
        self.assertEqual(one.draw(head, H[0], random), many.draw(head, H[0], same))

    def test_an_interrupt_waits_for_the_threads_that_are_lent(self):
        begun, go_on, done = threading.Event(), threading.Event(), []

        def body(_, part, thread):
            if thread > 0:
                begun.set()
                go_on.wait(60)
            elif part == 0:
                begun.wait(60)  # until the pool's thread has a part of its own
            done.append(part)

        def interrupt():
            begun.wait(60)
            time.sleep(0.2)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)
            go_on.set()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            interrupting = pool.submit(interrupt)
            self.assertEqual(tks._run(pool, None, 4, 2, body, None), 1)
            self.assertEqual(sorted(done), [0, 1, 2, 3])
            interrupting.result()
        self.assertIsInstance(tks._stopped.__dict__.pop("error"), KeyboardInterrupt)

    def test_answers_are_written_where_they_may_be(self):
        head = tks.Backend.build(self.layer, "fused")
        answers = head.query_batch(self.test[:2], k=K)
        for part in answers:
            part.flags.writeable = False
            with self.assertRaisesRegex(ValueError, "out must be as Answers.empty"):
                head.query_batch(self.test[:2], k=K, out=answers)
            part.flags.writeable = True
        odd = np.frombuffer(b"x" + self.test[0].tobytes(), np.float32, offset=1)
        with self.assertRaisesRegex(ValueError, "h must be a contiguous array"):
            head.query(odd)

    def test_more_tokens_than_there_are(self):
        head = tks.Backend.build(self.layer, "fused")
        all_ids = head.query(self.test[0], k=VOCAB).ids
        for k in (VOCAB + 1, 10**12, 2**64 - 1):
            np.testing.assert_array_equal(head.query(self.test[0], k=k).ids, all_ids)
            batch = head.query_batch(self.test[:2], k=k)
            self.assertEqual(batch.ids.shape, (2, VOCAB))
            np.testing.assert_array_equal(batch.ids[0], all_ids)

    def test_errors(self):
        head = tks.Backend.build(self.layer, "fused")
        with self.assertRaisesRegex(tks.Error, 'there is no backend "none"'):
            tks.Backend.build(self.layer, "none")
        with self.assertRaisesRegex(tks.Error, "no parameter"):
            tks.Backend.build(self.layer, "l2s", self.train, clutsers=8)
        with self.assertRaisesRegex(tks.Error, "row 4, column 2 is NaN"):
            W = self.W.copy()
            W[4, 2] = np.nan
            tks.Layer(W)
        with self.assertRaisesRegex(ValueError, r"h\[5\] is NaN"):
            h = self.test[0].copy()
            h[5] = np.nan
            head.query(h)
        with self.assertRaisesRegex(ValueError, "k is 0"):
            head.query(self.test[0], k=0)
        with self.assertRaisesRegex(ValueError, "top_p"):
            tks.Sampler(top_p=0.0)
        with self.assertRaises(tks.Stopped):
            tks.Backend.build(self.layer, "l2s", self.train, clusters=8, progress=lambda step, done: True)
        with self.assertRaises(MemoryError):
            tks.Workspace(threads=2**62)
        with self.assertRaisesRegex(tks.Error, "cannot open"):
            tks.HeadFile("no.safetensors")

    def test_exceptions_of_progress(self):
        cause = OSError("why")
        for error in (ValueError("mine"), KeyboardInterrupt(), tks.Stopped("mine as well")):
            told = []

            def progress(step, done):
                told.append(step)
                raise error from cause

            with self.assertRaises(type(error)) as caught:
                tks.Backend.build(self.layer, "l2s", self.train, clusters=8, progress=progress)
            self.assertIs(caught.exception, error)
            self.assertIs(error.__cause__, cause)
            self.assertEqual(len(told), 1)

    def test_what_the_library_has_not_made(self):
        head, h, sampler = tks.Backend.build(self.layer, "fused"), self.test[0], tks.Sampler()
        for wanted, take in (
            ("a random is needed, not int", lambda: sampler.draw(head, h, 1)),
            ("a backend is needed, not Layer", lambda: sampler.draw(self.layer, h, tks.Random(1))),
            ("a workspace is needed, not int", lambda: head.query(h, workspace=4)),
            ("a workspace is needed, not Random", lambda: head.query_batch(self.test, workspace=tks.Random(1))),
            ("a layer is needed, not Backend", lambda: tks.Backend.load("none.index", head)),
            ("a layer is needed, not ndarray", lambda: tks.Backend.build(self.W, "fused")),
        ):
            with self.subTest(wanted=wanted), self.assertRaisesRegex(ctypes.ArgumentError, wanted):
                take()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        for take in (lambda: tks.Workspace(2, pool), lambda: tks.Backend.build(self.layer, "fused", executor=pool),
                     lambda: sampler.lend_threads(2, pool), lambda: head.cursor(h).lend_threads(2, pool)):
            with self.assertRaisesRegex(TypeError, "executor must be an Executor, not ThreadPoolExecutor"):
                take()
        with self.assertRaisesRegex(ValueError, "kind is 'Q8_0'; it must be one of q8_0, q6_k, q4_k"):
            tks.Layer.from_blocks(np.zeros((4, 34), np.uint8), "Q8_0")

    def test_numbers_that_c_has_no_room_for(self):
        head, h = tks.Backend.build(self.layer, "certified", self.train), self.test[0]
        for wrong in (-1, 2**64, 2.0, "2", None):
            for name, least, take in (
                ("k", 1, lambda: head.query(h, k=wrong)),
                ("k", 1, lambda: head.query_batch(self.test, k=wrong)),
                ("effort", 0, lambda: head.query(h, effort=wrong)),
                ("top_k", 0, lambda: tks.Sampler(top_k=wrong)),
                ("threads", 0, lambda: tks.Workspace(wrong)),
                ("seed", 0, lambda: tks.Random(wrong)),
                ("seed", 0, lambda: head.sample_log_z(h, seed=wrong)),
                ("vocab", 0, lambda: head.mapped(np.arange(VOCAB, dtype=np.int32), wrong)),
            ):
                with self.subTest(name=name, wrong=wrong), self.assertRaisesRegex(
                        ValueError, f"^{name} is {wrong!r}; it must be a whole number from {least} to {2**64 - 1}$"):
                    take()
        for token in (-1, VOCAB, 2**32, 2**40, 3.7):
            with self.assertRaisesRegex(ValueError, f"a token of biases is {token}; .* from 0 to 699"):
                head.query(h, biases={0: 1.0, token: 1.0})
        expected = head.query(h, k=K, biases={3: 1.0})
        found = head.query(h, k=np.int64(K), biases={np.uint8(3): 1.0})
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.logits, expected.logits)

    def test_what_is_no_array(self):
        head, h = tks.Backend.build(self.layer, "fused"), self.test[0]
        for wanted, take in (
            (r"h must be a contiguous array \[32\] of float32", lambda: head.query([0.0] * DIM)),
            (r"a mask .* must be a contiguous array \[700\] of bool", lambda: head.query(h, mask=[True] * VOCAB)),
            (r"ids must be a contiguous array \[n\] of int32", lambda: head.logits_of(h, [1, 2])),
            (r"history must be a contiguous array \[n\] of int32", lambda: head.penalise(h, [1, 2])),
            (r"token_of_row must be a contiguous array \[n\] of int32", lambda: head.mapped([0, 1], 2)),
            (r"b must be a contiguous array \[700\] of float32", lambda: tks.Layer(self.W, [0.0] * VOCAB)),
            ("W must be a matrix of float32, float16, .* or int8", lambda: tks.Layer([[1.0]])),
            ("contexts must be a matrix of float32", lambda: head.query_batch([h])),
            ("contexts must be a matrix of float32", lambda: tks.Backend.build(self.layer, "certified", [h])),
            ("blocks must be a matrix of uint8", lambda: tks.Layer.from_blocks([[1]], "q8_0")),
        ):
            with self.subTest(wanted=wanted), self.assertRaisesRegex(ValueError, f"^{wanted}.*, not list$"):
                take()
        with self.assertRaisesRegex(ValueError, r"out must be as Answers.empty\(100, 1\) makes it"):
            head.query_batch(self.test, out=([], [], [], []))

    def test_head_file(self):
        file = tks.HeadFile(pathlib.Path(__file__).parents[2] / "examples/data/novels-lm.safetensors")
        self.assertEqual(file.layer.shape, (10000, 200))
        self.assertEqual(file.contexts("test").shape, (4096, 200))
        self.assertEqual(file.contexts("train").shape, (0, 200))
        self.assertEqual(file.counts().shape, (10000,))
        head = tks.Backend.build(file.layer, "shortlist", counts=file.counts(), top_frequent=50)
        self.assertLess(head.query_batch(file.contexts("test")[:20], k=K).ids.max(), 51)

    def test_draws_of_an_approximate_head(self):
        head = tks.Backend.build(self.layer, "l2s", self.train, clusters=8, budget=100)
        sampler, random, draws = tks.Sampler(), tks.Random(3), 5000
        h = self.test[0]
        found = np.bincount([sampler.draw_own(head, h, random).id for _ in range(draws)], minlength=VOCAB)
        top = head.query(h, k=K)
        expected = np.exp(top.log_probs)
        deviations = np.abs(found[top.ids] - draws * expected) / np.sqrt(draws * expected + 1)
        self.assertLess(deviations.max(), 5)

    def test_layer_of_a_model(self):
        layer = tks.Layer.open(pathlib.Path(__file__).parents[2] / "examples/data/novels-lm.safetensors")
        self.assertEqual(layer.shape, (10000, 200))
        self.assertIsNone(layer.token_of_row)
        with self.assertRaisesRegex(tks.Error, "nothing.gguf: cannot open"):
            tks.Layer.open("nothing.gguf")

    def test_vocabulary_with_gaps(self):
        tokens = np.arange(VOCAB, dtype=np.int32) * 2 + 1
        tokens[-1] = -1  # padding
        vocab = 2 * VOCAB
        head = tks.Backend.build(self.layer, "certified", self.train).mapped(tokens, vocab)
        self.assertEqual(head.name, "mapped:certified")
        self.assertEqual(head.shape, (vocab, DIM))
        W, b = np.zeros((vocab, DIM), np.float32), np.zeros(vocab, np.float32)
        W[tokens[:-1]], b[tokens[:-1]] = self.W[:-1], self.b[:-1]
        has_row = np.isin(np.arange(vocab), tokens)
        for mask in (None, np.arange(vocab) % 3 == 0):
            allowed = has_row if mask is None else has_row & mask
            reference = Reference(W, b, self.test, allowed)
            reference.check(self, head.query_batch(self.test, k=K, mask=mask))
            top = head.query(self.test[0], k=K, mask=mask)
            np.testing.assert_array_equal(top.ids, reference.ids[0, :K])
        token = tks.Sampler(top_k=K).draw(head, self.test[0], tks.Random(seed=3))
        self.assertIn(token.id, Reference(W, b, self.test, has_row).ids[0, :K])
        with self.assertRaisesRegex(tks.Error, "mapped"):
            head.mapped(tokens, vocab)


if __name__ == "__main__":
    unittest.main()
