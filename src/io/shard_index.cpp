// SPDX-License-Identifier: Apache-2.0
#include "io/shard_index.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/json_text.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

using nlohmann::json;

constexpr std::string_view kSubject = "is";
constexpr std::string_view kMapKey = "weight_map";

/// Takes the events of the JSON parser. Of the index only the map is kept; what else there is is passed over,
/// however deep it nests.
class IndexReader : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(const std::filesystem::path& path) : path_(path) {}

  ShardMap shards;

  bool has_map() const { return has_map_; }

  bool start_object(std::size_t) override {
    if (in_map()) return unexpected("an object");
    if (depth_ == 1 && key_ == kMapKey) {
      if (has_map_) throw error("holds the key " + detail::in_quotes(kMapKey) + " twice");
      has_map_ = inside_ = true;
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 1) inside_ = false;
    return true;
  }

  bool start_array(std::size_t) override {
    check_place("an array");
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(std::string& text) override {
    if (in_map() && shards.contains(text))
      throw error("has the tensor " + detail::in_quotes(text) + " twice");
    if (depth_ <= 2) key_ = text;
    return true;
  }

  bool string(std::string& text) override {
    if (!in_map()) return check_place("a string");
    const auto unusual = [](char c) {
      return c == '/' || c == '\\' || c == '\x7f' || static_cast<unsigned char>(c) < ' ';
    };
    if (text.empty() || text == "." || text == ".." || std::any_of(text.begin(), text.end(), unusual)) {
      throw error("has the tensor " + detail::in_quotes(key_) + " in " + detail::in_quotes(text) +
                  ", which is not the name of a file in its folder");
    }
    shards.emplace(key_, text);
    return true;
  }

  bool number_integer(std::int64_t) override { return check_place("a number"); }
  bool number_unsigned(std::uint64_t) override { return check_place("a number"); }
  bool number_float(double, const std::string&) override { return check_place("a number"); }
  bool boolean(bool) override { return check_place("a truth value"); }
  bool null() override { return check_place("null"); }
  bool binary(json::binary_t&) override { return check_place("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    throw json_error(path_, kSubject, position, exception.what());
  }

 private:
  bool in_map() const { return inside_ && depth_ == 2; }

  Error error(const std::string& what) const { return Error(path_.string() + ": the index " + what); }

  bool unexpected(const std::string& what) const {
    throw error("holds " + what + " at " + detail::in_quotes(key_) + " of " + std::string(kMapKey) +
                ", expected the name of a file");
  }

  /// Passes over a value, unless something else must stand at its place.
  bool check_place(const std::string& what) const {
    if (depth_ == 0) throw error("is " + what + ", expected an object");
    if (in_map()) return unexpected(what);
    if (depth_ == 1 && key_ == kMapKey) {
      throw error("holds " + what + " at " + detail::in_quotes(kMapKey) + ", expected an object");
    }
    return true;
  }

  const std::filesystem::path& path_;
  std::size_t depth_ = 0;
  bool inside_ = false;
  bool has_map_ = false;
  std::string key_;
};

}  // namespace

ShardMap parse_shard_index(std::string_view text, const std::filesystem::path& path) {
  check_no_zero_byte(text, path, kSubject);
  IndexReader reader(path);
  json::sax_parse(text, &reader);
  if (!reader.has_map()) {
    throw Error(path.string() + ": the index has no " + std::string(kMapKey) +
                "; is this a model.safetensors.index.json?");
  }
  return std::move(reader.shards);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
