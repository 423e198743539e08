// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/training/l2s_training.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// The screening model of L2S: z(h) = argmax_t v_t·h, then the tokens of C(z(h)) (Eq. 2).
///
/// Cost of a query: reads (r + |C(z)|)·d weights. Effort: the number of clusters visited, the best v_t·h
/// first, their sets united; by default 1; r or more exhausts the method and scans the whole vocabulary. A
/// cluster whose set is too small for k (one that no training context fell into, say) answers from the whole
/// vocabulary.
class TOPKSOFTMAX_EXPORT L2SScreener {
 public:
  /// `options` are those that the model was learned with.
  L2SScreener(L2SModel model, L2SOptions options, std::size_t vocab, std::size_t dim, std::string name);

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return name_; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

  const L2SModel& model() const { return model_; }

 private:
  kernels::Rows clusters() const;

  L2SModel model_;
  L2SOptions options_;
  std::size_t vocab_;
  std::size_t dim_;
  std::string name_;
};

/// L2S, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks" (Chen et al.,
/// ICLR 2019): clusters of contexts and a candidate set for each, learned together from contexts that the
/// model produced.
class TOPKSOFTMAX_EXPORT L2S final : public ScreenedSoftmax<L2SScreener> {
 public:
  /// Learns from contexts [N×d], labelled with their exact top tokens. Cost: N·V·d multiply-adds for the
  /// labels, and train_l2s. Throws Error for contexts of another dimension or that are not finite, and for
  /// unusable options.
  static std::unique_ptr<L2S> train(SoftmaxLayer layer, const ConstRows& contexts,
                                    const L2SOptions& options = {}) {
    return train(std::move(layer), Contexts::of(contexts), options, "l2s");
  }

  /// The same from k-means alone: the paper's Table 5 compares with it.
  static std::unique_ptr<L2S> train_kmeans(SoftmaxLayer layer, const ConstRows& contexts,
                                           L2SOptions options = {}) {
    options.rounds = 0;
    return train(std::move(layer), Contexts::of(contexts), options, "l2s-kmeans");
  }

  /// The same for contexts in plain memory; `name` is what the backend goes by.
  static std::unique_ptr<L2S> train(SoftmaxLayer layer, const Contexts& contexts, const L2SOptions& options,
                                    std::string_view name);

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<L2S> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open. The model is copied: it is small.
  static std::unique_ptr<L2S> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
