// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_key.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

struct IndexWriter::Collected {
  TensorMetadata metadata;
  std::vector<TensorView> tensors;
  std::vector<std::shared_ptr<const void>> owners;
};

TOPKSOFTMAX_INLINE IndexWriter::IndexWriter() : collected_(std::make_shared<Collected>()) {}

TOPKSOFTMAX_INLINE const TensorMetadata& IndexWriter::metadata() const {
  return collected_->metadata;
}

TOPKSOFTMAX_INLINE const std::vector<TensorView>& IndexWriter::tensors() const {
  return collected_->tensors;
}

TOPKSOFTMAX_INLINE void IndexWriter::kind(std::string_view kind) {
  set(index_key::kind, std::string(kind));
}

TOPKSOFTMAX_INLINE void IndexWriter::effort(std::size_t effort) {
  set(index_key::effort, detail::number_text(std::uint64_t{effort}));
}

TOPKSOFTMAX_INLINE void IndexWriter::option(std::string_view name, std::string value) {
  set(index_key::options + std::string(name), std::move(value));
}

TOPKSOFTMAX_INLINE IndexWriter IndexWriter::part(std::string_view name) const {
  if (depth_ == index_key::most_parts) {
    throw Error("index file: more than " + std::to_string(index_key::most_parts) +
                " indexes are within each other");
  }
  IndexWriter inner = *this;
  inner.prefix_ += std::string(name) + ".";
  ++inner.depth_;
  return inner;
}

TOPKSOFTMAX_INLINE void IndexWriter::number(std::string_view name, double value) {
  option(name, detail::number_text(value));
}

TOPKSOFTMAX_INLINE void IndexWriter::number(std::string_view name, float value) {
  option(name, detail::number_text(value));
}

TOPKSOFTMAX_INLINE void IndexWriter::number(std::string_view name, std::int64_t value) {
  option(name, detail::number_text(value));
}

TOPKSOFTMAX_INLINE void IndexWriter::number(std::string_view name, std::uint64_t value) {
  option(name, detail::number_text(value));
}

TOPKSOFTMAX_INLINE void IndexWriter::add(std::string_view name, DataType type,
                                         std::span<const std::size_t> shape, std::span<const std::byte> bytes,
                                         const std::shared_ptr<const void>& owner) {
  collected_->tensors.push_back({prefix_ + std::string(name), type, {shape.begin(), shape.end()}, bytes});
  collected_->owners.push_back(owner);
}

TOPKSOFTMAX_INLINE void IndexWriter::set(const std::string& key, std::string value) {
  collected_->metadata[prefix_ + key] = std::move(value);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
