// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/wta/wta_index.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE void check_threshold(std::size_t threshold, std::size_t bands) {
  if (threshold < 1 || threshold > bands) {
    throw Error("wta-lsh: threshold is " + std::to_string(threshold) + "; it must be between 1 and the " +
                std::to_string(bands) + " bands");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE WtaLshScreener::WtaLshScreener(const IndexReader& in)
    : index_(std::make_shared<const detail::WtaIndex>(in)) {
  in.option("threshold", threshold_);
  in.option("top_frequent", top_frequent_);
  in.check([&] { detail::check_threshold(threshold_, index_->bands()); });
  constexpr std::string_view name = "frequent";
  frequent_ = in.array<std::uint64_t>(name, {index_->mark_words()});
  const std::size_t in_last = in.vocab() % 64;
  if (in_last != 0 && frequent_[frequent_.size() - 1] >> in_last != 0) {
    throw in.damaged(name, "has tokens of V = " + std::to_string(in.vocab()) + " or more");
  }
}

TOPKSOFTMAX_INLINE void WtaLshScreener::save(IndexWriter& out) const {
  out.kind(WtaLsh::kind);
  out.option("threshold", threshold_);
  out.option("top_frequent", top_frequent_);
  index_->save(out);
  out.array("frequent", {frequent_.size()}, frequent_);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
