// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "support/executors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::testing {

/// For steps that take bounds as they are given them, whatever a small layer's own are.
class MadeUpBounds : public ::testing::Test {
 protected:
  /// A query on a crew of so many threads.
  detail::BoundedQuery bounded(std::size_t threads) {
    workspace_.set_crew({&executor_, threads});
    return {layer_, head_->screener().index(), query_, bounds_, workspace_};
  }

  SoftmaxLayer layer_ = random_layer(40, 8, 1);
  Query query_;

 private:
  std::unique_ptr<Certified> head_ = Certified::build(layer_);
  ReversedExecutor executor_{4};
  detail::ContextBounds bounds_;
  Workspace workspace_;
};

}  // namespace topksoftmax::testing
