#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Asks which tests die for each mutant of mutants.txt. All mutants are built into one copy of the sources, each
# behind a condition, so that every program is compiled once: the variable TOPKSOFTMAX_MUTANT says which is alive.
#
#   mutate.py --work FOLDER [--source REPOSITORY] [--only PROGRAM] [--mutant PREFIX]… [--jobs N] [-- CMAKE ARGUMENTS]
#   mutate.py [--source REPOSITORY] --check      only whether every mutant's text still stands where it is to
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zlib

HEADER = """// What every mutated source is compiled with.
#pragma once
#ifdef __cplusplus
#include <cstdlib>
namespace topksoftmax_mutations {
inline const int alive = std::getenv("TOPKSOFTMAX_MUTANT") == nullptr ? 0 : std::atoi(std::getenv("TOPKSOFTMAX_MUTANT"));
}
#endif
"""


@dataclasses.dataclass
class Mutant:
    number: int
    name: str
    programs: list[str]  # each of them is to tell it from the original
    file: str
    before: str
    after: str
    equivalent: str  # why no test can tell it from the original; "" if one can


def read_table(path):
    """The mutants of a table: see the top of mutants.txt for what its lines say."""
    mutants, programs, name, file, before, after, reason = [], [], "", "", [], [], ""

    def finish():
        nonlocal name, before, after, reason
        if name:
            # A number that no other mutant changes, so that little is compiled again when some come or go.
            number = zlib.crc32(name.encode()) >> 1
            if any(m.number == number for m in mutants):
                sys.exit(f"{path}: {name} has the name, or the number, of another mutant")
            mutants.append(Mutant(number, name, programs, file, "\n".join(before), "\n".join(after), reason))
        name, before, after, reason = "", [], [], ""

    for line in path.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word in ("program", "file", "mutant"):
            finish()
        if word == "program":
            programs = rest.split()
        elif word == "file":
            file = rest
        elif word == "mutant":
            name = rest
        elif word == "equivalent":
            reason = rest
        elif word == "-":
            before.append(rest)
        elif word == "+":
            after.append(rest)
        elif word and not word.startswith("#"):
            sys.exit(f"{path}: what is this? {line}")
    finish()
    return mutants


def mutated_texts(mutants, source):
    """Each file's text with every mutant where its own text stands; it must stand there once."""
    texts = {}
    for file in sorted({m.file for m in mutants}):
        text = (source / file).read_text()
        places = []
        for mutant in (m for m in mutants if m.file == file):
            # Spaces of any kind and number stand for each other: a line may be broken anew.
            pattern = r"\s+".join(re.escape(word) for word in mutant.before.split())
            found = list(re.finditer(pattern, text))
            if len(found) != 1:
                sys.exit(f"{mutant.name}: {file} has its text {len(found)} times, not once: {mutant.before}")
            alive = f"(::topksoftmax_mutations::alive == {mutant.number})"
            places.append((found[0].span(), mutant.after.replace("MUTANT", alive), mutant.name))
        places.sort()
        for (a, b) in zip(places, places[1:]):
            if a[0][1] > b[0][0]:
                sys.exit(f"{a[2]} and {b[2]} change the same text of {file}")
        for (begin, end), after, _ in reversed(places):
            text = text[:begin] + after + text[end:]
        texts[file] = text
    return texts


def plant(mutants, source, copy):
    """Copies the sources, with every mutant in them."""
    texts = mutated_texts(mutants, source)
    mutated = {str(source / file) for file in texts}

    def copy_file(original, target):  # only where something has changed, so that little is compiled again
        if str(original) in mutated:
            return
        if not os.path.exists(target) or pathlib.Path(original).read_bytes() != pathlib.Path(target).read_bytes():
            shutil.copyfile(original, target)

    for folder in ("include", "src", "tests", "cmake", "examples"):
        shutil.copytree(source / folder, copy / folder, dirs_exist_ok=True, copy_function=copy_file)
    for name in ("CMakeLists.txt", "LICENSE", "README.md"):
        copy_file(source / name, copy / name)
    write_if_changed(copy / "mutation.hpp", HEADER)
    for file, text in texts.items():
        write_if_changed(copy / file, text)


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def run(binary, number, seconds):
    """The tests that died with this mutant alive (0: none). `seconds`: what the program takes without any. Where that
    is more than a minute, the first test that dies ends it."""
    environment = dict(os.environ, TOPKSOFTMAX_MUTANT=str(number), OMP_NUM_THREADS="1")
    command = [str(binary), "--gtest_color=no"] + (["--gtest_fail_fast"] if seconds > 60 else [])
    try:
        result = subprocess.run(command, env=environment, cwd=binary.parent, timeout=60 + 10 * seconds,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        output, code = result.stdout, result.returncode
    except subprocess.TimeoutExpired as expired:
        output, code = (expired.stdout or b"").decode(errors="replace"), -1
    failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)(?:, where .*)? \(\d+ ms\)$", output, re.MULTILINE)
    if code != 0 and not failed:
        started = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
        failed = [f"{started[-1]} (ended the program)"] if started else ["the program, before any test"]
    return sorted(set(failed))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="build nothing: ask only whether the table fits")
    parser.add_argument("--only", default="", help="mutants of this program alone")
    parser.add_argument("--mutant", action="append", default=[], help="mutants whose names begin with this alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("cmake", nargs="*")
    args = parser.parse_args()
    mutants = read_table(args.source / "tests/mutations/mutants.txt")
    if args.check:
        print(f"{len(mutants)} mutants in {len(mutated_texts(mutants, args.source.resolve()))} files")
        return 0
    if args.work is None:
        parser.error("--work is needed")
    copy = args.work / "sources"
    copy.mkdir(parents=True, exist_ok=True)
    plant(mutants, args.source.resolve(), copy)
    build = args.work / "build"
    subprocess.run(["cmake", "-G", "Ninja", "-S", str(copy / "tests/mutations/project"), "-B", str(build),
                    *args.cmake], check=True, stdout=subprocess.DEVNULL)
    chosen = [(m, program) for m in mutants for program in m.programs if args.only in ("", program)]
    if args.mutant:
        chosen = [(m, program) for m, program in chosen if m.name.startswith(tuple(args.mutant))]
    programs = sorted({program for _, program in chosen})
    subprocess.run(["cmake", "--build", str(build), "-j", str(args.jobs), "--target", *programs], check=True)
    seconds = {}
    for program in programs:
        start = time.monotonic()
        dead = run(build / program, 0, 600)
        if dead:
            sys.exit(f"{program} fails without any mutant: {', '.join(dead)}")
        seconds[program] = time.monotonic() - start
    survivors = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda one: run(build / one[1], one[0].number, seconds[one[1]]), chosen)
        for (mutant, program), dead in zip(chosen, results):
            if mutant.equivalent:
                verdict = f"equivalent: {mutant.equivalent}" if not dead else f"LISTED AS EQUIVALENT, and killed by {dead[0]}"
                survivors += 1 if dead else 0
            elif dead:
                verdict = f"killed by {', '.join(dead)}"
            else:
                verdict = "SURVIVES"
                survivors += 1
            print(f"{mutant.name} in {program}: {verdict}", flush=True)
    equivalent = sum(1 for m, _ in chosen if m.equivalent)
    killed = len(chosen) - equivalent - survivors
    print(f"{len(chosen)} mutants: {killed} killed, {equivalent} equivalent, {survivors} not as they should be")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
