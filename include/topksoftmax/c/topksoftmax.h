// SPDX-License-Identifier: Apache-2.0
#ifndef TOPKSOFTMAX_C_TOPKSOFTMAX_H
#define TOPKSOFTMAX_C_TOPKSOFTMAX_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

// TopKSoftmax for C, and for all languages that call C: the k most probable tokens of a softmax layer, W
// [V×d] and b [V], for context vectors h [d]. Link libtopksoftmax_c, which needs no other part of
// TopKSoftmax. The header is C99.
//
// Errors: whatever can fail returns a topk_status. Its last parameter takes a topk_error for the message, or
// NULL. The library keeps no state between calls, prints nothing and never ends the program, and no C++
// exception comes out. A call that fails leaves its outputs as they were; those of a batch are an exception
// that topk_query_batch states.
//
// Threads: layers, head files and backends never change once made, and any number of threads may use one at a
// time. A workspace, a cursor, a sampler and a random stream serve one call at a time. To free is to change:
// no call may be using what is freed. Callbacks may be called on other threads than the caller's where this
// says so.
//
// Memory: what a function makes, the one that ends in _free gives back, and takes NULL as well. A backend
// keeps what it needs of its layer, so that handles may be freed in any order. Memory of the caller is
// borrowed, and never copied, where this says so: it must stay where it is, unchanged.
//
// Structs whose first member is struct_size grow in later versions. Begin with their INIT macro, which sets
// that and the defaults: topk_query_options options = TOPK_QUERY_OPTIONS_INIT. Members that the library knows
// and the program does not then keep their defaults; a struct that the library does not know is refused.

#if defined(_WIN32)
#define TOPK_API
#else
#define TOPK_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------------------------
// Version and errors

#define TOPK_VERSION_MAJOR 0
#define TOPK_VERSION_MINOR 2
#define TOPK_VERSION_PATCH 0

/// The version of the library that is linked: "MAJOR.MINOR.PATCH", in digits. Before 1.0 another minor
/// version is another interface.
TOPK_API const char* topk_version(void);

/// How a call has ended.
typedef enum topk_status {
  TOPK_OK = 0,
  /// An argument is unusable: a null pointer, a length, an h that is not finite, k = 0, options of a query.
  TOPK_INVALID_ARGUMENT = 1,
  /// A layer, a backend or a file cannot be made, built, trained, loaded or saved.
  TOPK_ERROR = 2,
  TOPK_OUT_OF_MEMORY = 3,
  /// The progress callback has asked to stop.
  TOPK_STOPPED = 4,
  /// The caller's executor has failed, or not done what it must.
  TOPK_EXECUTOR_FAILED = 5,
  /// Whatever else there is: the system has no more threads, say.
  TOPK_OTHER_ERROR = 6
} topk_status;

#define TOPK_MESSAGE_SIZE 1024

/// What went wrong. A call that succeeds leaves it as it is.
typedef struct topk_error {
  /// The same code that the call returns.
  topk_status status;
  /// What was wrong, the value and the limit; UTF-8, cut where it would be longer, and ended by a zero.
  char message[TOPK_MESSAGE_SIZE];
} topk_error;

// ---------------------------------------------------------------------------------------------------------
// Layers

/// A softmax layer: logits are W·h + b, or what topk_layer_with_transform makes of it.
typedef struct topk_layer topk_layer;

/// How the rows of W are stored.
enum {
  TOPK_FLOAT32 = 0,
  TOPK_FLOAT16 = 1,   ///< IEEE binary16
  TOPK_BFLOAT16 = 2,  ///< the upper half of a float32
  TOPK_INT8 = 3,      ///< signed bytes with a scale a row: w = scale · q
  TOPK_Q8_0 = 4,      ///< ggml's blocks of 32 weights in 34 bytes; d is a multiple of 32
  TOPK_Q6_K = 5,      ///< ggml's blocks of 256 weights in 210 bytes; d is a multiple of 256
  TOPK_Q4_K = 6       ///< ggml's blocks of 256 weights in 144 bytes; d is a multiple of 256
};

/// W and b, in memory of the caller.
typedef struct topk_weights {
  /// sizeof(topk_weights), as TOPK_WEIGHTS_INIT sets it.
  size_t struct_size;
  const void* data;     ///< W: row i begins i·stride weights behind it; aligned as its weights are
  int type;             ///< TOPK_FLOAT32, TOPK_FLOAT16, TOPK_BFLOAT16, TOPK_INT8, …
  size_t vocab;         ///< V, the number of tokens: 1 to 2³¹ − 1
  size_t dim;           ///< d, the length of a context: at least 1
  size_t stride;        ///< from one row to the next, in weights: at least dim; 0: dim
  const float* scales;  ///< [V], for TOPK_INT8; otherwise NULL
  const float* bias;    ///< b [V], or NULL: none
} topk_weights;

#define TOPK_WEIGHTS_INIT \
  { sizeof(topk_weights), NULL, TOPK_FLOAT32, 0, 0, 0, NULL, NULL }

/// Makes a layer of W and b where they lie. The memory is borrowed: by the layer, by every backend that is
/// built or loaded for it, until all of these are freed.
///
/// Cost: reads W once. TOPK_ERROR for weights, scales or biases that are not finite, and sizes that cannot
/// be.
TOPK_API topk_status topk_layer_borrow(const topk_weights* weights, topk_layer** layer, topk_error* error);
TOPK_API void topk_layer_free(topk_layer* layer);

/// The same layer, sharing its weights, with logits that are logit_scale·(W·h + b), or with a soft cap
/// soft_cap·tanh(logit_scale·(W·h + b)/soft_cap). Both are from 1e-9 to 1e9; a soft_cap of 0: none.
/// TOPK_ERROR for other values.
TOPK_API topk_status topk_layer_with_transform(const topk_layer* layer, float logit_scale, float soft_cap,
                                               topk_layer** transformed, topk_error* error);

/// Opens the softmax layer of a model, its weights where they lie in the mapped file (a copy where they do
/// not lie at a multiple of their size), and with the model's own scale and soft cap. `path` is the model's
/// folder as Hugging Face's Transformers save it, or the model.safetensors or model.safetensors.index.json in
/// it, a GGUF file, or a head file (below). A file may be replaced or removed while the layer is used, but
/// must not be changed in place.
///
/// Cost: reads W once. TOPK_ERROR where there is no such layer, or it cannot be read.
TOPK_API topk_status topk_layer_open(const char* path, topk_layer** layer, topk_error* error);

/// The tokens that the rows of a layer are, [V], where its file says that these are not all of the model's
/// (d2t, as the drafts of EAGLE-3 have it): what topk_map_vocabulary takes. They live as long as the layer.
/// NULL of any other layer, and of NULL: row i is token i.
TOPK_API const int32_t* topk_layer_token_of_row(const topk_layer* layer);

/// V and d; 0 of NULL.
TOPK_API size_t topk_layer_vocab(const topk_layer* layer);
TOPK_API size_t topk_layer_dim(const topk_layer* layer);

/// A softmax layer in a safetensors file, with contexts that its model has produced: weight [V,d] in F32,
/// F16, BF16, or I8 with weight.scale [V]; and, where it has them, bias [V], contexts.train [N,d],
/// contexts.test [M,d] and counts [V]; a logit_scale and a soft_cap in its metadata.
typedef struct topk_head_file topk_head_file;

/// Opens and checks a head file. It may be replaced or removed while it is open, but must not be changed in
/// place. TOPK_ERROR where it cannot be read or is not a head file.
TOPK_API topk_status topk_head_file_open(const char* path, topk_head_file** file, topk_error* error);
TOPK_API void topk_head_file_free(topk_head_file* file);

/// The layer of a head file, its weights as they are stored and where they lie in the mapped file. It lives
/// on when the file is freed. Cost and errors: as of topk_layer_borrow.
TOPK_API topk_status topk_head_file_layer(const topk_head_file* file, topk_layer** layer, topk_error* error);

enum {
  TOPK_TRAIN_CONTEXTS = 0,  ///< what backends may learn from
  TOPK_TEST_CONTEXTS = 1    ///< what they are judged on
};

/// How many contexts of this kind a head file has; 0 of NULL.
TOPK_API size_t topk_head_file_context_count(const topk_head_file* file, int which);

/// Writes these contexts to `contexts` [count×d], as float32, row after row.
TOPK_API topk_status topk_head_file_read_contexts(const topk_head_file* file, int which, float* contexts,
                                                  topk_error* error);

/// Whether a head file says how often each token occurred; 0 of NULL.
TOPK_API int topk_head_file_has_counts(const topk_head_file* file);

/// Writes these numbers to `counts` [V]. TOPK_ERROR where the file has none, or a negative one.
TOPK_API topk_status topk_head_file_read_counts(const topk_head_file* file, int64_t* counts,
                                                topk_error* error);

// ---------------------------------------------------------------------------------------------------------
// Threads of the caller

/// A parallel loop over parts, as an executor is handed it. It always returns. `loop` is
/// its own argument: pass it on unchanged.
typedef void (*topk_loop_body)(const void* loop, size_t part, size_t thread);

/// Lends threads: an engine's own pool. It is copied; `user` must live as long as what it was
/// given to. No exception may leave its functions.
typedef struct topk_executor {
  /// Handed to both functions.
  void* user;
  /// How many threads parts run on at the same time, at most: at least 1.
  size_t (*threads)(void* user);
  /// Calls body(loop, part, thread) once for every part < parts, on at most `threads` threads, in any order,
  /// and returns when all calls have. Two calls at the same time have different numbers of a thread, below
  /// `threads`. May be called from several threads at once, and from within a body. Returns 0; otherwise it
  /// has failed, and no call of the body is going on any more.
  int (*run)(void* user, size_t parts, size_t threads, topk_loop_body body, const void* loop);
} topk_executor;

// ---------------------------------------------------------------------------------------------------------
// Backends

/// What finds the most probable tokens of a layer: built by one of the methods that the library has.
typedef struct topk_backend topk_backend;

/// Called now and then, on the thread that builds, with what is being done, in UTF-8, and which share of the
/// whole is done, 0 to 1. Returns 0 to go on; otherwise the build ends with TOPK_STOPPED.
typedef int (*topk_progress)(void* user, const char* step, double done);

/// What there is to build a backend from, beside the layer. Borrowed until the build is over.
typedef struct topk_build_material {
  /// sizeof(topk_build_material), as TOPK_BUILD_MATERIAL_INIT sets it.
  size_t struct_size;
  const float* contexts;          ///< [N×d] to learn from, row i at contexts + i·context_stride; NULL: none
  size_t context_count;           ///< N
  size_t context_stride;          ///< from one context to the next, in floats: at least d; 0: d
  const int64_t* counts;          ///< [V], how often each token occurred; NULL: unknown
  const topk_executor* executor;  ///< NULL: the library's own threads
  topk_progress progress;         ///< NULL: none
  void* progress_user;            ///< handed to it
} topk_build_material;

#define TOPK_BUILD_MATERIAL_INIT \
  { sizeof(topk_build_material), NULL, 0, 0, NULL, NULL, NULL, NULL }

/// Builds a backend for a layer.
///
/// `name` is that of the README's table: "certified", "l2s", "fgd", "fused", … or "certify:l2s". `options`
/// are those that are not to have their defaults, as text: "clusters=100 budget=300", separated by blanks or
/// ends of lines; NULL or "": none. topk_list_backends tells which there are. `material` may be NULL.
///
/// Cost: seconds to minutes, as the method has it. TOPK_ERROR for an unknown name or option, for values that
/// are refused, and for contexts that are missing, not finite or unusable.
TOPK_API topk_status topk_build(const topk_layer* layer, const char* name, const char* options,
                                const topk_build_material* material, topk_backend** backend,
                                topk_error* error);

/// The backend whose index topk_save has written to `path`, for the layer that it was built for, and no
/// other. Answers as the one that was saved. Of W 1,024 rows are compared, and no other is read:
/// topk_verify_layer compares all. TOPK_ERROR for a file that is not there, damaged, of a newer version or of
/// another layer.
TOPK_API topk_status topk_load(const char* path, const topk_layer* layer, topk_backend** backend,
                               topk_error* error);

/// The same with the file's bytes in memory of this process, where topk_load uses them where they lie in the
/// mapped file: whoever changes that file in place changes answers, and whoever shortens it ends the program.
/// Cost: reads the file too.
TOPK_API topk_status topk_load_copy(const char* path, const topk_layer* layer, topk_backend** backend,
                                    topk_error* error);

/// Gives a backend the ids of a model whose layer it has fewer, or other, rows of: a trimmed vocabulary, or
/// rows that are padding and never an answer. token_of_row[r] is the token of row r, below `vocab`, or -1 for
/// padding; tokens rise strictly from row to row. Ids in answers, masks and biases are the model's then, and
/// tokens without a row count as forbidden. Both backends may be freed in any order; the new one is saved
/// and loaded as any is, for the layer of rows.
///
/// Cost: copies `rows` ids. TOPK_ERROR for other ids, for another number of `rows` than the backend has,
/// where no row is a token, and for a backend that is mapped already.
TOPK_API topk_status topk_map_vocabulary(const topk_backend* over_rows, const int32_t* token_of_row,
                                         size_t rows, size_t vocab, topk_backend** mapped, topk_error* error);

TOPK_API void topk_backend_free(topk_backend* backend);

/// Writes the index of a backend, without the layer, to a file. It is written beside `path`, synced, and
/// renamed: on any failure the old file stays whole.
TOPK_API topk_status topk_save(const topk_backend* backend, const char* path, topk_error* error);

/// TOPK_ERROR unless an index file is for this layer, of which all is compared. Cost: reads W once.
TOPK_API topk_status topk_verify_layer(const char* path, const topk_layer* layer, topk_error* error);

/// Reads an index file whole: TOPK_ERROR unless metadata and tensors are as they were written, by their
/// checksum.
TOPK_API topk_status topk_verify_index(const char* path, topk_error* error);

/// Its name: "l2s", or "certify:l2s" of one that certifies another. It lives as long as the backend; NULL of
/// NULL.
TOPK_API const char* topk_backend_name(const topk_backend* backend);

/// V, its number of tokens, and d; 0 of NULL.
TOPK_API size_t topk_backend_vocab(const topk_backend* backend);
TOPK_API size_t topk_backend_dim(const topk_backend* backend);

/// Bytes that it keeps beside the layer; 0 of NULL.
TOPK_API size_t topk_backend_index_bytes(const topk_backend* backend);

/// Whether every answer is proven to be the exact top-k; 0 of NULL.
TOPK_API int topk_backend_certifies(const topk_backend* backend);

/// How far log Z is off where it was learned from contexts (TOPK_NORMALIZER_LEARNED): |log Z − the exact one|
/// in nats, the median and the 99th percentile over contexts that were held out. 1, and both written (NULL:
/// not wanted), if the backend has such a log Z; 0, and nothing written, if it has none or is NULL.
TOPK_API int topk_backend_log_z_error(const topk_backend* backend, double* median, double* p99);

/// Writes what can be built to `text`, for people to read: every backend by its name, what it does, and each
/// of its options with the default; "certify:NAME" goes for any other backend's name. Ends it by a zero, and
/// cuts it to `text_size` bytes in all. Returns the bytes that it takes whole: call it with NULL and 0 to
/// learn how many. 0 where memory runs out.
TOPK_API size_t topk_list_backends(char* text, size_t text_size);

// ---------------------------------------------------------------------------------------------------------
// Queries

/// The memory that queries work in, and the threads that they run on. Once it has served a query of some
/// kind, queries of that kind allocate nothing. Any backend may use any workspace.
typedef struct topk_workspace topk_workspace;

/// A workspace for calls on as many threads as this; 0: as the executor has. With 1, all is done on the
/// caller's thread. `executor`: NULL for the library's own threads. TOPK_OUT_OF_MEMORY where memory does not
/// suffice.
TOPK_API topk_status topk_workspace_new(size_t threads, const topk_executor* executor,
                                        topk_workspace** workspace, topk_error* error);
TOPK_API void topk_workspace_free(topk_workspace* workspace);

/// A value that is added to one token's logit.
typedef struct topk_token_bias {
  /// The token.
  int32_t id;
  /// What is added to its logit; finite.
  float bias;
} topk_token_bias;

/// As an effort: exhaust the method.
#define TOPK_FULL_EFFORT SIZE_MAX

/// How a query is to be answered.
typedef struct topk_query_options {
  /// sizeof(topk_query_options), as TOPK_QUERY_OPTIONS_INIT sets it.
  size_t struct_size;
  /// Tokens wanted, at least 1; more than V gives V.
  size_t k;
  /// The tokens that may be returned, one bit each: token t is allowed if allowed[t / 64] >> (t % 64) & 1.
  /// Without it and without allowed32 all are; otherwise allowed_words is at least ⌈V/64⌉. Forbidden tokens
  /// have probability 0. The words are not copied.
  const uint64_t* allowed;
  /// Words of `allowed`.
  size_t allowed_words;
  /// Values added to logits: finite, ids strictly ascending and below V.
  const topk_token_bias* biases;
  /// Biases in `biases`.
  size_t bias_count;
  /// Whether log Z is wanted; 0: only ids and logits are, which may cost less.
  int probabilities;
  /// How hard the backend looks, in the unit of its own trade-off; 0: as it was tuned, where its index holds
  /// the effort that was found, or else built; or TOPK_FULL_EFFORT.
  size_t effort;
  /// The widest interval of log Z that a backend may answer with which gives one; 0: exact log Z.
  double log_z_tolerance;
  /// The same as `allowed` in words of 32 bits, as the masks of XGrammar and llguidance are: token t is
  /// allowed if allowed32[t / 32] >> (t % 32) & 1. NULL: none; otherwise allowed32_words is at least ⌈V/32⌉,
  /// and `allowed` is NULL.
  const uint32_t* allowed32;
  /// Words of `allowed32`.
  size_t allowed32_words;
} topk_query_options;

#define TOPK_QUERY_OPTIONS_INIT \
  { sizeof(topk_query_options), 1, NULL, 0, NULL, 0, 1, 0, HUGE_VAL, NULL, 0 }

/// What the log-probabilities of an answer, logit − log Z, are normalised by.
enum {
  TOPK_NORMALIZER_NONE = 0,        ///< nothing: probabilities were not asked for, log Z is NaN
  TOPK_NORMALIZER_EXACT = 1,       ///< log Z over every allowed token
  TOPK_NORMALIZER_CANDIDATES = 2,  ///< over candidates only: all other tokens count as impossible
  TOPK_NORMALIZER_LOW_RANK = 3,    ///< over candidates, plus approximate logits for all other tokens
  TOPK_NORMALIZER_INTERVAL = 4,    ///< proven bounds: log Z lies in [log_z_low, log_z_high]
  TOPK_NORMALIZER_LEARNED = 5  ///< over candidates, plus what contexts have taught of all other tokens' mass
};

/// What an answer tells besides its tokens.
typedef struct topk_answer {
  /// sizeof(topk_answer), as TOPK_ANSWER_INIT sets it.
  size_t struct_size;
  size_t count;       ///< tokens: k, or as many as are allowed
  double log_z;       ///< the log-probability of a token is its logit − log_z
  double log_z_low;   ///< equal to log_z unless TOPK_NORMALIZER_INTERVAL
  double log_z_high;  ///< likewise
  int normalizer;     ///< TOPK_NORMALIZER_…
  int certified;      ///< 1: proven to be the exact top-k of the layer
  size_t bytes_read;  ///< of weights and index, each byte as often as it was asked for
  size_t screened;    ///< rows, clusters or nodes that were looked at to find candidates
  size_t candidates;  ///< tokens whose exact logit was computed
  int fell_back;      ///< 1: there were too few candidates, and every token was scored
  int repaired;       ///< 1: the backend within a "certify:…" had other tokens to offer
  double confidence;  ///< how probable it is, at the least, to be the exact top-k: 1 where certified
} topk_answer;

#define TOPK_ANSWER_INIT \
  { sizeof(topk_answer), 0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0.0 }

/// The answer for the context h [dim], on as many threads as the workspace has: the most probable token
/// first, of equal logits the lower id. The same bits for every number of threads. Several threads are worth
/// it where a query reads megabytes.
///
/// `ids` [k] takes the tokens, `logits` [k] their logits, or is NULL; unused places get the id −1 and the
/// logit −∞. `answer` may be NULL, as may `options`.
///
/// TOPK_INVALID_ARGUMENT for an h of another length than d or with a value that is not finite, for k = 0 and
/// for options that are unusable.
TOPK_API topk_status topk_query(const topk_backend* backend, const float* h, size_t dim,
                                const topk_query_options* options, topk_workspace* workspace, int32_t* ids,
                                float* logits, topk_answer* answer, topk_error* error);

/// Where the answers of a batch of B contexts are put, in memory of the caller.
typedef struct topk_flat_answers {
  /// sizeof(topk_flat_answers), as TOPK_FLAT_ANSWERS_INIT sets it.
  size_t struct_size;
  int32_t* ids;        ///< [B×k], best first; −1 where there is no token
  float* logits;       ///< [B×k], or NULL; −∞ where there is no token
  double* log_z;       ///< [B], or NULL; NaN where probabilities were not asked for
  uint8_t* certified;  ///< [B], 1 where the answer is proven to be exact, or NULL
} topk_flat_answers;

#define TOPK_FLAT_ANSWERS_INIT \
  { sizeof(topk_flat_answers), NULL, NULL, NULL, NULL }

/// The answers for `batch` contexts of `dim` floats each, `stride` floats from one to the next (0: dim), on
/// as many threads as the workspace has. Each is that of topk_query, but lists that a method shares over a
/// batch by design may add tokens that it alone would not find.
///
/// Errors: as of topk_query. After TOPK_INVALID_ARGUMENT nothing has been written; otherwise each context's
/// answer is there whole, or as it was in all four arrays.
TOPK_API topk_status topk_query_batch(const topk_backend* backend, const float* contexts, size_t batch,
                                      size_t dim, size_t stride, const topk_query_options* options,
                                      topk_workspace* workspace, const topk_flat_answers* answers,
                                      topk_error* error);

/// The same where each context has options of its own: those of context q at options[q], [batch], NULL for
/// the defaults: a server's requests with their masks, penalties and k. Each answer is that of topk_query,
/// and has places for the largest k of the options: ids [B×k]. Neighbours are answered together where the
/// backend's batches allow it.
///
/// Errors: as of topk_query_batch; the message names the context.
TOPK_API topk_status topk_query_each(const topk_backend* backend, const float* contexts, size_t batch,
                                     size_t dim, size_t stride, const topk_query_options* const* options,
                                     topk_workspace* workspace, const topk_flat_answers* answers,
                                     topk_error* error);

/// The logits of every token for `batch` contexts, with mask and biases (−∞: forbidden), to `logits` [B×V],
/// on as many threads as the workspace has. Those of answers, bit for bit; k, which must be at least 1, and
/// effort count for nothing. Reads V·d weights, whatever the backend. Errors: as of topk_query.
TOPK_API topk_status topk_logits(const topk_backend* backend, const float* contexts, size_t batch, size_t dim,
                                 size_t stride, const topk_query_options* options, topk_workspace* workspace,
                                 float* logits, topk_error* error);

/// The logits of some tokens for the context h [dim], with mask and biases (−∞: forbidden), to `logits`
/// [count]: logits[i] is that of ids[i], in any order and as often as it is named. Those of answers, bit for
/// bit; k, which must be at least 1, and effort count for nothing. Reads count·d weights, whatever the
/// backend. Errors: as of topk_query, and TOPK_INVALID_ARGUMENT for an id that is no token.
TOPK_API topk_status topk_logits_of(const topk_backend* backend, const float* h, size_t dim,
                                    const int32_t* ids, size_t count, const topk_query_options* options,
                                    topk_workspace* workspace, float* logits, topk_error* error);

/// How well log Z is to be known from a sample of the rows.
typedef struct topk_log_z_options {
  /// sizeof(topk_log_z_options), as TOPK_LOG_Z_OPTIONS_INIT sets it.
  size_t struct_size;
  /// |log Z found − log Z| is below this but for one seed in a thousand, as far as rows that are read tell of
  /// the others; where they do not, all are read. Above 0.
  double error;
  double temperature;  ///< logits are divided by it: 1e-30 to 1e30
  uint64_t seed;       ///< of the rows that are drawn
} topk_log_z_options;

#define TOPK_LOG_Z_OPTIONS_INIT \
  { sizeof(topk_log_z_options), 0.01, 1.0, 1 }

/// log Σ exp(logit/temperature) over all allowed tokens, from the rows that count most and a sample of the
/// others.
typedef struct topk_sampled_log_z {
  /// sizeof(topk_sampled_log_z), as TOPK_SAMPLED_LOG_Z_INIT sets it.
  size_t struct_size;
  int known;         ///< 0: the backend has no bounds to draw rows by, and nothing else here counts
  double log_z;      ///< in nats
  double error;      ///< half of its interval of confidence at 99.9 %; 0: exact but for rounding
  size_t rows_read;  ///< rows whose logits were computed
} topk_sampled_log_z;

#define TOPK_SAMPLED_LOG_Z_INIT \
  { sizeof(topk_sampled_log_z), 0, 0.0, 0.0, 0 }

/// log Z of the context h [dim] within an error at a confidence of 99.9 %: between the proven interval of a
/// query (log_z_tolerance) and what was learned (topk_backend_log_z_error). `how` may be NULL, as may
/// `options`, of which only mask and biases count. Where a sample would read too many rows all are read, V·d
/// weights. TOPK_INVALID_ARGUMENT as of topk_query, for an error or a temperature out of range, and where no
/// token is allowed.
TOPK_API topk_status topk_sample_log_z(const topk_backend* backend, const float* h, size_t dim,
                                       const topk_log_z_options* how, const topk_query_options* options,
                                       topk_workspace* workspace, topk_sampled_log_z* found,
                                       topk_error* error);

// ---------------------------------------------------------------------------------------------------------
// Penalties

/// What a token's logit loses for having been written before, as inference engines define it.
typedef struct topk_penalties {
  /// sizeof(topk_penalties), as TOPK_PENALTIES_INIT sets it.
  size_t struct_size;
  /// Above 0: a logit above 0 is divided by it, any other multiplied, as in Hugging Face and llama.cpp. 1:
  /// none.
  double repetition;
  double presence;   ///< taken off once …
  double frequency;  ///< … and once for each time that the token was written
} topk_penalties;

#define TOPK_PENALTIES_INIT \
  { sizeof(topk_penalties), 1.0, 0.0, 0.0 }

/// The biases that make the logits of a history's tokens what penalties make of them, for the context h [dim]
/// after `history` [history_count], whose tokens may repeat. Those of `options` are added first, and are
/// among the result; of these options nothing else counts. Put the result into the options of queries, draws
/// and cursors for the same context: every answer is then that of the penalised logits, within a rounding.
///
/// `biases` has room for history_count + options->bias_count of them; `bias_count` takes how many there are.
/// Cost: d weights for each distinct token of the history. TOPK_INVALID_ARGUMENT as of topk_logits_of, for a
/// repetition that is not above 0 and for penalties that are not finite.
TOPK_API topk_status topk_penalise(const topk_penalties* penalties, const topk_backend* backend,
                                   const float* h, size_t dim, const int32_t* history, size_t history_count,
                                   const topk_query_options* options, topk_workspace* workspace,
                                   topk_token_bias* biases, size_t* bias_count, topk_error* error);

// ---------------------------------------------------------------------------------------------------------
// Tokens in falling order

/// The tokens of one context in falling order, one at a time: for grammars that accept or reject the next
/// best one. What a certifying backend gives is the order of all logits; an approximate one gives what it
/// finds, no token twice.
typedef struct topk_cursor topk_cursor;

/// A cursor over the tokens for the context h [dim]. Of `options`, which may be NULL, the mask, the biases
/// and the effort count. The words of a mask are borrowed until the cursor is freed; all else is copied.
///
/// Cost on a backend that certifies: the context is bounded once, the rows are found that may be among some 8
/// best ones, then, when these are used up, among about 24, 72 and so on, and a token is scored when its
/// bound lets it be the next one. On others: queries for 8 tokens, for 32, for 128 and so on, each where the
/// tokens of the one before did not suffice. Errors: as of topk_query.
TOPK_API topk_status topk_cursor_new(const topk_backend* backend, const float* h, size_t dim,
                                     const topk_query_options* options, topk_cursor** cursor,
                                     topk_error* error);
TOPK_API void topk_cursor_free(topk_cursor* cursor);

/// The same for another context and other options, in the memory that the cursor has: faster than a new one.
/// Where it fails, the masks of both may be in use until the cursor is started again or freed.
TOPK_API topk_status topk_cursor_start(topk_cursor* cursor, const float* h, size_t dim,
                                       const topk_query_options* options, topk_error* error);

/// The next best token; the id −1 and the logit −∞ where there is none left. `logit` may be NULL. After a
/// call that fails, the next one goes on where the last that succeeded ended. Errors: as of topk_query.
TOPK_API topk_status topk_cursor_next(topk_cursor* cursor, int32_t* id, float* logit, topk_error* error);

/// Splits what the cursor reads among so many threads, from the next start on best; 0: as the executor has.
/// `executor`: NULL for the library's own threads. A new cursor has the caller's thread alone. The tokens are
/// the same. Worth it where a query reads megabytes. TOPK_INVALID_ARGUMENT where the executor lacks a
/// function.
TOPK_API topk_status topk_cursor_lend_threads(topk_cursor* cursor, size_t threads,
                                              const topk_executor* executor, topk_error* error);

/// Whether the tokens so far are proven to be the best ones, in their order; before the first, whether that
/// one will be. 0 of NULL.
TOPK_API int topk_cursor_certified(const topk_cursor* cursor);

// ---------------------------------------------------------------------------------------------------------
// Sampling

/// Random numbers that a seed gives alike on every platform: one for each sequence that is generated.
typedef struct topk_random topk_random;

TOPK_API topk_status topk_random_new(uint64_t seed, topk_random** random, topk_error* error);
TOPK_API void topk_random_free(topk_random* random);

/// The order in which sampling options are applied.
enum {
  TOPK_ORDER_HUGGING_FACE = 0,  ///< temperature, top-k, top-p, min-p, typical-p, top-n-sigma, XTC
  TOPK_ORDER_LLAMA_CPP = 1,     ///< top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature
  TOPK_ORDER_OF_STEPS = 2       ///< that of topk_sampling_options.steps
};

/// What is applied in an order of your own.
enum {
  TOPK_STEP_TEMPERATURE = 0,
  TOPK_STEP_TOP_N_SIGMA = 1,
  TOPK_STEP_TOP_K = 2,
  TOPK_STEP_TYPICAL_P = 3,
  TOPK_STEP_TOP_P = 4,
  TOPK_STEP_MIN_P = 5,
  TOPK_STEP_XTC = 6
};

/// What is drawn from: each step acts on what the steps before it left, renormalised.
typedef struct topk_sampling_options {
  /// sizeof(topk_sampling_options), as TOPK_SAMPLING_OPTIONS_INIT sets it.
  size_t struct_size;
  double temperature;  ///< logits are divided by it: 1e-30 to 1e30; 0: always the most probable token
  size_t top_k;        ///< the k most probable tokens stay; 0: all
  double top_p;        ///< the fewest most probable stay whose probabilities reach top_p, 0 < top_p ≤ 1
  double min_p;      ///< those stay that are at least min_p times as probable as the first, 0 ≤ min_p ≤ 1
  double typical_p;  ///< those stay whose −log p is nearest to the entropy, 0 < typical_p ≤ 1
  double top_n_sigma;  ///< those within so many standard deviations of the best logit stay; 0: all
  double
      xtc_probability;  ///< of leaving out tokens at least as probable as xtc_threshold, but the last; 0 to 1
  double xtc_threshold;  ///< 0 < xtc_threshold ≤ 1
  uint64_t order;        ///< TOPK_ORDER_HUGGING_FACE, TOPK_ORDER_LLAMA_CPP or TOPK_ORDER_OF_STEPS
  /// How far off log Z may be where top_p and XTC cut by it, but for one draw in a thousand: where a proven
  /// head's bounds do not decide, a sample of the rows then does, and the bounds of log_prob are off by as
  /// much (by more where the temperature comes behind the cuts, or XTC acts). 0: log Z is exact.
  double log_z_error;
  const uint8_t* steps;  ///< [step_count], with TOPK_ORDER_OF_STEPS alone: every TOPK_STEP_ once
  size_t step_count;     ///< 7, or 0 without
} topk_sampling_options;

#define TOPK_SAMPLING_OPTIONS_INIT                                                                           \
  {                                                                                                          \
    sizeof(topk_sampling_options), 1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.1, TOPK_ORDER_HUGGING_FACE, 0.0, NULL, \
        0                                                                                                    \
  }

/// What tokens are drawn by, and the memory that this takes.
typedef struct topk_sampler topk_sampler;

/// `options` may be NULL. TOPK_INVALID_ARGUMENT where they are out of range, and where steps are missing,
/// named twice, or given without being the order.
TOPK_API topk_status topk_sampler_new(const topk_sampling_options* options, topk_sampler** sampler,
                                      topk_error* error);
TOPK_API void topk_sampler_free(topk_sampler* sampler);

/// Splits what a draw reads among so many threads from now on; 0: as the executor has. `executor`: NULL for
/// the library's own threads. A new sampler has the caller's thread alone. The tokens are the same. Worth it
/// where draws read megabytes: a step that reads less than two stays on the caller's thread.
/// TOPK_INVALID_ARGUMENT where the executor lacks a function.
TOPK_API topk_status topk_sampler_lend_threads(topk_sampler* sampler, size_t threads,
                                               const topk_executor* executor, topk_error* error);

/// A token that was drawn.
typedef struct topk_sampled_token {
  /// sizeof(topk_sampled_token), as TOPK_SAMPLED_TOKEN_INIT sets it.
  size_t struct_size;
  double log_prob;  ///< of the distribution that was drawn from: an estimate where its bounds differ
  /// Bounds, proven but for what log_z_error lets be sampled: equal to log_prob unless log Z was known as an
  /// interval only.
  double log_prob_low;
  double log_prob_high;  ///< likewise
  float logit;           ///< as the layer gives it, with the query's bias
  /// The token drawn.
  int32_t id;
} topk_sampled_token;

#define TOPK_SAMPLED_TOKEN_INIT \
  { sizeof(topk_sampled_token), 0.0, 0.0, 0.0, 0.0F, 0 }

/// Draws the token after the context h [dim] from exactly the distribution that the layer has, whatever
/// backend is asked, and the same one for a seed. Backends that cannot prove their answers are asked for a
/// greedy choice alone. Of `query`, which may be NULL, the mask, the biases and the effort count, and whether
/// probabilities are wanted: without, the bounds of log_prob are as wide as the draw left them, and log_prob
/// may be no more than the middle between them. With them they may still be nats apart, but no wider than
/// log_z_tolerance: where they were, the logits of all tokens are taken. Takes one number of the stream,
/// unless it fails.
/// TOPK_INVALID_ARGUMENT as topk_query, and where no token is allowed.
///
/// Cost: a query for 8 tokens (or top_k; 1 at temperature 0) or, without probabilities, the bounds of one;
/// and V/16 random numbers and some tens of rows of d weights. Where that does not tell the token: bounds of
/// up to V/2 rows by all their coordinates and those of d weights that rank before the token, queries for 32
/// and 128 tokens, or V·d weights with V exponentials. The last of these at once, unless the temperature is
/// 0, where the backend does not certify or scores every token for every answer; and where typical_p acts, or
/// top_n_sigma behind top_p or XTC, and neither top_k nor min_p nor top_n_sigma (nor, with log_z_error,
/// top_p) came before. top_n_sigma as the first cut takes d² multiply-adds, and all weights where the backend
/// does not know how far logits are spread. Of a mask with at most V/32 tokens, or 64, their rows alone; so
/// too of one with at most V/8 where the logits of all would be taken.
TOPK_API topk_status topk_draw(topk_sampler* sampler, const topk_backend* backend, const float* h, size_t dim,
                               topk_random* random, const topk_query_options* query,
                               topk_sampled_token* token, topk_error* error);

/// The same from the distribution that the backend itself has, where that is not the layer's: its candidates
/// for this query have their exact logits, and all other tokens have together the mass that its log Z counts
/// for them (none with TOPK_NORMALIZER_CANDIDATES: they never come). Where top_k cuts first, and there are k
/// candidates, the k best are theirs, as in the backend's answers. As good as the backend. Takes one or two
/// numbers of the stream, unless it fails. Of `query` its k counts too; whether probabilities are wanted does
/// not. Backends that certify, or score every token for every answer, are drawn from as topk_draw does, and
/// so is any at temperature 0, and where it answers the query from all tokens that are allowed.
///
/// Cost: the backend's screening, and candidates·d weights; a scan, V·d weights with V exponentials, where a
/// token outside of the candidates may be drawn, or another cut turns on how their mass is shared: it does
/// not where the tokens that stay are each more probable than all others together.
TOPK_API topk_status topk_draw_own(topk_sampler* sampler, const topk_backend* backend, const float* h,
                                   size_t dim, topk_random* random, const topk_query_options* query,
                                   topk_sampled_token* token, topk_error* error);

/// Where the tokens of a batch of B draws are put, in memory of the caller.
typedef struct topk_flat_tokens {
  /// sizeof(topk_flat_tokens), as TOPK_FLAT_TOKENS_INIT sets it.
  size_t struct_size;
  int32_t* ids;           ///< [B]
  float* logits;          ///< [B], or NULL; as the layer gives them, with the query's bias
  double* log_prob;       ///< [B], or NULL; topk_sampled_token.log_prob
  double* log_prob_low;   ///< likewise
  double* log_prob_high;  ///< likewise
} topk_flat_tokens;

#define TOPK_FLAT_TOKENS_INIT \
  { sizeof(topk_flat_tokens), NULL, NULL, NULL, NULL, NULL }

/// Draws a token after each of `batch` contexts of `dim` floats each, `stride` floats from one to the next
/// (0: dim): token i is that of topk_draw with samplers[i], randoms[i] and queries[i], all [batch], on as
/// many threads as the workspace has. `queries` may be NULL, and so may each of them. No two samplers may be
/// the same; streams may. What draws read of all rows is read once for eight of them, or for 64 where they
/// take the logits of all tokens.
///
/// Errors: as of topk_draw; the message names the context. Then nothing is written, and no stream has given a
/// number.
TOPK_API topk_status topk_draw_each(const topk_backend* backend, const float* contexts, size_t batch,
                                    size_t dim, size_t stride, topk_sampler* const* samplers,
                                    topk_random* const* randoms, const topk_query_options* const* queries,
                                    topk_workspace* workspace, const topk_flat_tokens* tokens,
                                    topk_error* error);

#ifdef __cplusplus
}
#endif

#undef TOPK_API

#endif
