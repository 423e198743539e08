// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/checkpoint_head.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/index/tensor_view.hpp"

namespace TOPKSOFTMAX_NAMESPACE {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kFile = "model.safetensors";
constexpr std::string_view kPickled = "pytorch_model.bin";

/// Output layers, most usual first.
constexpr std::array<std::string_view, 9> kOutputs = {
    "lm_head.weight",
    "embed_out.weight",
    "output_projection.weight",
    "output_projection",
    "decoder.output_projection.weight",
    "output.weight",
    "language_model.lm_head.weight",
    "model.language_model.lm_head.weight",
    "language_model.output.weight",
};

/// Embeddings that an output layer may be tied to.
constexpr std::array<std::string_view, 16> kEmbeddings = {
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "wte.weight",
    "model.decoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "model.shared.weight",
    "shared.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "embed_tokens.weight",
    "gpt_neox.embed_in.weight",
    "transformer.word_embeddings.weight",
    "word_embeddings.weight",
    "backbone.embeddings.weight",
    "backbone.embedding.weight",
    "model.tok_embeddings.weight",
};

/// Biases of the layer that a model ends in: by its name where it is tied too, or by a name of their own.
constexpr std::array<std::string_view, 3> kBiases = {
    "lm_head.bias",
    "final_logits_bias",
    "output_projection.bias",
};

/// Which tokens the rows of a draft's output layer are.
constexpr std::array<std::string_view, 2> kTokensOfRows = {"d2t", "model.d2t"};

std::string_view first_of(const SafetensorsShards& checkpoint, std::span<const std::string_view> names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](std::string_view name) { return checkpoint.contains(name); });
  return found == names.end() ? std::string_view() : *found;
}

/// The matrices with most rows, for people to choose from.
std::string largest_matrices(const SafetensorsShards& checkpoint) {
  constexpr std::size_t kShown = 3;
  std::vector<const TensorView*> matrices;
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      if (tensor.shape.size() == 2) matrices.push_back(&tensor);
    }
  }
  const auto shown = matrices.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, matrices.size()));
  std::partial_sort(matrices.begin(), shown, matrices.end(), [](const TensorView* a, const TensorView* b) {
    return a->shape[0] != b->shape[0] ? a->shape[0] > b->shape[0] : a->name < b->name;
  });
  std::string text;
  for (auto matrix = matrices.begin(); matrix != shown; ++matrix) {
    text +=
        (text.empty() ? "" : ", ") + detail::in_quotes((*matrix)->name) + " " + shape_text((*matrix)->shape);
  }
  return text.empty() ? "it has no matrix at all" : "its matrices with most rows are " + text;
}

/// Whether two tensors have the same values, stored in the same way.
bool are_equal(const TensorView& a, const TensorView& b) {
  return a.type == b.type && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

/// What lies at a path, `not_found` where there is nothing. Throws Error where the system does not tell.
std::filesystem::file_type type_at(const std::filesystem::path& path) {
  std::error_code failure;
  const std::filesystem::file_type type = std::filesystem::status(path, failure).type();
  if (type == std::filesystem::file_type::none) {
    throw Error(path.string() + ": cannot examine: " + failure.message());
  }
  return type;
}

bool is_there(const std::filesystem::path& path) {
  return type_at(path) != std::filesystem::file_type::not_found;
}

std::filesystem::path tensors_in(const std::filesystem::path& folder) {
  for (const std::string_view name : {kIndex, kFile}) {
    if (is_there(folder / name)) return folder / name;
  }
  const bool pickled =
      is_there(folder / kPickled) || is_there(folder / (std::string(kPickled) + ".index.json"));
  throw Error(
      folder.string() + ": has neither " + std::string(kFile) + " nor " + std::string(kIndex) +
      (pickled ? "; " + std::string(kPickled) +
                     " is pickled, which is not read: save_pretrained() of Transformers writes safetensors"
               : "; is this the folder of a model?"));
}

std::string name_of_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole =
      std::filesystem::weakly_canonical(folder.empty() ? "." : folder, ignored);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

ModelCheckpoint open_model_checkpoint(const std::filesystem::path& path) {
  const bool is_folder = type_at(path) == std::filesystem::file_type::directory;
  const std::filesystem::path folder = is_folder ? path : path.parent_path();
  ModelCheckpoint model = {
      .name = {}, .tensors = SafetensorsShards::open(is_folder ? tensors_in(path) : path), .config = {}};
  const std::filesystem::path config = folder / "config.json";
  if (is_there(config)) model.config = read_model_config(config);
  model.name = !model.config.name.empty() ? model.config.name : name_of_folder(folder);
  return model;
}

std::string find_bias(const SafetensorsShards& checkpoint, std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) {
    std::string own = std::string(weight.substr(0, weight.size() - kWeight.size())) + ".bias";
    if (checkpoint.contains(own)) return own;
  }
  const auto is_one_of = [weight](const auto& names) {
    return std::ranges::find(names, weight) != names.end();
  };
  if (!is_one_of(kOutputs) && !is_one_of(kEmbeddings)) return {};
  return std::string(first_of(checkpoint, kBiases));
}

std::string find_d2t(const SafetensorsShards& checkpoint, std::string_view weight) {
  const std::string_view d2t = first_of(checkpoint, kTokensOfRows);
  if (d2t.empty()) return {};
  const std::vector<std::size_t>& rows = checkpoint.tensor(weight).shape;
  const std::vector<std::size_t>& values = checkpoint.tensor(d2t).shape;
  return std::string(!rows.empty() && values == std::vector{rows.front()} ? d2t : "");
}

CheckpointHead find_checkpoint_head(const SafetensorsShards& checkpoint, const ModelConfig& config) {
  const std::string_view output = first_of(checkpoint, kOutputs);
  const std::string_view embedding = first_of(checkpoint, kEmbeddings);
  // What a draft's config ties is the model's: its own layer has rows for other tokens.
  const bool is_draft = !output.empty() && !find_d2t(checkpoint, output).empty();
  const bool may_be_tied = config.tied.value_or(true) && !embedding.empty() && !is_draft;
  CheckpointHead head;
  head.tied = may_be_tied &&
              (output.empty() ||
               (config.tied == true && are_equal(checkpoint.tensor(embedding), checkpoint.tensor(output))));
  head.weight = head.tied ? embedding : output;
  if (head.weight.empty()) {
    throw Error(checkpoint.path().string() + ": has no output layer by a name that is known" +
                (config.tied == false ? ", and config.json says that it is not tied to the embedding" : "") +
                "; " + largest_matrices(checkpoint));
  }
  head.bias = find_bias(checkpoint, head.weight);
  if (!head.tied) head.d2t = first_of(checkpoint, kTokensOfRows);
  return head;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
