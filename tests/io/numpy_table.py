# SPDX-License-Identifier: Apache-2.0
"""Compares index files with the table of their tensors that registry/tables.hpp writes.

usage: numpy_table.py TABLE INDEX...

Every tensor of a file must be in the table, with its type and shape; every one of the table in some file.
"""

import ast
import re
import sys

from numpy_reader import Index


def read_table(path):
    """Of each kind, of each tensor: its type and shape as they are written."""
    table = {}
    with open(path, encoding="utf-8") as lines:
        for line in list(lines)[2:]:
            kind, tensor, dtype, shape = (cell.strip() for cell in line.split("|")[1:5])
            rows = table.setdefault(kind, {})
            if tensor:
                rows[tensor] = dtype, shape
    return table


def sizes_of(shape):
    """The sizes of "[V, min(K, d), ⌈W/16⌉, *]" as expressions, None for any."""
    text = re.sub(r"(?<=[\[ ])\*(?=[\],])", "None", shape)
    text = re.sub(r"⌈(\w+)/(\w+)⌉", r"-(-\1//\2)", text).replace("·", "*").replace("^", "**")
    sizes = ast.parse(text, mode="eval").body.elts
    return [None if isinstance(size, ast.Constant) and size.value is None else size for size in sizes]


def value(size, known):
    expression = compile(ast.Expression(size), "shape", "eval")
    return eval(expression, {"__builtins__": {}, "min": min}, known)


def check_tensors(tensors, header, rows, known):
    """Compares the types and shapes of tensors, {name in the table: name in the file}."""
    sizes = {}
    for row, name in tensors:
        dtype, shape = rows[row]
        assert header[name]["dtype"] == dtype, f"{name}: {header[name]['dtype']}, documented: {dtype}"
        sizes[name] = sizes_of(shape)
        assert len(sizes[name]) == len(header[name]["shape"]), f"{name}: documented as {shape}"
    # A name that nothing else gives a value is what it first stands for.
    for name, expected in sizes.items():
        for size, actual in zip(expected, header[name]["shape"]):
            if isinstance(size, ast.Name):
                known.setdefault(size.id, actual)
    for name, expected in sizes.items():
        for size, actual in zip(expected, header[name]["shape"]):
            if size is not None:
                wanted = value(size, known)
                assert wanted == actual, f"{name}: a size is {actual}, documented: {ast.unparse(size)} = {wanted}"


def row_of(name, rows):
    """The row that documents a tensor: upper.N.offsets for upper.3.offsets."""
    general = re.sub(r"\.\d+\.", ".N.", name)
    assert general in rows, f"{name} is not documented"
    return general


def check_part(index, table, before, names):
    """Checks the tensors of an index, or of one that lies in another: (kind, row) of all that it has."""
    kind = index.metadata[before + "kind"]
    rows = table[kind]
    known = index.options(before + "options.")
    known = {"V": index.vocab, "d": index.dim, **known}
    if "bands" in known:
        known.update(W=known["bands"], u=known["units_per_band"])
    inner = {name for name in names if name.startswith(before + "wrapped.")}
    tensors = [(row_of(name[len(before) :], rows), name) for name in sorted(names - inner)]
    check_tensors(tensors, index.header, rows, known)
    seen = {(kind, row) for row, _ in tensors}
    if inner:
        seen |= {(kind, "wrapped.*")} | check_part(index, table, before + "wrapped.", inner)
    return seen


def main(table_path, *index_paths):
    table = read_table(table_path)
    seen, kinds = set(), set()
    for path in index_paths:
        index = Index(path)
        kinds.add(index.kind)
        seen |= check_part(index, table, "", set(index.tensors))
    assert kinds == set(table), f"no index is of kind {sorted(set(table) - kinds)}"
    missing = {(kind, row) for kind, rows in table.items() for row in rows} - seen
    assert not missing, f"no index has {sorted(missing)}"


main(*sys.argv[1:])
