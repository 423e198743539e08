// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/agreement.hpp"
#include "topksoftmax/distributed/communicator.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What messages are made of. To be raised whenever one changes.
inline constexpr std::uint32_t kMessageVersion = 2;

/// The first thing that ranks tell each other, which no version changes.
struct Preface {
  char magic[16] = "TopKSoftmax MPI";
  std::uint32_t version = kMessageVersion;
  std::uint32_t greeting_bytes = 0;
  std::uint8_t unused[40] = {};
};
static_assert(sizeof(Preface) == Communicator::kUnit);

/// What a rank has, before anything is asked.
struct Greeting {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t vocab = 0;
  std::uint64_t dim = 0;  ///< 0, as all that follows: it has no rows
  float scale = 0.0F;
  float soft_cap = 0.0F;
  WeightType weight_type = WeightType::float32;
  bool has_bias = false;
  bool certifies = false;
  bool exhaustive = false;
  bool shares_thresholds = false;  ///< its backend is a Certified, and this is asked for
  char instruction_set[27] = {};
  char backend[120] = {};

  VocabularySlice slice() const {
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(last), static_cast<std::size_t>(vocab)};
  }
};
static_assert(sizeof(Greeting) == 3 * Communicator::kUnit);

template <std::size_t N>
void put_text(char (&to)[N], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

/// That of a rank, `backend` being null where the slice is empty.
inline Greeting greeting_of(const VocabularySlice& slice, const TopKSoftmax* backend, bool share_thresholds) {
  Greeting greeting{.first = slice.first, .last = slice.last, .vocab = slice.vocab};
  if (backend == nullptr) return greeting;
  const SoftmaxLayer& layer = backend->layer();
  greeting.dim = layer.dim();
  greeting.scale = layer.transform().scale;
  greeting.soft_cap = layer.transform().soft_cap;
  greeting.weight_type = layer.weight_type();
  greeting.has_bias = layer.has_bias();
  greeting.certifies = backend->certifies();
  greeting.exhaustive = backend->exhaustive();
  greeting.shares_thresholds = share_thresholds && dynamic_cast<const Certified*>(backend) != nullptr;
  put_text(greeting.instruction_set, kernels::detail::active().target);
  put_text(greeting.backend, backend->name());
  return greeting;
}

inline std::string rows_text(const Greeting& greeting) {
  return "rows " + std::to_string(greeting.first) + " to " + std::to_string(greeting.last);
}

/// Throws Error unless all ranks speak the same version.
inline void check_prefaces(std::span<const Preface> prefaces) {
  for (std::size_t r = 1; r < prefaces.size(); ++r) {
    if (std::memcmp(&prefaces[r], &prefaces[0], sizeof(Preface)) == 0) continue;
    throw Error("sharded: rank " + std::to_string(r) + " sends messages of version " +
                std::to_string(prefaces[r].version) + ", rank 0 of version " +
                std::to_string(prefaces[0].version) + "; run the same build of the library on every rank");
  }
}

/// Throws Error unless the slices follow each other in the order of the ranks, from row 0 to the last, ...
inline void check_slices(std::span<const Greeting> ranks) {
  std::uint64_t end = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Greeting& rank = ranks[r];
    if (rank.vocab != ranks[0].vocab) {
      throw Error("sharded: rank " + std::to_string(r) + " has a slice of " + std::to_string(rank.vocab) +
                  " rows, rank 0 of " + std::to_string(ranks[0].vocab) + "; all must be of one layer");
    }
    if (rank.first != end || rank.last < rank.first) {
      throw Error("sharded: rank " + std::to_string(r) + " has " + rows_text(rank) +
                  "; it must begin at row " + std::to_string(end) + ", where the ranks before it end");
    }
    end = rank.last;
  }
  if (end == ranks[0].vocab && end != 0) return;
  throw Error("sharded: the slices of all " + std::to_string(ranks.size()) + " ranks end at row " +
              std::to_string(end) + " of " + std::to_string(ranks[0].vocab) +
              (end == 0 ? "; some rank must have rows" : "; every row must be on a rank"));
}

/// … and are of the same kind. Returns the first that has rows.
inline const Greeting& check_kinds(std::span<const Greeting> ranks) {
  std::size_t model = 0;
  while (ranks[model].dim == 0) ++model;
  const auto refuse = [&](std::size_t rank, const std::string& has, const std::string& other) {
    throw Error("sharded: rank " + std::to_string(rank) + " has " + has + ", rank " + std::to_string(model) +
                " has " + other + "; all must have slices of one layer, and the same backend");
  };
  const Greeting& first = ranks[model];
  for (std::size_t r = model; r < ranks.size(); ++r) {
    const Greeting& rank = ranks[r];
    if (rank.dim == 0) continue;
    const auto same = [&](const std::string& has, const std::string& other, const char* what) {
      if (has != other) refuse(r, what + (" " + has), what + (" " + other));
    };
    same(std::to_string(rank.dim), std::to_string(first.dim), "the dimension");
    same(std::string(weight_type_name(rank.weight_type)), std::string(weight_type_name(first.weight_type)),
         "weights of type");
    same(rank.has_bias ? "a bias" : "none", first.has_bias ? "a bias" : "none", "for its bias:");
    same(number_text(rank.scale), number_text(first.scale), "the scale of logits");
    same(number_text(rank.soft_cap), number_text(first.soft_cap), "the soft cap");
    same(rank.backend, first.backend, "the backend");
    same(rank.shares_thresholds ? "shared" : "own", first.shares_thresholds ? "shared" : "own",
         "thresholds:");
    same(rank.instruction_set, first.instruction_set, "the instruction set");
  }
  return first;
}

/// What every rank says. Collective; `preface` is that of this rank's library. Throws Error, the same on all
/// ranks, where they do not fit together.
inline std::vector<Greeting> greet(Communicator& ranks, const Greeting& own, const Preface& preface) {
  std::vector<Preface> prefaces;
  std::vector<Greeting> greetings;
  agree(ranks, [&] {
    prefaces.resize(ranks.ranks());
    greetings.resize(ranks.ranks());
  });
  ranks.all_gather(&preface, prefaces.data(), sizeof(preface));
  check_prefaces(prefaces);
  ranks.all_gather(&own, greetings.data(), sizeof(own));
  check_slices(greetings);
  check_kinds(greetings);
  return greetings;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
