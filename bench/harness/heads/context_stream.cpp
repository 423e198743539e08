// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/context_stream.hpp"

#include <algorithm>
#include <cstdio>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "harness/files/first_bytes.hpp"
#include "harness/files/folder.hpp"
#include "harness/files/numpy_file.hpp"
#include "harness/files/open_file.hpp"
#include "harness/heads/contexts_file.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::string_view kBetweenNumbers = " \t\r,;[]()";

/// Whether a file holds arrays, and not text: a safetensors file begins with its header's length and "{".
bool holds_arrays(const std::filesystem::path& path) {
  constexpr std::size_t kLength = 8;
  const std::string begin = first_bytes(path, kLength + 1);
  return NumpyFile::recognises(path) || (begin.size() > kLength && begin[kLength] == '{');
}

}  // namespace

ContextStream::ContextStream(const std::filesystem::path& path, std::istream& standard_input,
                             const SoftmaxLayer& layer)
    : name_(path == "-" ? "standard input" : path.string()), layer_(layer), must_hold_some_(path != "-") {
  if (path == "-") {
    take(standard_input);
  } else if (is_folder(path)) {
    throw Error(name_ + ": is a folder; contexts are read from .npy, .npz, .safetensors or text");
  } else if (holds_arrays(path)) {
    array_ = load_all_contexts(path, layer);
  } else {
    file_ = open_file(path);
    take(file_);
  }
}

void ContextStream::take(std::istream& stream) {
  if (NumpyFile::begins(stream.peek())) {
    array_ = contexts_of(NumpyFile::read(stream, name_), layer_);
  } else {
    text_ = &stream;
  }
}

bool ContextStream::read_line(float* out) {
  std::string line;
  std::size_t begin = std::string::npos;
  while (begin == std::string::npos || line[begin] == '#') {
    if (!std::getline(*text_, line)) {
      // Of standard input, the stream of C alone knows that reading failed.
      const bool failed = text_->bad() || (text_ != &file_ && std::ferror(stdin) != 0);
      if (failed) throw Error(name_ + ": cannot be read");
      return false;
    }
    ++line_;
    begin = line.find_first_not_of(kBetweenNumbers);
  }
  std::size_t count = 0;
  while (begin != std::string::npos) {
    const std::size_t end = std::min(line.find_first_of(kBetweenNumbers, begin), line.size());
    const std::string_view text = std::string_view(line).substr(begin, end - begin);
    // As other programs write them: what a float has no room for becomes 0 or ∞.
    const std::optional<double> value = detail::number_of<double>(text);
    if (!value) {
      throw Error(name_ + ", line " + std::to_string(line_) + ": " + detail::in_quotes(text) +
                  " is not a number within float64's range");
    }
    if (count < layer_.dim()) out[count] = static_cast<float>(*value);
    ++count;
    begin = line.find_first_not_of(kBetweenNumbers, end);
  }
  if (count != layer_.dim()) {
    throw Error(name_ + ", line " + std::to_string(line_) + ": has " + std::to_string(count) + " numbers; " +
                detail::other_dimension(count, layer_));
  }
  return true;
}

RowMajorMatrix ContextStream::read_next(Eigen::Index most) {
  if (text_ == nullptr) return array_.middleRows(taken_, std::min(most, array_.rows() - taken_));
  RowMajorMatrix contexts(most, static_cast<Eigen::Index>(layer_.dim()));
  Eigen::Index count = 0;
  while (count < contexts.rows() && read_line(contexts.row(count).data())) ++count;
  return contexts.topRows(count);
}

RowMajorMatrix ContextStream::next(std::size_t most) {
  RowMajorMatrix contexts = read_next(static_cast<Eigen::Index>(most));
  taken_ += contexts.rows();
  if (taken_ == 0 && must_hold_some_) throw no_contexts_in(name_);
  return contexts;
}

}  // namespace topksoftmax::bench
