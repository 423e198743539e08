# SPDX-License-Identifier: Apache-2.0
"""dump_contexts_test.py TOOL: examples/dump_contexts.py on small modules, and what the harness makes of its files."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import types
import unittest

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian's package python3-torch)")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples"))
import dump_contexts

TOOL = sys.argv.pop()
VOCAB, DIM = 500, 33  # an odd dimension: without padding between them, tensors would lie anywhere


class Model(torch.nn.Module):
    """A language model in small, the output layer tied to the embedding."""

    def __init__(self, dtype=torch.float32, bias=True):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(VOCAB, DIM)
        self.lstm = torch.nn.LSTM(DIM, DIM, batch_first=True)
        self.output = torch.nn.Linear(DIM, VOCAB, bias=bias)
        self.output.weight = self.embedding.weight
        self.to(dtype)
        self.config = types.SimpleNamespace(final_logit_softcapping=30.0)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        if hidden.dtype == torch.float32:
            hidden = self.lstm(hidden)[0]
        return self.output(hidden)

    def get_output_embeddings(self):
        return self.output


def read(path):
    """The tensors of a safetensors file, and its metadata."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    types_of = {name: dtype for dtype, name in dump_contexts.STORED_TYPES.items()}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if name.startswith("__padding__"):
            continue
        assert begin % 64 == 0, name
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]),
                                         dtype=types_of[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def measured(path):
    """What the harness says of the head."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        subprocess.run([TOOL, "measure", "--head", path, "--backends", "exact,certified", "--timed", "20", "--rounds", "1",
                        "--json", report], check=True, capture_output=True)
        with open(report, encoding="utf-8") as file:
            return json.load(file)


class DumpContexts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "head.safetensors")
        self.text = os.path.join(folder.name, "text.txt")
        self.tokens = torch.randint(VOCAB, (40, 25), generator=torch.Generator().manual_seed(2))

    def dump(self, model, **options):
        with torch.no_grad(), dump_contexts.collect_contexts(model.output, limit=900) as contexts:
            for batch in self.tokens.split(8):
                model(batch)
        dump_contexts.write_head(self.path, model.output, contexts, **options)
        return read(self.path)

    def test_the_file_has_the_layer_and_its_contexts(self):
        model = Model()
        tensors, metadata = self.dump(model, name="small", soft_cap=30)
        self.assertEqual(metadata, {"name": "small", "soft_cap": "30"})
        self.assertTrue(torch.equal(tensors["weight"], model.output.weight))
        self.assertTrue(torch.equal(tensors["bias"], model.output.bias))
        self.assertEqual(tensors["contexts.train"].shape, (810, DIM))
        self.assertEqual(tensors["contexts.test"].shape, (90, DIM))
        with torch.no_grad():
            logits = model(self.tokens).reshape(-1, VOCAB)[:900]
            contexts = torch.cat([tensors["contexts.train"], tensors["contexts.test"]])
            again = torch.nn.functional.linear(contexts, tensors["weight"], tensors["bias"])
        self.assertTrue(torch.allclose(logits, again, atol=1e-5))

    def test_the_hook_is_gone_afterwards(self):
        model = Model()
        with dump_contexts.collect_contexts(model.output) as contexts:
            pass
        model(self.tokens)
        self.assertEqual(contexts.count, 0)
        with self.assertRaisesRegex(ValueError, "no context"):
            contexts.rows()

    def test_bfloat16_stays_as_it_is(self):
        model = Model(torch.bfloat16, bias=False)
        tensors, _ = self.dump(model)
        self.assertNotIn("bias", tensors)
        for name in ("weight", "contexts.train", "contexts.test"):
            self.assertEqual(tensors[name].dtype, torch.bfloat16)
        self.assertTrue(torch.equal(tensors["weight"], model.output.weight))

    def test_the_harness_takes_it(self):
        for model in (Model(), Model(torch.bfloat16, bias=False)):
            self.dump(model, name="small", soft_cap=30)
            report = measured(self.path)
            self.assertIn("certified", json.dumps(report))

    def test_mistakes_are_told_before_the_work(self):
        with open(self.text, "w", encoding="utf-8") as file:
            file.write("words")
        empty = self.text + ".empty"
        open(empty, "w", encoding="utf-8").close()
        dump_contexts.check_target(self.path)
        self.assertEqual(dump_contexts.read_text(self.text), "words")
        for work, why in ((lambda: dump_contexts.check_target("/no/folder/head"), "head: cannot be written"),
                          (lambda: dump_contexts.check_target(os.path.dirname(self.path)), "cannot be written"),
                          (lambda: dump_contexts.read_text(self.text + "s"), "No such file"),
                          (lambda: dump_contexts.read_text(empty), "holds no text")):
            with self.subTest(why), self.assertRaisesRegex(SystemExit, why):
                work()

    def test_every_scale_and_soft_cap_of_transformers(self):
        for given in ({"logit_scale": 0.5}, {"lm_head_multiplier": 0.5}, {"output_multiplier_scale": 0.5},
                      {"output_multiplier": 0.5}, {"logits_scaling": 2.0},
                      {"logits_scaling": 0.5, "model_type": "hyperclovax"},
                      {"mup_width_multiplier": 2.0, "model_type": "phi3small"},
                      {"final_logit_softcapping": 30.0}, {"logits_soft_cap": 30.0}, {"output_logit_soft_cap": 30.0}):
            with self.subTest(given):
                expected = {"soft_cap": 30.0, "logit_scale": None} if 30.0 in given.values() else {
                    "soft_cap": None, "logit_scale": 0.5}
                config = types.SimpleNamespace(**given)
                self.assertEqual(dump_contexts.transform_of(config), expected)
                model_type = given.get("model_type", "other")
                for part in ("text_config", "decoder"):
                    whole = types.SimpleNamespace(**{part: config}, model_type=model_type)
                    self.assertEqual(dump_contexts.transform_of(whole), expected)

    def test_what_a_configuration_computes_is_no_scale_of_logits(self):
        class OfContexts:  # as MiniCPM3's, whose model divides what the layer takes
            @property
            def logits_scaling(self):
                return 10.0

        self.assertEqual(dump_contexts.transform_of(OfContexts()), {"soft_cap": None, "logit_scale": None})

    def test_one_configuration_with_several(self):
        of_text = types.SimpleNamespace(logit_scale=4.0, logits_soft_cap=10.0)
        config = types.SimpleNamespace(logit_scale=3.0, logits_scaling=2.0, final_logit_softcapping=None,
                                       output_logit_soft_cap=20.0, text_config=of_text)
        self.assertEqual(dump_contexts.transform_of(config), {"soft_cap": 10.0, "logit_scale": 1.5})
        self.assertEqual(dump_contexts.transform_of(types.SimpleNamespace()), {"soft_cap": None, "logit_scale": None})

    def test_a_model_of_transformers(self):
        """With a stand-in for Transformers, which has of it what dump_contexts takes."""
        model = Model(bias=False)
        words = self.tokens.flatten().tolist()
        of_name = types.SimpleNamespace
        stand_in = types.ModuleType("transformers")
        stand_in.AutoModelForCausalLM = of_name(from_pretrained=lambda name, torch_dtype: model)
        stand_in.AutoTokenizer = of_name(
            from_pretrained=lambda name: lambda text: {"input_ids": [int(word) for word in text.split()]})
        with open(self.text, "w", encoding="utf-8") as file:
            file.write(" ".join(map(str, words)))
        arguments, sys.argv = sys.argv, ["dump_contexts.py", "folder/small", self.text, self.path,
                                         "--contexts", "300", "--window", "64"]
        sys.modules["transformers"] = stand_in
        try:
            dump_contexts.main()
        finally:
            sys.argv = arguments
            del sys.modules["transformers"]
        tensors, metadata = read(self.path)
        self.assertEqual(metadata, {"name": "small", "soft_cap": "30.0"})
        self.assertEqual(tensors["contexts.train"].shape, (270, DIM))


if __name__ == "__main__":
    unittest.main()
