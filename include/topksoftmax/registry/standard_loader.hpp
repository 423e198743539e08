// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/adaptive/adaptive_softmax.hpp"
#include "topksoftmax/baselines/greedy_mips.hpp"
#include "topksoftmax/baselines/lsh_mips.hpp"
#include "topksoftmax/baselines/pca_mips.hpp"
#include "topksoftmax/baselines/wta_lsh_each.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fgd/fgd.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/quantized/quantized.hpp"
#include "topksoftmax/registry/joined.hpp"
#include "topksoftmax/registry/unknown_kind.hpp"
#include "topksoftmax/row_clusters/row_clusters.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Loads indexes of backends of these classes.
template <class... Backends>
class LoaderOf final : public BackendLoader {
 public:
  std::unique_ptr<TopKSoftmax> load(const IndexReader& in) const override {
    std::unique_ptr<TopKSoftmax> loaded;
    const auto found = [&]<class Backend>() {
      if (in.kind() != Backend::kind) return false;
      loaded = load_usual<Backend>(in);
      return true;
    };
    if ((found.template operator()<Backends>() || ...)) return loaded;
    throw detail::unknown_kind(in, detail::joined(kinds()));
  }

  /// The kinds of indexes that it loads.
  static std::vector<std::string_view> kinds() { return {Backends::kind...}; }
};

/// Loads indexes of every backend of the library.
using StandardLoader =
    LoaderOf<Exact, Fused, L2S, Fgd, SvdSoftmax, RowClusters, AdaptiveSoftmax, GreedyMips, PcaMips, LshMips,
             WtaLsh, WtaLshEach, Shortlist, Quantized, Certified, Certify, MappedVocabulary>;

inline const BackendLoader& standard_loader() {
  static constexpr StandardLoader loader;
  return loader;
}

/// load_index() with the standard loader.
inline std::unique_ptr<TopKSoftmax> load_index(const std::filesystem::path& path, SoftmaxLayer layer,
                                               const LoadOptions& options = {}) {
  return load_index(path, std::move(layer), standard_loader(), options);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
