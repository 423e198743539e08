// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/model_config.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "io/file_bytes.hpp"
#include "io/json_text.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

using nlohmann::json;

constexpr std::string_view kSubject = "is";

json parse(const std::filesystem::path& path) {
  const FileBytes file = read_file(path);
  const std::span<const std::byte> bytes = file.bytes;
  if (bytes.size() > ModelConfig::max_bytes) {
    throw Error(path.string() + ": has " + std::to_string(bytes.size()) +
                " bytes, the limit for a config.json is " + std::to_string(ModelConfig::max_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_no_zero_byte(text, path, kSubject);
  try {
    json config = json::parse(text);
    if (!config.is_object()) throw Error(path.string() + ": is not a JSON object");
    return config;
  } catch (const json::parse_error& error) {
    throw json_error(path, kSubject, error.byte, error.what());
  }
}

/// A config.json, and what it says of the text where a model has more.
class Config {
 public:
  explicit Config(const std::filesystem::path& path) : path_(path), all_(parse(path)) {}

  float number(const char* key, float otherwise) const {
    const json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) throw unexpected(key, *value, "a number");
    return value->get<float>();
  }

  std::optional<bool> truth(const char* key) const {
    const json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) throw unexpected(key, *value, "true or false");
    return value->get<bool>();
  }

  /// Empty where there is none.
  std::string text(const char* key) const {
    const json* const value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) throw unexpected(key, *value, "a text");
    return value->get<std::string>();
  }

 private:
  /// The value of a key, of the text where it is not among the others; nothing where it is null too.
  const json* find(const char* key) const {
    const auto in = [key](const json& object) -> const json* {
      const auto found = object.find(key);
      return found == object.end() || found->is_null() ? nullptr : &*found;
    };
    if (const json* const value = in(all_)) return value;
    const auto text = all_.find("text_config");
    return text != all_.end() && text->is_object() ? in(*text) : nullptr;
  }

  Error unexpected(const char* key, const json& value, const char* expected) const {
    return Error(path_.string() + ": " + detail::in_quotes(key) + " is " +
                 detail::in_quotes(value.dump(-1, ' ', true, json::error_handler_t::replace)) +
                 ", expected " + expected);
  }

  const std::filesystem::path& path_;
  json all_;
};

std::string name_in(const Config& config) {
  const std::string name = config.text("_name_or_path");
  const std::size_t end = name.find_last_not_of('/');
  if (end == std::string::npos) return {};
  const std::size_t slash = name.find_last_of('/', end);
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return name.substr(begin, end + 1 - begin);
}

LogitTransform transform_in(const Config& config, const std::filesystem::path& path) {
  LogitTransform transform;
  for (const char* const factor : {"logit_scale", "lm_head_multiplier", "output_multiplier_scale"}) {
    transform.scale *= config.number(factor, 1.0F);
  }
  transform.scale /= config.number("logits_scaling", 1.0F);
  transform.soft_cap = config.number("final_logit_softcapping", 0.0F);
  try {
    detail::check_transform(transform);
  } catch (const Error& error) {
    throw Error(path.string() + ": " + error.what());
  }
  return transform;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
  const Config config(path);
  return {.name = name_in(config),
          .tied = config.truth("tie_word_embeddings"),
          .transform = transform_in(config, path)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
