// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a sequence of a batch draws by.
struct DrawRequest {
  Sampler* sampler = nullptr;      ///< in no other request of the batch
  RandomStream* random = nullptr;  ///< gives one number
  QueryOptions query = {};         ///< as Sampler::draw takes it
};

/// Draws a token after each of some contexts: tokens[i] is what requests[i].sampler alone would draw after
/// contexts.row(i), on however many threads, of which there are as many as workspaces, but no more than the
/// executor has. What draws read of all rows is read once for eight of them, or for 64 where they take the
/// logits of all tokens, wherever in the batch these are. Draws that no others share anything with, as those
/// from the few tokens that a mask allows, have a thread each, or where they are few all threads one by one.
/// Heads that answer together with other processes draw one token after the other.
///
/// Throws std::invalid_argument as Sampler::draw does, naming the context; unless there are as many requests
/// and tokens as contexts; where there is no workspace; and for a request without a sampler or a stream, or
/// with the sampler of another one. Then no stream has given a number, and no token is written.
///
/// Cost: that of the draws, but for what is shared; memory for 64·V logits and a copy of the contexts.
TOPKSOFTMAX_EXPORT inline void draw_each(const TopKSoftmax& head, const Contexts& contexts,
                                         std::span<const DrawRequest> requests,
                                         std::span<SampledToken> tokens, std::span<Workspace> workspaces,
                                         const Executor& executor = default_executor());

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Requests that are drawn together, with their contexts side by side.
class DrawGroup {
 public:
  void add(std::size_t request, std::span<const float> h, const QueryOptions& query, Workspace* own) {
    dim_ = h.size();
    requests_.push_back(request);
    contexts_.insert(contexts_.end(), h.begin(), h.end());
    queries_.push_back(query);
    own_.push_back(own);
  }

  std::size_t size() const { return requests_.size(); }
  /// Where the one that is here at `at` is in the batch.
  std::size_t request(std::size_t at) const { return requests_[at]; }
  Contexts contexts(std::size_t first, std::size_t count) const {
    return {contexts_.data() + first * dim_, count, dim_, dim_};
  }
  std::span<const float> context(std::size_t at) const { return {contexts_.data() + at * dim_, dim_}; }
  std::span<QueryOptions> queries() { return queries_; }
  std::span<const QueryOptions> queries() const { return queries_; }
  /// The samplers' workspaces.
  std::span<Workspace* const> own() const { return own_; }

 private:
  std::size_t dim_ = 0;
  std::vector<std::size_t> requests_;
  std::vector<float> contexts_;
  std::vector<QueryOptions> queries_;
  std::vector<Workspace*> own_;
};

/// A batch of draws.
class DrawBatch {
 public:
  DrawBatch(const TopKSoftmax& head, const Contexts& contexts, std::span<const DrawRequest> requests,
            std::span<SampledToken> tokens, std::span<Workspace> workspaces, const Executor& executor);

  void draw();

 private:
  /// Contexts whose logits there is memory for.
  static constexpr std::size_t kMostScanned = 64;

  void check() const;
  void check_requests() const;
  void draw_alone(const DrawGroup& group);
  void draw_from_bounds(DrawGroup& group);
  void draw_from_logits(DrawGroup& group);
  template <class Draw>
  void draw_on_threads(const DrawGroup& group, std::size_t first, std::size_t count, const Draw& draw);

  std::size_t threads() const { return std::min(workspaces_.size(), executor_.threads()); }
  std::span<const float> context(std::size_t i) const { return {contexts_.row(i), contexts_.dim}; }

  const TopKSoftmax& head_;
  const Contexts& contexts_;
  std::span<const DrawRequest> requests_;
  std::span<SampledToken> tokens_;
  std::span<Workspace> workspaces_;
  const Executor& executor_;
  std::vector<std::uint64_t> seeds_;
};

inline DrawBatch::DrawBatch(const TopKSoftmax& head, const Contexts& contexts,
                            std::span<const DrawRequest> requests, std::span<SampledToken> tokens,
                            std::span<Workspace> workspaces, const Executor& executor)
    : head_(head),
      contexts_(contexts),
      requests_(requests),
      tokens_(tokens),
      workspaces_(workspaces),
      executor_(executor) {
  check();
  for (const DrawRequest& request : requests) seeds_.push_back(request.random->bits());
}

/// All that can be seen before anything is read.
inline void DrawBatch::check() const {
  check_workspaces("draw_each", workspaces_);
  check_as_many("draw_each", contexts_.count, requests_.size(), "requests");
  check_as_many("draw_each", contexts_.count, tokens_.size(), "tokens");
  check_requests();
  std::vector<const Sampler*> samplers;
  for (const DrawRequest& request : requests_) samplers.push_back(request.sampler);
  std::ranges::sort(samplers, std::less<>());
  if (std::ranges::adjacent_find(samplers) != samplers.end())
    throw std::invalid_argument("draw_each: two requests have the same sampler");
}

inline void DrawBatch::check_requests() const {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const DrawRequest& request = requests_[i];
    naming_context("draw_each", i, [&] {
      if (request.sampler == nullptr) throw std::invalid_argument("there is no sampler");
      if (request.random == nullptr) throw std::invalid_argument("there is no stream of random numbers");
      check_limits(request.query);
      head_.logits_of(context(i), {}, request.query, workspaces_[0], {});  // of no token: it checks the rest
      if (head_.count_allowed(request.query.allowed) == 0)
        throw std::invalid_argument("sampling: no token is allowed");
    });
  }
}

inline void DrawBatch::draw() {
  if (head_.collective()) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      naming_context("draw_each", i, [&] {
        tokens_[i] = requests_[i].sampler->draw_seeded(head_, context(i), seeds_[i], requests_[i].query);
      });
    }
    return;
  }
  DrawGroup alone;
  DrawGroup bounded;
  DrawGroup scanned;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Sampler& sampler = *requests_[i].sampler;
    const QueryOptions& query = requests_[i].query;
    DrawGroup* group = &bounded;
    if (sampler.takes_all_logits(head_, TokenGumbels(seeds_[i]), query))
      group = allows_few(head_, query.allowed, gathered_allowed(head_.rows())) ? &alone : &scanned;
    group->add(i, context(i), query, &sampler.workspace_);
  }
  draw_alone(alone);
  draw_from_bounds(bounded);
  draw_from_logits(scanned);
}

/// Calls draw(at, request, seed) for some of a group, each on one thread.
template <class Draw>
void DrawBatch::draw_on_threads(const DrawGroup& group, std::size_t first, std::size_t count,
                                const Draw& draw) {
  for_each_part_on(executor_, threads(), count, 1, [&](std::size_t part, std::size_t, std::size_t) {
    const std::size_t at = first + part;
    const std::size_t i = group.request(at);
    naming_context("draw_each", i, [&] { tokens_[i] = draw(at, *requests_[i].sampler, seeds_[i]); });
  });
}

/// Draws as each sampler does: on a thread each, or one by one on all threads where most would have nothing
/// to do.
inline void DrawBatch::draw_alone(const DrawGroup& group) {
  const auto draw = [&](std::size_t at, Sampler& sampler, std::uint64_t seed) {
    return sampler.draw_seeded(head_, group.context(at), seed, group.queries()[at]);
  };
  if (2 * group.size() > threads()) return draw_on_threads(group, 0, group.size(), draw);
  for (std::size_t at = 0; at < group.size(); ++at) {
    const LentCrew crew(*group.own()[at], {&executor_, threads()});
    draw_on_threads(group, at, 1, draw);
  }
}

/// Draws that begin with what bounds tell.
inline void DrawBatch::draw_from_bounds(DrawGroup& group) {
  if (group.size() > 1) {
    head_.bound_each(group.contexts(0, group.size()), group.queries(), group.own(), workspaces_, executor_);
    for (QueryOptions& query : group.queries()) query.same_context = true;
  }
  draw_alone(group);
}

/// Draws that take the logits of all tokens in any case.
inline void DrawBatch::draw_from_logits(DrawGroup& group) {
  const std::size_t vocab = head_.vocab();
  for (std::size_t first = 0; first < group.size(); first += kMostScanned) {
    const std::size_t count = std::min(kMostScanned, group.size() - first);
    const std::span<const float> logits = head_.logits_each(
        group.contexts(first, count), group.queries().subspan(first, count), workspaces_, executor_);
    draw_on_threads(group, first, count, [&](std::size_t at, Sampler& sampler, std::uint64_t seed) {
      return sampler.draw_scanned(logits.subspan((at - first) * vocab, vocab), TokenGumbels(seed));
    });
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline void draw_each(const TopKSoftmax& head, const Contexts& contexts,
                      std::span<const DrawRequest> requests, std::span<SampledToken> tokens,
                      std::span<Workspace> workspaces, const Executor& executor) {
  detail::DrawBatch(head, contexts, requests, tokens, workspaces, executor).draw();
}

}  // namespace TOPKSOFTMAX_NAMESPACE
