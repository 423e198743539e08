// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/model_config.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_bytes.hpp"
#include "io/json_text.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

using nlohmann::json;

constexpr std::string_view kSubject = "is";
constexpr const char* kTextKey = "text_config";
constexpr const char* kDecoderKey = "decoder";  ///< what T5Gemma has in its place

/// A number that Python writes, and JSON does not have.
struct PythonNumber {
  std::string_view word;
  std::string_view stand_in;  ///< no writer of JSON spells zero like this
  double value;
};
constexpr std::array<PythonNumber, 3> kPythonNumbers = {
    {{"Infinity", "0e1", std::numeric_limits<double>::infinity()},
     {"-Infinity", "0e2", -std::numeric_limits<double>::infinity()},
     {"NaN", "0e0", std::numeric_limits<double>::quiet_NaN()}}};

/// Each of kPythonNumbers becomes its stand-in, filled up with spaces, so that what follows stays where it
/// is.
std::string without_words_of_python(std::string text) {
  constexpr std::string_view kBetween = " \t\n\r:,[]{}\"";
  bool in_string = false;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '"') in_string = !in_string;
    if (in_string) {
      at += text[at] == '\\' ? 2U : 1U;  // what is escaped may be a quote
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const auto* const found = std::ranges::find(kPythonNumbers, word, &PythonNumber::word);
    if (found != kPythonNumbers.end()) {
      std::string number(found->stand_in);
      number.resize(word.size(), ' ');
      text.replace(at, number.size(), number);
    }
    at = std::max(end, at + 1);
  }
  return text;
}

/// Takes the events of the JSON parser. Kept are the values of the file itself and of its text_config; of
/// objects and arrays among these no more than which they are, so that what is kept never nests deeper.
class ConfigReader : public nlohmann::json_sax<json> {
 public:
  explicit ConfigReader(const std::filesystem::path& path) : path_(path) {}

  json config = json::object();

  bool start_object(std::size_t) override { return depth_ == 0 ? enter() : keep(json::object()) && enter(); }
  bool start_array(std::size_t) override { return keep(json::array()) && enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(std::string& text) override {
    if (depth_ == 1) in_text_ = text == kTextKey || text == kDecoderKey;
    if (depth_ <= 2) key_ = depth_ == 1 && in_text_ ? std::string(kTextKey) : text;
    return true;
  }

  bool string(std::string& text) override { return keep(text); }
  bool number_integer(std::int64_t value) override { return keep(value); }
  bool number_unsigned(std::uint64_t value) override { return keep(value); }
  bool number_float(double value, const std::string& text) override {
    const auto* const found = std::ranges::find(kPythonNumbers, text, &PythonNumber::stand_in);
    return keep(found == kPythonNumbers.end() ? value : found->value);
  }
  bool boolean(bool value) override { return keep(value); }
  bool null() override { return keep(nullptr); }
  bool binary(json::binary_t&) override { return keep(nullptr); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    throw json_error(path_, kSubject, position, exception.what());
  }

 private:
  bool keep(json value) {
    if (depth_ == 0) throw Error(path_.string() + ": is not a JSON object");
    if (depth_ == 1) {
      config[key_] = std::move(value);
    } else if (depth_ == 2 && in_text_ && config[kTextKey].is_object()) {
      config[kTextKey][key_] = std::move(value);
    }
    return true;
  }

  bool enter() {
    ++depth_;
    return true;
  }

  bool leave() {
    --depth_;
    return true;
  }

  const std::filesystem::path& path_;
  std::size_t depth_ = 0;
  bool in_text_ = false;
  std::string key_;
};

json parse(const std::filesystem::path& path) {
  std::string text = read_text(path, ModelConfig::max_bytes, "a config.json");
  check_no_zero_byte(text, path, kSubject);
  ConfigReader reader(path);
  json::sax_parse(without_words_of_python(std::move(text)), &reader);
  return std::move(reader.config);
}

/// A config.json, and what it says of the text where a model has more.
class Config {
 public:
  explicit Config(const std::filesystem::path& path) : path_(path), all_(parse(path)) {}

  std::optional<float> number(const char* key) const {
    const json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) throw unexpected(key, *value, "a number");
    return value->get<float>();
  }

  /// Nothing also where the file says another thing of the text than of the model.
  std::optional<bool> truth(const char* key) const {
    std::optional<bool> found;
    for (const json* const value : values(key)) {
      if (!value->is_boolean()) throw unexpected(key, *value, "true or false");
      if (found && *found != value->get<bool>()) return std::nullopt;
      found = value->get<bool>();
    }
    return found;
  }

  /// Empty where there is none.
  std::string text(const char* key) const {
    const json* const value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) throw unexpected(key, *value, "a text");
    return value->get<std::string>();
  }

 private:
  /// The values of a key, that of the text last, without those that are null.
  std::vector<const json*> values(const char* key) const {
    std::vector<const json*> found;
    const auto look_in = [&](const json& object) {
      const auto value = object.find(key);
      if (value != object.end() && !value->is_null()) found.push_back(&*value);
    };
    look_in(all_);
    const auto text = all_.find(kTextKey);
    if (text != all_.end() && text->is_object()) look_in(*text);
    return found;
  }

  /// The first of these; nothing where there is none.
  const json* find(const char* key) const {
    const std::vector<const json*> found = values(key);
    return found.empty() ? nullptr : found.front();
  }

  Error unexpected(const char* key, const json& value, const char* expected) const {
    const std::string found =
        value.is_array()    ? "an array"
        : value.is_object() ? "an object"
                            : detail::in_quotes(value.dump(-1, ' ', true, json::error_handler_t::replace));
    return Error(path_.string() + ": " + detail::in_quotes(key) + " is " + found + ", expected " + expected);
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
  for (const char* const factor :
       {"logit_scale", "lm_head_multiplier", "output_multiplier_scale", "output_multiplier"}) {
    transform.scale *= config.number(factor).value_or(1.0F);
  }
  const std::string type = config.text("model_type");
  const float scaling = config.number("logits_scaling").value_or(1.0F);
  const bool multiplies = type.starts_with("hyperclovax");
  transform.scale = multiplies ? transform.scale * scaling : transform.scale / scaling;
  if (type == "phi3small") transform.scale /= config.number("mup_width_multiplier").value_or(1.0F);
  for (const char* const cap : {"final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"}) {
    const std::optional<float> given = config.number(cap);
    if (!given) continue;
    transform.soft_cap = *given;
    break;
  }
  detail::check_transform(transform, path.string() + ": ");
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
