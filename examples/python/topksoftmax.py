# SPDX-License-Identifier: Apache-2.0
"""TopKSoftmax for Python: libtopksoftmax_c by ctypes, with NumPy arrays where they lie.

    layer = Layer(W, b)                                           # [V, d] and [V]
    head = Backend.build(layer, "l2s", contexts, clusters=100)    # contexts [N, d]
    top = head.query(h, k=5)                                      # top.ids, top.logits, top.log_probs

Queries, batches and builds release the interpreter's lock. A Layer, a HeadFile and a Backend may be used by
several threads at a time; a Workspace, a Cursor, a Sampler and a Random by one. The library is
TOPKSOFTMAX_C_LIBRARY of the environment, or else LIBRARY where the system finds it.
"""

import ctypes
import functools
import operator
import os
import threading
import time
import weakref
from ctypes import byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint64, c_void_p
from typing import NamedTuple

import numpy as np

LIBRARY = "libtopksoftmax_c.so.0.2"  # of the version whose interface this is
SIZE_MAX = c_size_t(-1).value
FULL_EFFORT = SIZE_MAX
NORMALIZERS = ("none", "exact", "candidates", "low_rank", "interval", "learned")
BLOCK_TYPES = {"q8_0": (4, 32, 34), "q6_k": (5, 256, 210), "q4_k": (6, 256, 144)}  # number, weights, bytes
WEIGHT_TYPES = (np.float32, np.float16, np.uint16, np.int8)  # uint16: the bits of bfloat16

# ------------------------------------------------------------------------------------------
# The interface of topksoftmax/c/topksoftmax.h


class _Struct(ctypes.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(self), **members)


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 1024)]


class _Weights(_Struct):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("type", c_int), ("vocab", c_size_t),
                ("dim", c_size_t), ("stride", c_size_t), ("scales", c_void_p), ("bias", c_void_p)]


_LoopBody = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t)
_Threads = ctypes.CFUNCTYPE(c_size_t, c_void_p)
_Run = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_size_t, _LoopBody, c_void_p)


class _Executor(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("threads", _Threads), ("run", _Run)]


_Progress = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_double)


class _BuildMaterial(_Struct):
    _fields_ = [("struct_size", c_size_t), ("contexts", c_void_p), ("context_count", c_size_t),
                ("context_stride", c_size_t), ("counts", c_void_p), ("executor", c_void_p),
                ("progress", _Progress), ("progress_user", c_void_p)]


class _QueryOptions(_Struct):
    _fields_ = [("struct_size", c_size_t), ("k", c_size_t), ("allowed", c_void_p),
                ("allowed_words", c_size_t), ("biases", c_void_p), ("bias_count", c_size_t),
                ("probabilities", c_int), ("effort", c_size_t), ("log_z_tolerance", c_double),
                ("allowed32", c_void_p), ("allowed32_words", c_size_t)]


class _Answer(_Struct):
    _fields_ = [("struct_size", c_size_t), ("count", c_size_t), ("log_z", c_double),
                ("log_z_low", c_double), ("log_z_high", c_double), ("normalizer", c_int), ("certified", c_int),
                ("bytes_read", c_size_t), ("screened", c_size_t), ("candidates", c_size_t),
                ("fell_back", c_int), ("repaired", c_int), ("confidence", c_double)]


class _FlatAnswers(_Struct):
    _fields_ = [("struct_size", c_size_t), ("ids", c_void_p), ("logits", c_void_p), ("log_z", c_void_p),
                ("certified", c_void_p)]


class _SamplingOptions(_Struct):
    _fields_ = [("struct_size", c_size_t), ("temperature", c_double), ("top_k", c_size_t),
                ("top_p", c_double), ("min_p", c_double), ("typical_p", c_double), ("top_n_sigma", c_double),
                ("xtc_probability", c_double), ("xtc_threshold", c_double), ("order", c_uint64),
                ("log_z_error", c_double), ("steps", c_void_p), ("step_count", c_size_t)]


class _Penalties(_Struct):
    _fields_ = [("struct_size", c_size_t), ("repetition", c_double), ("presence", c_double),
                ("frequency", c_double)]


class _LogZOptions(_Struct):
    _fields_ = [("struct_size", c_size_t), ("error", c_double), ("temperature", c_double), ("seed", c_uint64)]


class _SampledLogZ(_Struct):
    _fields_ = [("struct_size", c_size_t), ("known", c_int), ("log_z", c_double), ("error", c_double),
                ("rows_read", c_size_t)]


class _SampledToken(_Struct):
    _fields_ = [("struct_size", c_size_t), ("log_prob", c_double), ("log_prob_low", c_double),
                ("log_prob_high", c_double), ("logit", c_float), ("id", c_int32)]


class _FlatTokens(_Struct):
    _fields_ = [("struct_size", c_size_t), ("ids", c_void_p), ("logits", c_void_p), ("log_prob", c_void_p),
                ("log_prob_low", c_void_p), ("log_prob_high", c_void_p)]


class _Made:
    """The type of a parameter that the library has made: ctypes would take any number, and any other kind, for its
    address."""

    def __init__(self, kind):
        self._kind = kind

    def from_param(self, value):
        if getattr(value, "_kind", None) != self._kind:
            raise TypeError(f"a {self._kind.replace('_', ' ')} is needed, not {type(value).__name__}")
        return value._as_parameter_


_P, _N = c_void_p, c_size_t
_LAYER, _FILE, _BACKEND, _WORKSPACE, _CURSOR, _RANDOM, _SAMPLER = map(
    _Made, ("layer", "head_file", "backend", "workspace", "cursor", "random", "sampler"))
# Functions that return a status, by their parameters before the last, which takes the error.
_CALLS = {
    "topk_layer_borrow": [_P, _P],
    "topk_layer_open": [c_char_p, _P],
    "topk_layer_with_transform": [_LAYER, c_float, c_float, _P],
    "topk_head_file_open": [c_char_p, _P],
    "topk_head_file_layer": [_FILE, _P],
    "topk_head_file_read_contexts": [_FILE, c_int, _P],
    "topk_head_file_read_counts": [_FILE, _P],
    "topk_build": [_LAYER, c_char_p, c_char_p, _P, _P],
    "topk_load": [c_char_p, _LAYER, _P],
    "topk_load_copy": [c_char_p, _LAYER, _P],
    "topk_map_vocabulary": [_BACKEND, _P, _N, _N, _P],
    "topk_save": [_BACKEND, c_char_p],
    "topk_verify_layer": [c_char_p, _LAYER],
    "topk_verify_index": [c_char_p],
    "topk_workspace_new": [_N, _P, _P],
    "topk_query": [_BACKEND, _P, _N, _P, _WORKSPACE, _P, _P, _P],
    "topk_query_batch": [_BACKEND, _P, _N, _N, _N, _P, _WORKSPACE, _P],
    "topk_query_each": [_BACKEND, _P, _N, _N, _N, _P, _WORKSPACE, _P],
    "topk_logits": [_BACKEND, _P, _N, _N, _N, _P, _WORKSPACE, _P],
    "topk_logits_of": [_BACKEND, _P, _N, _P, _N, _P, _WORKSPACE, _P],
    "topk_sample_log_z": [_BACKEND, _P, _N, _P, _P, _WORKSPACE, _P],
    "topk_penalise": [_P, _BACKEND, _P, _N, _P, _N, _P, _WORKSPACE, _P, _P],
    "topk_cursor_new": [_BACKEND, _P, _N, _P, _P],
    "topk_cursor_start": [_CURSOR, _P, _N, _P],
    "topk_cursor_lend_threads": [_CURSOR, _N, _P],
    "topk_cursor_next": [_CURSOR, _P, _P],
    "topk_random_new": [c_uint64, _P],
    "topk_sampler_new": [_P, _P],
    "topk_sampler_lend_threads": [_SAMPLER, _N, _P],
    "topk_draw": [_SAMPLER, _BACKEND, _P, _N, _RANDOM, _P, _P],
    "topk_draw_own": [_SAMPLER, _BACKEND, _P, _N, _RANDOM, _P, _P],
    "topk_draw_each": [_BACKEND, _P, _N, _N, _N, _P, _P, _P, _WORKSPACE, _P],
}
# The others: what they return, and their parameters.
_FUNCTIONS = {
    "topk_version": (c_char_p, []),
    "topk_layer_vocab": (_N, [_P]),
    "topk_layer_dim": (_N, [_P]),
    "topk_layer_token_of_row": (ctypes.POINTER(c_int32), [_P]),
    "topk_head_file_context_count": (_N, [_P, c_int]),
    "topk_head_file_has_counts": (c_int, [_P]),
    "topk_backend_name": (c_char_p, [_P]),
    "topk_backend_vocab": (_N, [_P]),
    "topk_backend_dim": (_N, [_P]),
    "topk_backend_index_bytes": (_N, [_P]),
    "topk_backend_certifies": (c_int, [_P]),
    "topk_backend_log_z_error": (c_int, [_P, _P, _P]),
    "topk_list_backends": (_N, [_P, _N]),
    "topk_cursor_certified": (c_int, [_P]),
    **{f"topk_{kind}_free": (None, [_P])
       for kind in ("layer", "head_file", "backend", "workspace", "cursor", "random", "sampler")},
}


def _load_library():
    path = os.environ.get("TOPKSOFTMAX_C_LIBRARY", LIBRARY)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}; TOPKSOFTMAX_C_LIBRARY names the library where the system does not find "
                          f"{LIBRARY}") from error
    for name, parameters in _CALLS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = c_int, [*parameters, c_void_p]
    for name, (result, parameters) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, parameters
    return library


_library = _load_library()


class Error(RuntimeError):
    """A layer, a backend or a file that cannot be made, built, loaded or saved."""


class Stopped(Error):
    """A build whose progress function has returned True."""


_EXCEPTIONS = {1: ValueError, 3: MemoryError, 4: Stopped}


# .error: what has stopped an executor of the call that this thread is in. No exception passes through the library.
_stopped = threading.local()


def _call(name, *arguments):
    error = _Error()
    status = getattr(_library, name)(*arguments, byref(error))
    if status != 0:
        cause = _stopped.__dict__.pop("error", None)
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # KeyboardInterrupt
        raise _EXCEPTIONS.get(status, Error)(error.message.decode("utf-8", "replace")) from cause


class _Handle:
    """What the library has made, freed when nothing refers to it any more."""

    def __init__(self, kind, name, *arguments):
        handle = c_void_p()
        _call(name, *arguments, byref(handle))
        self._as_parameter_, self._kind = handle, kind
        weakref.finalize(self, getattr(_library, f"topk_{kind}_free"), handle)


# ------------------------------------------------------------------------------------------
# Numbers and arrays


def _whole(value, most, name, least=0):
    """A whole number up to `most`. ctypes and NumPy cut off without a word what C's types have no room for."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not least <= number <= most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
    return number


def _one_of(choices, value, name):
    """What a name stands for."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
    return choices[value]


def _address(array):
    return None if array is None else array.ctypes.data


def _length(array):
    return 0 if array is None else len(array)


def _pointers(addresses):
    """An array of them, as C takes it."""
    addresses = list(addresses)
    return (c_void_p * len(addresses))(*addresses)


def _check_as_many(contexts, values, name):
    if len(values) != len(contexts):
        raise ValueError(f"there are {len(contexts)} contexts and {len(values)} {name}; they must be as many")


def _kind(value):
    """What messages call a value: "float32[700, 32]", or the name of its type."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _is_plain(array, dtype):
    """Whether it is an array of such values that lie next to each other."""
    return (isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous
            and array.flags.aligned)


def _vector(array, dtype, size, name):
    """An array [size], where "n" is any, that lies in memory as the library takes it; None passes."""
    if array is not None:
        if not _is_plain(array, dtype) or array.ndim != 1 or size not in ("n", len(array)):
            raise ValueError(f"{name} must be a contiguous array [{size}] of {np.dtype(dtype)}, "
                             f"not {_kind(array)}")
    return array


def _stride(rows, dtype, name):
    """The distance of the rows of a matrix [n, d], in values; these must lie next to each other in a row."""
    item = np.dtype(dtype).itemsize
    is_matrix = isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype == dtype and rows.flags.aligned
    if not is_matrix or (rows.size > 0 and rows.shape[1] > 1 and rows.strides[1] != item):
        raise ValueError(f"{name} must be a matrix of {np.dtype(dtype)} whose rows are contiguous, "
                         f"not {_kind(rows)}")
    if len(rows) <= 1:
        return rows.shape[1]
    if rows.strides[0] < rows.shape[1] * item or rows.strides[0] % item != 0:
        raise ValueError(f"{name} has rows {rows.strides[0]} bytes apart; each must begin behind the last")
    return rows.strides[0] // item


def _text(path):
    return os.fsencode(path)


# ------------------------------------------------------------------------------------------
# What users take


def version():
    return _library.topk_version().decode()


def list_backends():
    """What can be built, with all options and their defaults, as text."""
    text = ctypes.create_string_buffer(_library.topk_list_backends(None, 0))
    _library.topk_list_backends(text, len(text))
    return text.value.decode()


def verify_index(path):
    """Raises Error unless an index file is as it was written, by its checksum."""
    _call("topk_verify_index", _text(path))


def verify_layer(path, layer):
    """Raises Error unless an index file is for this layer, of which load() compares a part and this all."""
    _call("topk_verify_layer", _text(path), layer)


class Layer(_Handle):
    """A softmax layer W [V, d], b [V] or None, used where the arrays lie: they must not be changed.

    W is of float32, float16, uint16 (bfloat16: the upper halves of float32s) or int8, then with `scales` [V].
    """

    def __init__(self, W, b=None, scales=None):
        if not isinstance(W, np.ndarray) or W.dtype not in WEIGHT_TYPES:
            raise ValueError(f"W must be a matrix of float32, float16, uint16 (bfloat16) or int8, not {_kind(W)}")
        stride = _stride(W, W.dtype, "W")
        vocab, dim = W.shape
        self._arrays = W, _vector(b, np.float32, vocab, "b"), _vector(scales, np.float32, vocab, "scales")
        weights = _Weights(data=_address(W), type=WEIGHT_TYPES.index(W.dtype), vocab=vocab, dim=dim,
                           stride=stride, scales=_address(scales), bias=_address(b))
        super().__init__("layer", "topk_layer_borrow", byref(weights))

    @classmethod
    def from_blocks(cls, blocks, kind, b=None):
        """A layer whose rows are ggml's blocks: uint8 [V, bytes of a row]; kind is "q8_0", "q6_k" or "q4_k"."""
        number, block_weights, block_bytes = _one_of(BLOCK_TYPES, kind, "kind")
        stride = _stride(blocks, np.uint8, "blocks")
        vocab, row_bytes = blocks.shape
        if row_bytes % block_bytes != 0 or stride % block_bytes != 0:
            raise ValueError(f"blocks has rows of {row_bytes} bytes, {stride} apart; "
                             f"{kind} has {block_bytes} for each {block_weights} weights")
        layer = cls.__new__(cls)
        layer._arrays = blocks, _vector(b, np.float32, vocab, "b")
        weights = _Weights(data=_address(blocks), type=number, vocab=vocab,
                           dim=row_bytes // block_bytes * block_weights,
                           stride=stride // block_bytes * block_weights, bias=_address(b))
        _Handle.__init__(layer, "layer", "topk_layer_borrow", byref(weights))
        return layer

    @classmethod
    def open(cls, path):
        """The layer of a model: its folder as Transformers save it, a GGUF file, or a head file."""
        layer = cls.__new__(cls)
        _Handle.__init__(layer, "layer", "topk_layer_open", _text(path))
        return layer

    def with_transform(self, logit_scale=1.0, soft_cap=0.0):
        """The same layer with logits logit_scale·(W·h + b), or with a cap cap·tanh(logit_scale·(W·h + b)/cap)."""
        layer = Layer.__new__(Layer)
        layer._weights = self  # used where they lie
        _Handle.__init__(layer, "layer", "topk_layer_with_transform", self, logit_scale, soft_cap)
        return layer

    @property
    def shape(self):
        """V and d."""
        return _library.topk_layer_vocab(self), _library.topk_layer_dim(self)

    @property
    def token_of_row(self):
        """The tokens [V] that the rows are, where the layer's file says that they are not all; or else None."""
        tokens = _library.topk_layer_token_of_row(self)
        return np.ctypeslib.as_array(tokens, (self.shape[0],)).copy() if tokens else None


class HeadFile(_Handle):
    """A softmax layer in a safetensors file, with contexts of its model: see .github/docs/files.md."""

    def __init__(self, path):
        super().__init__("head_file", "topk_head_file_open", _text(path))
        self.layer = Layer.__new__(Layer)  # its weights are used where they lie in the mapped file
        _Handle.__init__(self.layer, "layer", "topk_head_file_layer", self)

    def contexts(self, which):
        """Those of "train" or "test" [N, d], as float32."""
        number = _one_of({"train": 0, "test": 1}, which, "which")
        count = _library.topk_head_file_context_count(self, number)
        values = np.empty((count, self.layer.shape[1]), np.float32)
        _call("topk_head_file_read_contexts", self, number, _address(values))
        return values

    def counts(self):
        """How often each token occurred, [V], or None."""
        if not _library.topk_head_file_has_counts(self):
            return None
        values = np.empty(self.layer.shape[0], np.int64)
        _call("topk_head_file_read_counts", self, _address(values))
        return values


class Executor:
    """Lends threads of a concurrent.futures.ThreadPoolExecutor to workspaces, builds, samplers and cursors, at most
    `threads` at a time, the caller's among them. What the pool has no thread for is done on the caller's."""

    def __init__(self, pool, threads):
        self._pool, self._threads = pool, _whole(threads, SIZE_MAX, "threads") or 1
        # Without a reference to self, these functions and it would never be freed.
        self._functions = _Threads(lambda _, threads=self._threads: threads), _Run(functools.partial(_run, pool))
        self._struct = _Executor(None, *self._functions)
        self._as_parameter_ = ctypes.addressof(self._struct)


def _lent(executor):
    """The address of an Executor's functions; None stands for the library's own threads."""
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(f"executor must be an Executor, not {type(executor).__name__}")
    return executor and executor._as_parameter_


def _run(pool, _, parts, threads, body, loop):
    """Calls body(loop, part, thread) for every part. A thread of the pool that comes late finds none left, and one
    that has not come by then is not waited for: it may itself be waiting for the caller."""
    left = iter(range(parts))
    gate, inside, closed = threading.Lock(), set(), []

    def work(thread):
        with gate:
            if closed:
                return
            inside.add(thread)
        try:
            for part in left:
                body(loop, part, thread)
        finally:
            inside.discard(thread)

    failed = False
    try:
        for thread in range(1, min(threads, parts)):
            pool.submit(work, thread)
        for part in left:
            body(loop, part, 0)
    except BaseException as error:
        _stopped.error = error
        failed = True
    while True:
        try:
            with gate:
                closed.append(True)
            while inside:
                time.sleep(2e-5)
            return int(failed)
        except BaseException as error:  # Ctrl-C; but these threads use what the caller is about to free
            _stopped.error = error
            failed = True


class Workspace(_Handle):
    """The memory of queries, and how many threads they run on (0: as many as the Executor, or the library, has)."""

    def __init__(self, threads=1, executor=None):
        self._executor = executor
        super().__init__("workspace", "topk_workspace_new", _whole(threads, SIZE_MAX, "threads"), _lent(executor))


def _lend(handle, threads, executor):
    """Lends a cursor or a sampler threads, which it keeps."""
    _call(f"topk_{handle._kind}_lend_threads", handle, _whole(threads, SIZE_MAX, "threads"), _lent(executor))
    handle._executor = executor


class Answer(NamedTuple):
    """The k most probable tokens for a context, the best first."""

    ids: np.ndarray  # [k] int32
    logits: np.ndarray  # [k] float32
    log_z: float
    log_z_interval: tuple  # proven bounds of log_z where normalizer is "interval"
    normalizer: str  # what log_z counts: NORMALIZERS
    certified: bool  # proven to be the exact top-k
    confidence: float  # how probable it is, at the least, to be the exact top-k: 1 where certified
    bytes_read: int  # of weights and index, each byte as often as it was asked for
    screened: int  # rows, clusters or nodes that were looked at to find candidates
    candidates: int  # tokens whose exact logit was computed
    fell_back: bool  # there were too few candidates, and every token was scored
    repaired: bool  # the backend within a "certify:…" had other tokens to offer

    @property
    def log_probs(self):
        return self.logits.astype(np.float64) - self.log_z


class Answers(NamedTuple):
    """The answers for B contexts; −1 and −∞ where a mask leaves fewer than k tokens."""

    ids: np.ndarray  # [B, k] int32
    logits: np.ndarray  # [B, k] float32
    log_z: np.ndarray  # [B] float64
    certified: np.ndarray  # [B] bool

    @staticmethod
    def empty(count, k):
        """Memory to be answered into."""
        return Answers(np.empty((count, k), np.int32), np.empty((count, k), np.float32), np.empty(count),
                       np.empty(count, np.bool_))


class SampledLogZ(NamedTuple):
    """log Z of a context from a part of the rows."""

    log_z: float
    error: float  # how far off it may be; 0: it came out exact
    rows_read: int  # whose logits were computed


_BIAS = np.dtype([("id", np.int32), ("bias", np.float32)])


class _Query:
    """Options of a query as C takes them, with the arrays that they point to."""

    def __init__(self, vocab, k=1, mask=None, biases=None, probabilities=True, effort=0,
                 log_z_tolerance=np.inf):
        words = words32 = pairs = None
        if isinstance(mask, np.ndarray) and mask.dtype in (np.int32, np.uint32):
            words32 = _vector(mask, mask.dtype, (vocab + 31) // 32, "a mask in words of 32 bits")
        elif mask is not None:
            words = np.zeros((vocab + 63) // 64, np.uint64)
            packed = np.packbits(_vector(mask, np.bool_, vocab, "a mask without words of 32 bits"),
                                 bitorder="little")
            words.view(np.uint8)[: len(packed)] = packed
        if biases:
            pairs = np.array(sorted((_whole(token, vocab - 1, "a token of biases"), bias)
                                    for token, bias in dict(biases).items()), dtype=_BIAS)
        self.k = min(_whole(k, SIZE_MAX, "k", least=1), vocab)  # of which there is room for answers
        self._arrays = words, words32, pairs
        self._options = _QueryOptions(
            k=self.k, allowed=_address(words), allowed_words=_length(words), biases=_address(pairs),
            bias_count=_length(pairs), probabilities=probabilities,
            effort=_whole(effort, SIZE_MAX, "effort"), log_z_tolerance=log_z_tolerance,
            allowed32=_address(words32), allowed32_words=_length(words32))
        self._as_parameter_ = ctypes.addressof(self._options)


class Backend(_Handle):
    """Finds the most probable tokens of a layer.

    Queries take options by name: k; mask, the tokens that are allowed, [V] of bool, or in place the words
    [ceil(V/32)] of int32 or uint32 that XGrammar and llguidance have; biases {token: bias}; probabilities,
    effort and log_z_tolerance as in C: effort 0 is the one that the index holds, where tune has found one.
    """

    def __init__(self, layer, name, *arguments):
        super().__init__("backend", name, *arguments)
        self.layer = layer  # whose memory is in use

    @classmethod
    def build(cls, layer, name, contexts=None, counts=None, progress=None, executor=None, **options):
        """Builds one by its name, with options by theirs; list_backends() has them.

        contexts [N, d] of float32 to learn from, counts [V] of int64; on the threads of an Executor, if given.
        progress(step, done) is told how far the build is, and ends it by returning True, which raises Stopped, or by
        raising an exception itself.
        """
        raised = []  # by progress: no exception passes through the library

        def tell(_, step, done):
            try:
                return bool(progress(step.decode(), done))
            except BaseException as error:
                raised.append(error)
                return 1

        material = _BuildMaterial()
        if contexts is not None and len(contexts) > 0:
            stride = _stride(contexts, np.float32, "contexts")
            count, dim = contexts.shape
            if dim != layer.shape[1]:
                raise ValueError(f"contexts have {dim} values, the layer's dimension is {layer.shape[1]}")
            material.contexts, material.context_count = _address(contexts), count
            material.context_stride = stride
        material.counts = _address(_vector(counts, np.int64, layer.shape[0], "counts"))
        material.executor = _lent(executor)
        if progress is not None:
            material.progress = _Progress(tell)
        text = " ".join(f"{option}={value}" for option, value in options.items())
        try:
            return cls(layer, "topk_build", layer, name.encode(), text.encode(), byref(material))
        except Stopped:
            if not raised:
                raise
        raise raised.pop()

    @classmethod
    def load(cls, path, layer, copy=False):
        """The one whose index save() has written, for the same layer.

        The file is used where it lies and must not be changed in place, unless a copy of it is made.
        """
        return cls(layer, "topk_load_copy" if copy else "topk_load", _text(path), layer)

    def mapped(self, token_of_row, vocab):
        """The same with the ids of a model of `vocab` tokens: token_of_row [rows] of int32, -1 for padding."""
        tokens = _vector(token_of_row, np.int32, "n", "token_of_row")
        return Backend(self.layer, "topk_map_vocabulary", self, _address(tokens), len(tokens),
                       _whole(vocab, SIZE_MAX, "vocab"))

    def save(self, path):
        _call("topk_save", self, _text(path))

    @property
    def name(self):
        return _library.topk_backend_name(self).decode()

    @property
    def shape(self):
        """V, the number of tokens, and d, the length of a context."""
        return _library.topk_backend_vocab(self), _library.topk_backend_dim(self)

    @property
    def index_bytes(self):
        """Bytes beside the layer."""
        return _library.topk_backend_index_bytes(self)

    @property
    def certifies(self):
        """Whether every answer is proven to be exact."""
        return bool(_library.topk_backend_certifies(self))

    @property
    def log_z_error(self):
        """(median, 99th percentile) of |log Z - the exact one| where contexts have taught it, or None."""
        median, p99 = c_double(), c_double()
        if not _library.topk_backend_log_z_error(self, byref(median), byref(p99)):
            return None
        return median.value, p99.value

    def query(self, h, k=1, workspace=None, **options):
        """The Answer for a context h [d] of float32; of a k above V, V tokens."""
        vocab, dim = self.shape
        _vector(h, np.float32, dim, "h")
        asked = _Query(vocab, k, **options)
        ids, logits, answer = np.empty(asked.k, np.int32), np.empty(asked.k, np.float32), _Answer()
        _call("topk_query", self, _address(h), dim, asked, workspace or Workspace(), _address(ids),
              _address(logits), byref(answer))
        return Answer(ids[: answer.count], logits[: answer.count], answer.log_z,
                      (answer.log_z_low, answer.log_z_high), NORMALIZERS[answer.normalizer],
                      bool(answer.certified), answer.confidence, answer.bytes_read, answer.screened,
                      answer.candidates, bool(answer.fell_back), bool(answer.repaired))

    def query_batch(self, contexts, k=1, workspace=None, out=None, **options):
        """The Answers for contexts [B, d] of float32, into `out` if it is given; of a k above V, [B, V]."""
        asked = _Query(self.shape[0], k, **options)
        return self._answer("topk_query_batch", contexts, asked, asked.k, workspace, out)

    def query_each(self, contexts, options, workspace=None, out=None):
        """The Answers for contexts [B, d] of float32 with options of their own, a dict for each: k, mask, biases, …

        They have places for the largest k of the options; those that an answer has no token for hold the id -1. Into
        `out` if it is given.
        """
        asked = self._queries(contexts, options)
        places = max((query.k for query in asked), default=1)
        pointers = _pointers(query._as_parameter_ for query in asked)
        return self._answer("topk_query_each", contexts, pointers, places, workspace, out)

    def _queries(self, contexts, options):
        """Options of a query for each of the contexts."""
        asked = [_Query(self.shape[0], **dict(of_one)) for of_one in options]
        _check_as_many(contexts, asked, "options")
        return asked

    def _answer(self, function, contexts, asked, k, workspace, out):
        """The Answers that a function gives for contexts [B, d], of k tokens each."""
        stride = _stride(contexts, np.float32, "contexts")
        count, dim = contexts.shape
        if out is None:
            out = Answers.empty(count, k)
        for array, memory in zip(out, Answers.empty(0, k)):
            is_plain = _is_plain(array, memory.dtype) and array.flags.writeable
            if not is_plain or array.shape != (count, *memory.shape[1:]):
                raise ValueError(f"out must be as Answers.empty({count}, {k}) makes it")
        flat = _FlatAnswers(ids=_address(out.ids), logits=_address(out.logits), log_z=_address(out.log_z),
                            certified=_address(out.certified))
        _call(function, self, _address(contexts), count, dim, stride, asked, workspace or Workspace(0), byref(flat))
        return out

    def draw_each(self, contexts, samplers, randoms, options=None, workspace=None):
        """A Token after each of the contexts [B, d] of float32: what samplers[i] draws by randoms[i], with the options
        of Sampler.draw in options[i], a dict. No two samplers may be the same; streams may.

        What draws read of all rows is read once for eight of them, or for 64 where they take the logits of all
        tokens, on all threads that there are unless a Workspace has fewer.
        """
        stride = _stride(contexts, np.float32, "contexts")
        count, dim = contexts.shape
        samplers = [_SAMPLER.from_param(sampler) for sampler in samplers]
        randoms = [_RANDOM.from_param(random) for random in randoms]
        _check_as_many(contexts, samplers, "samplers")
        _check_as_many(contexts, randoms, "randoms")
        asked = self._queries(contexts, [{}] * count if options is None else options)
        ids = np.empty(count, np.int32)
        logits = np.empty(count, np.float32)
        log_prob, low, high = np.empty((3, count))
        flat = _FlatTokens(ids=_address(ids), logits=_address(logits), log_prob=_address(log_prob),
                           log_prob_low=_address(low), log_prob_high=_address(high))
        _call("topk_draw_each", self, _address(contexts), count, dim, stride, _pointers(samplers),
              _pointers(randoms), _pointers(query._as_parameter_ for query in asked), workspace or Workspace(0),
              byref(flat))
        return [Token(*of_one, bounds) for *of_one, bounds in zip(
            ids.tolist(), logits.tolist(), log_prob.tolist(), zip(low.tolist(), high.tolist()))]

    def logits(self, contexts, workspace=None, **options):
        """The logits of every token [B, V] for contexts [B, d]; −∞: forbidden."""
        stride = _stride(contexts, np.float32, "contexts")
        vocab = self.shape[0]
        values = np.empty((len(contexts), vocab), np.float32)
        _call("topk_logits", self, _address(contexts), *contexts.shape, stride, _Query(vocab, **options),
              workspace or Workspace(), _address(values))
        return values

    def logits_of(self, h, ids, workspace=None, **options):
        """The logits [n] of the tokens ids [n] of int32 for a context h [d]; −∞: forbidden."""
        vocab, dim = self.shape
        values = np.empty(len(_vector(ids, np.int32, "n", "ids")), np.float32)
        _call("topk_logits_of", self, _address(_vector(h, np.float32, dim, "h")), dim, _address(ids),
              len(values), _Query(vocab, **options), workspace or Workspace(), _address(values))
        return values

    def sample_log_z(self, h, error=0.01, temperature=1.0, seed=1, workspace=None, mask=None, biases=None):
        """The SampledLogZ for a context h [d], right within its error but for one seed in a thousand; None where
        the head has no bounds to draw rows by."""
        vocab, dim = self.shape
        found = _SampledLogZ()
        how = _LogZOptions(error=error, temperature=temperature, seed=_whole(seed, 2**64 - 1, "seed"))
        _call("topk_sample_log_z", self, _address(_vector(h, np.float32, dim, "h")), dim, byref(how),
              _Query(vocab, mask=mask, biases=biases), workspace or Workspace(), byref(found))
        return SampledLogZ(found.log_z, found.error, found.rows_read) if found.known else None

    def penalise(self, h, history, repetition=1.0, presence=0.0, frequency=0.0, workspace=None, biases=None):
        """The biases {token: bias} that penalise the tokens of a history [n] of int32 for a context h [d].

        They are for queries, draws and cursors of the same h, and have `biases` in them, which are added
        first.
        """
        vocab, dim = self.shape
        _vector(history, np.int32, "n", "history")
        room = np.empty(len(history) + len(biases or {}), _BIAS)
        penalties = _Penalties(repetition=repetition, presence=presence, frequency=frequency)
        count = c_size_t()
        _call("topk_penalise", byref(penalties), self, _address(_vector(h, np.float32, dim, "h")), dim,
              _address(history), len(history), _Query(vocab, biases=biases), workspace or Workspace(),
              _address(room), byref(count))
        return {int(token): float(bias) for token, bias in room[: count.value]}

    def cursor(self, h, **options):
        """The Cursor over the tokens for a context h [d]. Options: mask, biases and effort of a query."""
        return Cursor(self, h, **options)


class Cursor(_Handle):
    """The tokens of one context in falling order, as pairs (id, logit): for grammars that accept or reject the
    next best one. They are found when they are asked for, some 8, 24, 72, … at once."""

    def __init__(self, head, h, **options):
        vocab, dim = head.shape
        self._head = head
        self._query = _Query(vocab, **options)
        super().__init__("cursor", "topk_cursor_new", head, _address(_vector(h, np.float32, dim, "h")), dim,
                         self._query)

    def start(self, h, **options):
        """Begins again with another context h [d] and other options: faster than a new Cursor."""
        vocab, dim = self._head.shape
        query = _Query(vocab, **options)
        self._query = self._query, query  # where the call fails, the masks of both may be in use
        _call("topk_cursor_start", self, _address(_vector(h, np.float32, dim, "h")), dim, query)
        self._query = query

    def lend_threads(self, threads=0, executor=None):
        """Splits what is read among so many threads (0: as many as the Executor, or the library, has), from the next
        start on best. Worth it where a query reads megabytes."""
        _lend(self, threads, executor)

    def __iter__(self):
        return self

    def __next__(self):
        token, logit = c_int32(), c_float()
        _call("topk_cursor_next", self, byref(token), byref(logit))
        if token.value < 0:
            raise StopIteration
        return token.value, logit.value

    @property
    def certified(self):
        """Whether the tokens so far are proven to be the best ones, in their order."""
        return bool(_library.topk_cursor_certified(self))


class Random(_Handle):
    """Random numbers that a seed gives alike everywhere: one for each sequence that is generated."""

    def __init__(self, seed=0):
        super().__init__("random", "topk_random_new", _whole(seed, 2**64 - 1, "seed"))


class Token(NamedTuple):
    """A token that was drawn."""

    id: int
    logit: float
    log_prob: float  # of the distribution that was drawn from: an estimate, between
    log_prob_interval: tuple  # its bounds, proven but for what log_z_error lets be sampled


class Sampler(_Handle):
    """Draws tokens, after the options in the order of `order`: "hugging_face", "llama_cpp", or the names of all
    options in your own ("xtc" for the two of its). With log_z_error, top_p and XTC cut by a log Z that may be
    so far off, but for one draw in a thousand."""

    _ORDERS = {"hugging_face": 0, "llama_cpp": 1}
    _OF_STEPS = 2
    _STEPS = {name: step for step, name in enumerate(
        ("temperature", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc"))}

    def __init__(self, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=0.0,
                 xtc_probability=0.0, xtc_threshold=0.1, order="hugging_face", log_z_error=0.0):
        steps = None
        if isinstance(order, str):
            number = _one_of(self._ORDERS, order, "order")
        else:
            number = self._OF_STEPS
            steps = np.array([_one_of(self._STEPS, step, "a step of order") for step in order], np.uint8)
        options = _SamplingOptions(temperature=temperature, top_k=_whole(top_k, SIZE_MAX, "top_k"),
                                   top_p=top_p, min_p=min_p, typical_p=typical_p, top_n_sigma=top_n_sigma,
                                   xtc_probability=xtc_probability, xtc_threshold=xtc_threshold, order=number,
                                   log_z_error=log_z_error, steps=_address(steps), step_count=_length(steps))
        super().__init__("sampler", "topk_sampler_new", byref(options))

    def lend_threads(self, threads=0, executor=None):
        """Splits what a draw reads among so many threads (0: as many as the Executor, or the library, has). The tokens
        are the same. Worth it where draws read megabytes."""
        _lend(self, threads, executor)

    def draw(self, head, h, random, **options):
        """The Token after a context h [d] of float32, from exactly the layer's distribution.

        Options: mask, biases, effort, probabilities and log_z_tolerance of a query. log_prob may be the middle
        of an interval that is no wider than log_z_tolerance; without that, as wide as the draw left it, which
        may be nats. probabilities=False may take less time.
        """
        return self._draw("topk_draw", head, h, random, options)

    def draw_own(self, head, h, random, **options):
        """The same from the distribution that an approximate head itself has. It scans all tokens where one that
        the head leaves out may be drawn, or a cut turns on these."""
        return self._draw("topk_draw_own", head, h, random, options)

    def _draw(self, name, head, h, random, options):
        vocab, dim = head.shape
        token = _SampledToken()
        _call(name, self, head, _address(_vector(h, np.float32, dim, "h")), dim, random,
              _Query(vocab, **options), byref(token))
        return Token(token.id, token.logit, token.log_prob, (token.log_prob_low, token.log_prob_high))
