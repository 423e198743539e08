// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/agreement.hpp"
#include "topksoftmax/distributed/call.hpp"
#include "topksoftmax/distributed/communicator.hpp"
#include "topksoftmax/distributed/exchange.hpp"
#include "topksoftmax/distributed/greeting.hpp"
#include "topksoftmax/distributed/own_slice.hpp"
#include "topksoftmax/distributed/partial_answer.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/io/row_hashes.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_slice.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How ranks work together.
struct ShardedOptions {
  /// Whether ranks that have a Certified each tell each other, before they score any rows, a logit that k of
  /// theirs reach: rows below the highest of these need not be looked at. Of single queries without
  /// probabilities: rows that are left out would change the interval of log Z. It takes one more collective,
  /// and saves most where slices are large and many rows pass.
  bool share_thresholds = true;
};

/// A layer whose rows are spread over the ranks of an MPI communicator, each of which has a backend over its
/// own slice of them. Every rank asks the same, and every rank gets the same answer, with ids of the whole
/// layer.
///
/// Answers that the backend proves, and those of exhaustive backends, have the tokens and logits that one
/// process holding the whole layer would answer with, bit for bit. Of exhaustive backends, under a mask that
/// allows few tokens, and where QueryOptions::log_z_tolerance leaves no room for an interval, log Z is exact
/// and that of one process too (LogSumExp); so none of it depends on how many ranks there are. Otherwise log
/// Z is added up from those of the ranks, in their order: an interval is proven as theirs are, but how wide
/// it is depends on the indexes, which each rank has built of its own slice. Backends that do not prove their
/// answers offer candidates of each slice, so there are as many more to choose from. Effort: the backend's,
/// on each rank.
///
/// Asking is collective: every rank calls the same member functions with the same arguments in the same
/// order, from one thread at a time. Those that only tell something, or have nothing to tell (candidates,
/// sample_log_z), are not. Where a rank is asked something else, refuses its arguments, or runs out of
/// memory, all ranks throw: that rank what it would throw alone, the others the same with its number before
/// it, and the head remains usable. That holds for what this head is asked: where decoding over it runs out
/// of memory of its own on one rank, that rank no longer asks, and the others wait. logits_of() compares the
/// context and the tokens; each rank edits the logits by the mask and the biases that it was given. A rank
/// that dies ends all of them, by MPI's own abort. MPI must be initialised, with MPI_THREAD_SERIALIZED where
/// other threads than the main one ask, and must not be finalised before the head is deleted, which is
/// collective too.
///
/// Cost: on each rank the backend's query on its slice, and one collective operation (MPI_Allgather) of 32
/// bytes and for each context 104 + 8·min(k, largest slice) from every rank; a second one where that is more
/// than the question before sent, or more than 64 KB, and one before it where thresholds are shared
/// (ShardedOptions). A batch is one question, answered on one thread of each rank. logits() gathers V floats
/// for each context, logits_of() as many as there are tokens, from each rank. Reading what a rank is asked,
/// to hash it, is O(batch·d + V/64 of a mask).
class TOPKSOFTMAX_EXPORT ShardedSoftmax final : public TopKSoftmax {
 public:
  /// Makes one of what make_backend() returns on each rank, a pointer to a backend over the rows of its slice
  /// alone; it is not called where the slice is empty. The slices must follow each other in the order of the
  /// ranks and hold every row; the backends must be of one kind, with layers that are alike in all but their
  /// rows, and the processors must take the same kernels.
  ///
  /// Collective. Throws Error on all ranks where that does not hold, or a rank runs another version of this
  /// library; and whatever make_backend() throws, on all ranks, if it does on any.
  template <class MakeBackend>
  static std::unique_ptr<ShardedSoftmax> make(MPI_Comm comm, const VocabularySlice& slice,
                                              const MakeBackend& make_backend,
                                              const ShardedOptions& options = {});

  /// "sharded:" and the name of the backend.
  std::string_view name() const override { return name_; }
  /// Of this rank alone.
  std::size_t index_bytes() const override { return local() == nullptr ? 0 : local()->index_bytes(); }
  bool certifies() const override { return certifies_; }
  bool collective() const override { return true; }

  /// This rank's backend, whose ids are the numbers of the slice's rows; null where it has none. layer() is
  /// then a row of zeros, which is never asked.
  const TopKSoftmax* local() const { return own_.backend(); }
  /// What each rank has.
  std::span<const VocabularySlice> slices() const { return slices_; }
  /// What this rank has.
  const VocabularySlice& slice() const { return own_.slice(); }
  /// This process's rank in the communicator.
  std::size_t rank() const { return static_cast<std::size_t>(exchange_->ranks().rank()); }
  /// Number of ranks.
  std::size_t ranks() const { return slices_.size(); }

  /// What this rank has done together with the others.
  const CollectiveWork& collective_work() const { return exchange_->ranks().work(); }
  /// Sets that to nothing.
  void forget_collective_work() { exchange_->ranks().forget_work(); }

  /// A hash of the whole layer, for index files. Collective. Cost: reads the slice when it is first asked
  /// for.
  std::uint64_t layer_hash() const;

  /// Does a step on every rank, which may throw: if it does on any, it does on all. Collective.
  template <class Step>
  void agree(const Step& step) const {
    detail::agree(exchange_->ranks(), step);
  }

  /// The kind of its indexes, one for each rank that has rows: see sharded_index.hpp. They have the options
  /// vocab, first, last and layer_hash, of the whole layer, and the backend's index as the part "wrapped".
  static constexpr std::string_view kind = "sharded";

 private:
  ShardedSoftmax(SoftmaxLayer part, std::shared_ptr<const TopKSoftmax> backend, const VocabularySlice& slice,
                 std::unique_ptr<detail::Exchange> exchange, std::span<const detail::Greeting> greetings);

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    do_query_batch(QueryBatch(query), workspace, &answer);
  }
  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    if (!batch.same_options()) return answer_one_by_one(batch, workspace, answers);
    answer(batch, counts_all(batch[0]), workspace, answers);
  }
  void do_query_allowed(const QueryBatch& batch, std::size_t /*allowed*/, Workspace& workspace,
                        TopK* answers) const override {
    answer(batch, true, workspace, answers);
  }
  void do_logits_batch(const QueryBatch& batch, Workspace& workspace, float* logits) const override;
  void do_logits_of(const float* h, std::span<const TokenId> rows, const Workspace& workspace,
                    std::span<float> logits) const override;
  void do_refuse() const override { exchange_->refuse(); }
  void do_save(IndexWriter& out) const override;

  bool counts_all(const Query& query) const;
  void answer(const QueryBatch& batch, bool from_all, Workspace& workspace, TopK* answers) const;
  bool shares_threshold(const QueryBatch& batch, bool from_all) const {
    return share_thresholds_ && ranks() > 1 && batch.size() == 1 && !from_all && !batch[0].probabilities;
  }
  void find_above(const Query& query, const detail::Call& asked, std::size_t bytes,
                  Workspace& workspace) const;
  float highest_of_all(float threshold, const detail::Call& asked, std::size_t bytes) const;
  std::size_t owner(TokenId row) const;

  mutable detail::OwnSlice own_;
  std::unique_ptr<detail::Exchange> exchange_;
  mutable ScratchBuffer best_;  ///< the tokens of an answer
  mutable ScratchBuffer read_;  ///< how many logits of each rank
  mutable std::optional<std::uint64_t> layer_hash_;
  std::vector<VocabularySlice> slices_;
  std::size_t largest_slice_ = 0;
  bool certifies_;
  bool exhaustive_;
  bool share_thresholds_;  ///< every rank that has rows has a Certified over them
  std::string name_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// An interval of log Z that is asked to be narrower than this is an exact one.
inline double narrowest_interval() {
  return 2.0 * std::log1p(kernels::kSumExpError);
}

/// Throws Error unless it is a backend for a slice.
inline void check_backend(const TopKSoftmax* backend, const VocabularySlice& slice) {
  if (backend == nullptr) throw Error("sharded: there is no backend for the rows of this rank");
  if (backend->collective() || backend->row_map() != nullptr) {
    throw Error("sharded: the ids of " + std::string(backend->name()) +
                " are not the numbers of its layer's rows; take the backend that it is made of");
  }
  if (backend->layer().vocab() == slice.size()) return;
  throw Error("sharded: the backend has " + std::to_string(backend->layer().vocab()) + " rows, the slice " +
              std::to_string(slice.size()));
}

// Of the file: what is saved of the slice, and the index of its backend.
inline constexpr std::string_view kShardVocab = "vocab";
inline constexpr std::string_view kShardFirst = "first";
inline constexpr std::string_view kShardLast = "last";
inline constexpr std::string_view kShardLayerHash = "layer_hash";
inline constexpr std::string_view kShardPart = "wrapped";

/// The layer of a rank without rows: never asked.
inline SoftmaxLayer no_rows(std::size_t dim) {
  return SoftmaxLayer::own(RowMajorMatrix::Zero(1, static_cast<Eigen::Index>(dim)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

template <class MakeBackend>
std::unique_ptr<ShardedSoftmax> ShardedSoftmax::make(MPI_Comm comm, const VocabularySlice& slice,
                                                     const MakeBackend& make_backend,
                                                     const ShardedOptions& options) {
  detail::Communicator ranks(comm);
  std::shared_ptr<const TopKSoftmax> backend;
  detail::agree(ranks, [&] {
    if (slice.first > slice.last || slice.last > slice.vocab) {
      throw Error("sharded: there are no rows " + std::to_string(slice.first) + " to " +
                  std::to_string(slice.last) + " of " + std::to_string(slice.vocab));
    }
    if (slice.empty()) return;
    backend = make_backend();
    detail::check_backend(backend.get(), slice);
  });
  const std::vector<detail::Greeting> greetings =
      detail::greet(ranks, detail::greeting_of(slice, backend.get(), options.share_thresholds),
                    {.greeting_bytes = sizeof(detail::Greeting)});
  std::unique_ptr<ShardedSoftmax> head;
  detail::agree(ranks, [&] {
    const std::size_t dim = detail::check_kinds(greetings).dim;
    SoftmaxLayer part = backend == nullptr ? detail::no_rows(dim) : backend->layer();
    auto exchange = std::make_unique<detail::Exchange>(ranks.ranks());
    head.reset(new ShardedSoftmax(std::move(part), backend, slice, std::move(exchange), greetings));
  });
  head->exchange_->connect(std::move(ranks));
  return head;
}

inline ShardedSoftmax::ShardedSoftmax(SoftmaxLayer part, std::shared_ptr<const TopKSoftmax> backend,
                                      const VocabularySlice& slice,
                                      std::unique_ptr<detail::Exchange> exchange,
                                      std::span<const detail::Greeting> greetings)
    : TopKSoftmax(std::move(part), static_cast<std::size_t>(greetings[0].vocab)),
      own_(layer(), std::move(backend), slice, greetings.size()),
      exchange_(std::move(exchange)) {
  const detail::Greeting& with_rows = detail::check_kinds(greetings);
  certifies_ = with_rows.certifies;
  exhaustive_ = with_rows.exhaustive;
  share_thresholds_ = with_rows.shares_thresholds;
  name_ = std::string("sharded:") + with_rows.backend;
  for (const detail::Greeting& greeting : greetings) {
    slices_.push_back(greeting.slice());
    largest_slice_ = std::max(largest_slice_, greeting.slice().size());
  }
}

/// Whether an exact log Z is asked for, which adds up in whole numbers: that of the backends would be
/// rounded.
inline bool ShardedSoftmax::counts_all(const Query& query) const {
  return exhaustive_ ||
         (certifies_ && query.probabilities && query.log_z_tolerance < detail::narrowest_interval());
}

/// The highest of what ranks know that k tokens reach. Takes messages of as many bytes as the answers that
/// follow, so that these meet the room that they need.
inline float ShardedSoftmax::highest_of_all(float threshold, const detail::Call& asked,
                                            std::size_t bytes) const {
  float highest = threshold;
  exchange_->ask(
      asked, bytes, [&](std::byte* to) { std::memcpy(to, &threshold, sizeof(threshold)); },
      [&](const auto& said_by) {
        for (std::size_t r = 0; r < ranks(); ++r) {
          float said;
          std::memcpy(&said, said_by(r), sizeof(said));
          highest = std::max(highest, said);
        }
      });
  return highest;
}

/// What Certified answers for the slice, above the threshold that all slices make.
inline void ShardedSoftmax::find_above(const Query& query, const detail::Call& asked, std::size_t bytes,
                                       Workspace& workspace) const {
  bool told = false;  // the others know that this rank has come so far, or what it threw
  const auto raise = [&](float threshold) {
    told = true;
    const float highest = highest_of_all(threshold, asked, bytes);
    told = false;
    return highest;
  };
  try {
    own_.find_above(query, raise, workspace);
  } catch (...) {
    if (!told) exchange_->refuse();
    throw;
  }
}

inline void ShardedSoftmax::answer(const QueryBatch& batch, bool from_all, Workspace& workspace,
                                   TopK* answers) const {
  const Query query = batch[0];
  const std::size_t apart = detail::PartialAnswer::message_bytes(std::min(query.k, largest_slice_));
  detail::Call call(detail::Call::Kind::query);
  call.add(batch, layer().dim(), rows());
  const bool above = shares_threshold(batch, from_all);
  if (above) find_above(query, call, apart, workspace);
  const auto pack = [&](std::byte* to) {
    for (std::size_t q = 0; q < batch.size(); ++q) {
      answers[q].ids.reserve(query.k);
      answers[q].logits.reserve(query.k);
    }
    best_.get<ScoredToken>(query.k);
    if (from_all) {
      own_.write_exact(batch, workspace, to, apart);
    } else if (above) {
      own_.write_found_above(query, to);
    } else {
      own_.write_found(batch, workspace, to, apart);
    }
  };
  const auto take = [&](const auto& said_by) {
    for (std::size_t q = 0; q < batch.size(); ++q) {
      kernels::TopKHeap heap(best_.get<ScoredToken>(query.k), query.k);
      detail::MergedAnswers merged;
      for (std::size_t r = 0; r < ranks(); ++r) {
        const auto first = static_cast<TokenId>(slices_[r].first);
        merged.add(detail::read_message(said_by(r) + q * apart, [&heap, first](ScoredToken token) {
          token.id += first;
          heap.push(token);
        }));
      }
      store_tokens(heap.sort(), answers[q]);
      if (from_all) {
        merged.store_exact(query.probabilities, answers[q]);
      } else {
        merged.store(query.probabilities, answers[q]);
      }
    }
  };
  exchange_->ask(call, batch.size() * apart, pack, take);
}

inline void ShardedSoftmax::do_logits_batch(const QueryBatch& batch, Workspace& workspace,
                                            float* logits) const {
  detail::Call call(detail::Call::Kind::logits);
  call.add(batch, layer().dim(), rows());
  const auto pack = [&](std::byte* to) { own_.write_logits(batch, workspace, reinterpret_cast<float*>(to)); };
  const auto take = [&](const auto& said_by) {
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::size_t count = slices_[r].size();
      for (std::size_t q = 0; q < batch.size(); ++q) {
        std::memcpy(logits + q * rows() + slices_[r].first, said_by(r) + q * count * sizeof(float),
                    count * sizeof(float));
      }
    }
  };
  exchange_->ask(call, batch.size() * largest_slice_ * sizeof(float), pack, take);
}

/// The rank that has a row.
inline std::size_t ShardedSoftmax::owner(TokenId row) const {
  const auto after =
      std::upper_bound(slices_.begin(), slices_.end(), static_cast<std::size_t>(row),
                       [](std::size_t at, const VocabularySlice& slice) { return at < slice.last; });
  return static_cast<std::size_t>(after - slices_.begin());
}

inline void ShardedSoftmax::do_logits_of(const float* h, std::span<const TokenId> rows,
                                         const Workspace& workspace, std::span<float> logits) const {
  detail::Call call(detail::Call::Kind::logits_of);
  call.add(std::span<const float>(h, layer().dim()));
  call.add(rows);
  // What a rank has comes first in what it says; there is room for all, wherever they are.
  const auto pack = [&](std::byte* to) {
    std::fill_n(read_.get<std::size_t>(ranks()), ranks(), std::size_t{0});
    own_.write_logits_of(h, rows, workspace, reinterpret_cast<float*>(to));
  };
  const auto take = [&](const auto& said_by) {
    auto* const read = read_.get<std::size_t>(ranks());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t r = owner(rows[i]);
      std::memcpy(&logits[i], said_by(r) + read[r]++ * sizeof(float), sizeof(float));
    }
  };
  exchange_->ask(call, rows.size() * sizeof(float), pack, take);
}

inline std::uint64_t ShardedSoftmax::layer_hash() const {
  if (!layer_hash_) {
    const std::uint64_t own = slice().empty() ? 0 : sum_of_row_hashes(layer(), slice().first);
    layer_hash_ = exchange_->ranks().sum(own);
  }
  return *layer_hash_;
}

inline void ShardedSoftmax::do_save(IndexWriter& out) const {
  if (local() == nullptr || !layer_hash_) {
    throw Error(name_ + ": is saved by save_sharded_index(), on all ranks that have rows at once");
  }
  out.kind(kind);
  out.option(detail::kShardVocab, slice().vocab);
  out.option(detail::kShardFirst, slice().first);
  out.option(detail::kShardLast, slice().last);
  out.option(detail::kShardLayerHash, *layer_hash_);
  IndexWriter wrapped = out.part(detail::kShardPart);
  local()->save(wrapped);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
