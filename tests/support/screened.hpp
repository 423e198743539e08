// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <set>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::testing {

/// The candidates of a backend's screener for the context h, in its order: each once, and not everything.
template <class Head>
std::vector<TokenId> screened(const Head& head, const Eigen::VectorXf& h, Query query, Workspace& workspace) {
  query.h = h.data();
  const Candidates found = head.screener().screen(query, workspace);
  EXPECT_FALSE(found.everything);
  std::vector<TokenId> ids(found.ids.begin(), found.ids.end());
  EXPECT_EQ(std::set<TokenId>(ids.begin(), ids.end()).size(), ids.size()) << "each token once";
  return ids;
}

/// The same in a workspace that has served nothing else.
template <class Head>
std::vector<TokenId> screened(const Head& head, const Eigen::VectorXf& h, const Query& query) {
  Workspace workspace;
  return screened(head, h, query, workspace);
}

}  // namespace topksoftmax::testing
