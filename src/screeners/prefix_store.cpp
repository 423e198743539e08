// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_store.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "round_outwards.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kRows = kernels::PrefixBlocks::kRows;
/// Where a block's scales, radii and coordinates begin.
constexpr std::size_t kScales = kRows * sizeof(float);
constexpr std::size_t kRadii = kScales + kRows * sizeof(std::uint16_t);
constexpr std::size_t kCoordinates = kernels::PrefixBlocks::kHeader;
/// The bias of rows that fill up the last block.
constexpr float kNever = -std::numeric_limits<float>::infinity();

template <class T>
T value_at(const std::byte* begin, std::size_t i) {
  T value;
  std::memcpy(&value, begin + i * sizeof(value), sizeof(value));
  return value;
}

template <class T>
void put_at(std::byte* begin, std::size_t i, T value) {
  std::memcpy(begin + i * sizeof(value), &value, sizeof(value));
}

/// Where a row's coordinate lies in its block.
std::size_t offset_of(std::size_t row, std::size_t j) {
  return kCoordinates + j / 4 * 64 + row % kRows * 4 + j % 4;
}

}  // namespace

PrefixStore::PrefixStore(const IndexReader& in, std::string_view name, std::size_t rows, std::size_t width) {
  blocks_.rows = rows;
  blocks_.width = width;
  bytes_ = in.array<std::byte>(name, {blocks_.blocks(), blocks_.block_bytes()}, DataType::uint8);
  blocks_.data = bytes_.data();
  for (std::size_t row = 0; row < blocks_.blocks() * kRows; ++row) {
    const bool known = row < rows ? bias(row) <= std::numeric_limits<float>::max() : bias(row) == kNever;
    if (known && scale(row) >= 0.0 && radius(row) >= 0.0) continue;
    throw in.damaged(name, "has a bias, scale or radius that cannot be in row " + std::to_string(row));
  }
}

void PrefixStore::save(IndexWriter& out, std::string_view name) const {
  out.array(name, {blocks_.blocks(), blocks_.block_bytes()}, bytes_, DataType::uint8);
}

void PrefixStore::check_biases(const IndexReader& in, std::string_view name, const RowOrder& order) const {
  const float* const biases = in.layer().rows().bias;
  for (std::size_t row = 0; row < blocks_.rows; ++row) {
    const float own = biases == nullptr ? 0.0F : biases[order.token(row)];
    if (bias(row) != own) {
      throw in.damaged(name, "has another bias than the layer in row " + std::to_string(row));
    }
  }
}

float PrefixStore::bias(std::size_t row) const {
  return value_at<float>(block_of(row), row % kRows);
}

double PrefixStore::scale(std::size_t row) const {
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + kScales, row % kRows));
}

double PrefixStore::radius(std::size_t row) const {
  return bfloat16_value(value_at<std::uint16_t>(block_of(row) + kRadii, row % kRows));
}

int PrefixStore::coordinate(std::size_t row, std::size_t j) const {
  return std::to_integer<int>(block_of(row)[offset_of(row, j)]) - 128;
}

PrefixWriter::PrefixWriter(std::size_t rows, std::size_t width) {
  blocks_.rows = rows;
  blocks_.width = width;
  storage_ = aligned_zeros(blocks_.bytes());
  blocks_.data = storage_.get();
  for (std::size_t row = rows; row < blocks_.blocks() * kRows; ++row) {
    put_at(block_of(row), row % kRows, kNever);
  }
}

double PrefixWriter::put(std::size_t row, float bias, std::span<const double> x, std::int8_t* q) {
  const std::uint16_t scale = bfloat16_up(largest_magnitude(x) / 127.0);
  round_to_bytes(x, bfloat16_value(scale), q);
  put_header(row, bias, scale);
  for (std::size_t j = 0; j < x.size(); ++j) put_coordinate(row, j, q[j]);
  return bfloat16_value(scale);
}

void PrefixWriter::put_up(std::size_t row, std::span<const double> x) {
  const std::uint16_t scale = bfloat16_up(largest_magnitude(x) / 126.0);  // the quotients may be rounded up
  const double step = bfloat16_value(scale);
  put_header(row, 0.0F, scale);
  for (std::size_t j = 0; j < x.size(); ++j) {
    put_coordinate(row, j, step > 0.0 && std::isfinite(step) ? static_cast<int>(std::ceil(x[j] / step)) : 0);
  }
}

void PrefixWriter::put_radius(std::size_t row, double radius) {
  put_at(block_of(row) + kRadii, row % kRows, bfloat16_up(radius));
}

void PrefixWriter::put_header(std::size_t row, float bias, std::uint16_t scale) {
  put_at(block_of(row), row % kRows, bias);
  put_at(block_of(row) + kScales, row % kRows, scale);
}

void PrefixWriter::put_coordinate(std::size_t row, std::size_t j, int q) {
  block_of(row)[offset_of(row, j)] = static_cast<std::byte>(q + 128);
}

PrefixStore PrefixWriter::finish() && {
  const std::shared_ptr<const std::byte> owner = std::move(storage_);
  return {{{owner.get(), blocks_.bytes()}, owner}, blocks_.rows, blocks_.width};
}

}  // namespace topksoftmax
