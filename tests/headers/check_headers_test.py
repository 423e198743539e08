#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_headers.py complains of what is planted in small trees of headers, and of nothing else."""
import argparse
import pathlib
import sys
import tempfile
import unittest

import check_headers

COMPILER = "c++"


class Planted(unittest.TestCase):
    """A tree of our headers, and one of other projects'."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.include = pathlib.Path(folder.name) / "include"
        self.system = pathlib.Path(folder.name) / "system"
        self.write(self.include / "topksoftmax/config.hpp", "#define TOPKSOFTMAX_FORM compiled\n")
        self.write(self.system / "Eigen/Core", "")
        self.write(self.system / "Eigen/Eigenvalues", '#include "src/Eigenvalues/EigenSolver.h"\n')
        self.write(self.system / "Eigen/src/Eigenvalues/EigenSolver.h", "")
        self.write(self.system / "hnswlib/hnswlib.h", "")
        self.write(self.system / "nlohmann/json.hpp", "")
        self.write(self.system / "hwy/highway.h", "#ifdef WANTED\n#define HWY_TARGETS 2\n#else\n"
                   "#define HWY_TARGETS 1\n#endif\n#define HWY_TOGGLE\n")

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def header(self, name, text):
        self.write(self.include / "topksoftmax" / name, "#pragma once\n" + text)

    def complaints(self):
        preprocess = check_headers.Preprocessor(COMPILER, str(self.include), [str(self.system)])
        return check_headers.complaints_of(str(self.include), preprocess, 1)[1]

    def expect(self, *beginnings):
        complaints = self.complaints()
        self.assertEqual(len(complaints), len(beginnings), complaints)
        for complaint, beginning in zip(complaints, beginnings):
            self.assertTrue(complaint.startswith(beginning), complaint)

    def test_nothing_is_wrong(self):
        self.header("l2s/l2s.hpp", "#include <Eigen/Core>\n#define GONE\n#undef GONE\n"
                    '#include "topksoftmax/config.hpp"\n')
        self.expect()

    def test_a_macro_of_ours(self):
        self.header("l2s/l2s.hpp", "#define LEAKED(x) x\n")
        self.header("l2s/user.hpp", '#include "topksoftmax/l2s/l2s.hpp"\n')
        self.expect("l2s/l2s.hpp: ", "l2s/user.hpp: ")
        self.assertIn("LEAKED", self.complaints()[0])

    def test_a_macro_of_the_c_interface(self):
        self.header("c/topksoftmax.h", "#define TOPK_OURS\n#define OURS\n")
        self.header("top_k.hpp", "#define TOPK_OURS\n")
        self.expect("c/topksoftmax.h: ", "top_k.hpp: ")

    def test_other_projects(self):
        self.header("io/json.hpp", "#include <nlohmann/json.hpp>\n")
        self.header("fused.hpp", "#include <hwy/highway.h>\n")
        self.header("user.hpp", '#include "topksoftmax/io/json.hpp"\n')
        self.expect("fused.hpp: Highway", "io/json.hpp: nlohmann_json", "user.hpp: nlohmann_json")
        self.assertIn("nlohmann/json.hpp <- " + str(self.include / "topksoftmax/io/json.hpp"), self.complaints()[2])

    def test_hnswlib_belongs_to_what_builds_graphs(self):
        self.header("graph/build.hpp", "#include <hnswlib/hnswlib.h>\n")
        for name in ("fgd/build.hpp", "fgd/fgd.hpp", "l2s/build.hpp", "registry/standard.hpp", "topksoftmax.hpp"):
            self.header(name, '#include "topksoftmax/graph/build.hpp"\n')
        self.expect("fgd/fgd.hpp: hnswlib", "l2s/build.hpp: hnswlib", "topksoftmax.hpp: hnswlib",
                    "topksoftmax.hpp: hnswlib")

    def test_decompositions_belong_to_what_builds(self):
        decomposes = "#include <Eigen/Eigenvalues>\n"
        self.header("svd/build.hpp", '#include "topksoftmax/svd/part.hpp"\n#include "topksoftmax/svd/shared.hpp"\n')
        self.header("svd/description.hpp", '#include "topksoftmax/svd/build.hpp"\n')
        self.header("svd/part.hpp", '#include "topksoftmax/learning/part_of_part.hpp"\n')
        self.header("learning/part_of_part.hpp", decomposes)
        self.header("svd/shared.hpp", decomposes)
        self.header("svd/svd.hpp", '#include "topksoftmax/svd/shared.hpp"\n')
        self.header("decoding/beam_search.hpp", decomposes)
        self.header("topksoftmax.hpp", '#include "topksoftmax/svd/build.hpp"\n#include "topksoftmax/fused.hpp"\n')
        self.header("fused.hpp", decomposes)
        self.expect("decoding/beam_search.hpp: ", "fused.hpp: ", "svd/shared.hpp: ", "svd/svd.hpp: ")

    def test_highway_of_headers_alone(self):
        self.header("topksoftmax.hpp", "#ifdef TOPKSOFTMAX_HEADER_ONLY\n#include <hwy/highway.h>\n#endif\n")
        self.expect()
        self.header("topksoftmax.hpp", "#ifdef TOPKSOFTMAX_HEADER_ONLY\n#define WANTED\n#include <hwy/highway.h>\n"
                    "#undef WANTED\n#endif\n")
        self.expect("topksoftmax.hpp: Highway's macro HWY_TARGETS")

    def test_a_header_that_cannot_be_read(self):
        self.header("fused.hpp", "#include <absent.h>\n")
        with self.assertRaisesRegex(RuntimeError, "absent.h"):
            self.complaints()

    def test_a_compiler_that_is_not_understood(self):
        for stranger in ("true", "/absent/compiler"):
            self.assertFalse(check_headers.Preprocessor(stranger, "", []).understood())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default=COMPILER)
    COMPILER = parser.parse_args().compiler
    unittest.main(argv=sys.argv[:1])
