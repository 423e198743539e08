// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

namespace topksoftmax::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// Each takes any bytes whatever, and throws where the library does not do with them what it promises.

/// A safetensors file: opened, every tensor read as everything that it can be read as, and its layer made if
/// it is a model's checkpoint.
void safetensors(Bytes input);

/// The index of a checkpoint whose shards are a.safetensors and b.safetensors: opened, and its tensors read.
void shard_index(Bytes input);

/// A model's config.json: read.
void model_config(Bytes input);

/// A GGUF file: opened, everything in it looked up, its head found and its layer made.
void gguf(Bytes input);

/// A head file: opened, and its layers asked.
void head_file(Bytes input);

/// An index of any kind, changed in places: loaded, and asked where it is accepted.
void index_file(Bytes input);

/// A lexical table over two small vocabularies, as text or binary.
void alignment_lists(Bytes input);

/// A vocabulary map of CTranslate2 over the same vocabularies.
void vocabulary_map(Bytes input);

/// A layer, a backend over it, and queries, all chosen by the bytes; the answers are compared with Exact's.
void queries(Bytes input);

/// The same queries of backends over layers of their own, which are built once: a hundred times as many a
/// second.
void kept_heads(Bytes input);

/// Throws std::logic_error where a promise is not kept.
inline void require(bool kept, const char* promise) {
  if (!kept) throw std::logic_error(promise);
}

}  // namespace topksoftmax::fuzz
