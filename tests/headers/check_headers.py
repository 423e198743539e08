#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the public headers bring into a program, by what GCC's or Clang's preprocessor says of each.

- A macro of ours that is left defined begins with TOPKSOFTMAX_; those of the C interface begin with TOPK_.
- Of other projects only Eigen and the standard library are reached. hnswlib comes with what builds a graph,
  OpenMP's omp.h with the executor that is for files compiled for OpenMP, MPI's mpi.h with what is spread over
  processes, Highway with headers alone.
- Headers alone leave of Highway's macros what a file has that includes the same headers of Highway itself.
- A header that only asks reaches no decomposition of Eigen. Which may build is a matter of names: see
  Headers.may_build().

Returns 0 if all holds, 1 if not, and 77 (skipped) for a compiler that is neither GCC nor Clang.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

SKIPPED = 77

OTHER_PROJECTS = {
    "CLI11": re.compile(r"/CLI/"),
    "Google Benchmark": re.compile(r"/benchmark/"),
    "GoogleTest": re.compile(r"/g(test|mock)/"),
    "Highway": re.compile(r"/hwy/"),
    "MPI": re.compile(r"/mpi\.h$"),
    "hnswlib": re.compile(r"/hnswlib/"),
    "nlohmann_json": re.compile(r"/nlohmann/"),
    "OpenMP": re.compile(r"/omp\.h$"),
}
DECOMPOSITIONS = re.compile(r"/Eigen/src/(Cholesky|Eigenvalues|Householder|Jacobi|LU|QR|SVD)/")

UMBRELLA = "topksoftmax.hpp"  # builds, but no graph, and nothing that is there to be compared with
EVERY_BACKEND = {"registry/standard.hpp", "evaluation/tuner.hpp"}  # build whatever there is
BUILDS_ELSEWHERE = {"decoding/low_rank_log_prob.hpp"}  # ask.hpp leaves it out: it takes W's singular vectors
GRAPH_FOLDERS = {"fgd", "graph"}
OPENMP_HEADERS = {"parallel/openmp_executor.hpp"}
MPI_FOLDERS = {"distributed"}

# "# 12 "file" flags": from here on lines are those of the file; flag 1: it was just entered. The names that the
# compiler writes instead of a file's, such as <command-line>, are files here too.
PREPROCESSED = re.compile(r'^#(?: \d+ "(?P<file>[^"\n]*)"(?P<flags>[ \d]*)$'
                          r"| ?define (?P<defined>\w+)(?P<value>.*)$| ?undef (?P<undefined>\w+))", re.MULTILINE)


class Reached:
    """What a source has reached at its end: files, who included each first, and macros with their places."""

    def __init__(self, preprocessed):
        self.includer = {}
        self.macros = {}  # name -> (file, definition)
        file = None
        for line in PREPROCESSED.finditer(preprocessed):
            if line["file"] is not None:
                if "1" in line["flags"].split():
                    self.includer.setdefault(line["file"], file)
                file = line["file"]
            elif line["defined"]:
                self.macros[line["defined"]] = (file, line["value"])
            else:
                self.macros.pop(line["undefined"], None)

    def road(self, file):
        """How the file was reached, for a message."""
        road = [file]
        while self.includer.get(road[-1]) in self.includer:
            road.append(self.includer[road[-1]])
        return " <- ".join(road)

    def first(self, pattern):
        """The first file that the pattern finds, or None."""
        return next((file for file in self.includer if pattern.search(file)), None)


class Preprocessor:
    """A compiler, and where headers are."""

    def __init__(self, compiler, include, system):
        self.command = [compiler, "-std=c++20", "-E", "-dD", f"-I{include}"]
        for folder in system:
            self.command += ["-isystem", folder]
        self.command += ["-x", "c++", "-"]

    def text(self, source, definitions=()):
        done = subprocess.run(self.command + [f"-D{name}" for name in definitions], input=source, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(self.command)}\n{source}{done.stderr}")
        return done.stdout

    def __call__(self, source, definitions=()):
        return Reached(self.text(source, definitions))

    def understood(self):
        """Whether it writes what Reached reads."""
        try:
            reached = self("#define PLANTED 1\n")
        except (OSError, RuntimeError):
            return False
        return "PLANTED" in reached.macros and "__GNUC__" in reached.macros


class Headers:
    """The public headers of a folder: all but the bodies, whose names end in -inl."""

    def __init__(self, include, without=()):
        self.root = pathlib.Path(include) / "topksoftmax"
        names = (str(path.relative_to(self.root)) for path in self.root.rglob("*.h*")
                 if not path.stem.endswith("-inl"))
        self.names = sorted(name for name in names if folder(name) not in without)
        self.includers = {name: set() for name in self.names}
        for name in self.names:
            text = (self.root / name).read_text(encoding="utf-8")
            for included in re.findall(r'^#include "topksoftmax/(.*)"', text, re.MULTILINE):
                self.includers.setdefault(included, set()).add(name)
        self.systems = {folder(name) for name in self.names if is_builder(name)}

    def may_build(self, name):
        """Whether a header may be heavy to compile.

        build*.hpp may, description.hpp beside one may, and so may what no other headers include than those. So may
        the few that build any backend.
        """
        if name == UMBRELLA or name in EVERY_BACKEND or name in BUILDS_ELSEWHERE:
            return True
        if is_builder(name) or (is_description(name) and folder(name) in self.systems):
            return True
        includers = self.includers[name]
        return bool(includers) and all(one != UMBRELLA and one not in EVERY_BACKEND and self.may_build(one)
                                       for one in includers)

    def may_reach(self, name, project):
        """Whether a header of the compiled form may include one of another project."""
        if project == "hnswlib":
            return self.may_build(name) and (name in EVERY_BACKEND or folder(name) in GRAPH_FOLDERS)
        if project == "MPI":
            return folder(name) in MPI_FOLDERS
        return project == "OpenMP" and name in OPENMP_HEADERS

    def ours(self, file):
        return file is not None and file.startswith(str(self.root))


def folder(name):
    return str(pathlib.PurePath(name).parent)


def is_builder(name):
    return re.fullmatch(r"build(_\w+)?\.hpp", pathlib.PurePath(name).name) is not None


def is_description(name):
    return pathlib.PurePath(name).name == "description.hpp"


def macro_complaints(headers, name, reached):
    prefix = "TOPK_" if folder(name) == "c" else "TOPKSOFTMAX_"
    return [f"{file} leaves the macro {macro} defined, which does not begin with {prefix}"
            for macro, (file, _) in reached.macros.items()
            if headers.ours(file) and not macro.startswith((prefix, "TOPKSOFTMAX_"))]


def project_complaints(headers, name, reached, allowed=()):
    complaints = []
    for project, pattern in OTHER_PROJECTS.items():
        file = reached.first(pattern)
        if file is not None and project not in allowed and not headers.may_reach(name, project):
            complaints.append(f"{project} is reached: {reached.road(file)}")
    return complaints


def building_complaints(headers, name, reached):
    file = reached.first(DECOMPOSITIONS)
    if file is None or headers.may_build(name):
        return []
    return [f"it only asks, and reaches a decomposition of Eigen: {reached.road(file)}"]


def highway_complaints(headers, reached, preprocess):
    """Of headers alone. Including Highway's headers defines macros, which cannot be helped."""
    highway = OTHER_PROJECTS["Highway"]
    # Eigen's among them: it defines __has_feature, which Highway asks for.
    direct = [file for file, includer in reached.includer.items()
              if headers.ours(includer) and (highway.search(file) or "/Eigen/" in file)]
    source = "".join(f'#include "{file}"\n' for file in direct)
    own = {macro: value for macro, (file, value) in preprocess(source).macros.items() if highway.search(file)}
    return [f"Highway's macro {macro} is{value or ' defined'}, where a file that includes Highway's headers itself"
            f" has{own.get(macro, ' none')}"
            for macro, (file, value) in reached.macros.items() if highway.search(file) and own.get(macro) != value]


def compiled_complaints(headers, name, preprocess):
    reached = preprocess(f'#include "topksoftmax/{name}"\n')
    return (macro_complaints(headers, name, reached) + project_complaints(headers, name, reached) +
            building_complaints(headers, name, reached))


def header_only_complaints(headers, name, preprocess):
    reached = preprocess(f'#include "topksoftmax/{name}"\n', ["TOPKSOFTMAX_HEADER_ONLY"])
    return (macro_complaints(headers, name, reached) + project_complaints(headers, name, reached, {"Highway"}) +
            highway_complaints(headers, reached, preprocess))


def checked(job):
    check, headers, name, preprocess = job
    return [f"{name}: {complaint}" for complaint in check(headers, name, preprocess)]


def complaints_of(include, preprocess, processes, without=()):
    """Of every header as the compiled library offers it, and of those that include the others as headers alone."""
    headers = Headers(include, without)
    jobs = [(compiled_complaints, headers, name, preprocess) for name in headers.names]
    jobs += [(header_only_complaints, headers, name, preprocess)
             for name in (UMBRELLA, *sorted(EVERY_BACKEND)) if name in headers.names]
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        return len(headers.names), [complaint for some in pool.map(checked, jobs) for complaint in some]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True, help="the folder that holds topksoftmax/")
    parser.add_argument("--system", default="", help="folders of other projects' headers, with ; between them")
    parser.add_argument("--without", default=[], action="append", help="a folder of headers that cannot be used here")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    preprocess = Preprocessor(given.compiler, given.include, [one for one in given.system.split(";") if one])
    if not preprocess.understood():
        print(f"skipped: {given.compiler} does not preprocess as GCC and Clang do")
        return SKIPPED
    count, complaints = complaints_of(given.include, preprocess, given.processes, given.without)
    print("\n".join(complaints) or f"{count} headers bring along what they should")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
