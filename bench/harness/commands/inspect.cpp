// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/inspect.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "harness/table.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  std::filesystem::path file;
  std::filesystem::path head;  ///< empty: none is compared with
  bool verify = false;
};

/// How many bytes from here on are a character, in UTF-8, that would steer a terminal, or change the order
/// in which others are shown: controls (C0, DEL and C1), line separators, and bidirectional overrides. 0:
/// none.
std::size_t steering_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0U;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) return 2;
  if (byte(0) != 0xE2) return 0;
  const bool overrides = byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE;
  const bool isolates = byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9;
  return overrides || isolates ? 3 : 0;
}

/// Text of a file that anyone may have written, without what would steer a terminal.
std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t steering = steering_bytes(text);
    shown += steering > 0 ? '?' : text.front();
    text.remove_prefix(steering > 0 ? steering : 1);
  }
  return shown;
}

/// The value of a key, or "-".
std::string value_of(const SafetensorsFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "-" : found->second;
}

bool is_index(const SafetensorsFile& file) {
  return file.metadata().contains("kind") && file.metadata().contains("format_version");
}

/// A head file, or why it is none.
struct OpenedHead {
  std::optional<HeadFile> head;
  std::string reason;
};

OpenedHead open_head(const std::filesystem::path& path) {
  try {
    return {.head = HeadFile::open(path), .reason = {}};
  } catch (const Error& error) {
    return {.head = std::nullopt, .reason = error.what()};
  }
}

void print_index(const SafetensorsFile& file, std::ostream& out) {
  out << "an index of kind " << printable(value_of(file, "kind")) << ", format version "
      << printable(value_of(file, "format_version")) << "\nlayer: V = " << printable(value_of(file, "vocab"))
      << ", d = " << printable(value_of(file, "dim")) << ", " << printable(value_of(file, "dtype"))
      << ", hash " << printable(value_of(file, "layer_hash"))
      << "\nchecksum: " << printable(value_of(file, "checksum")) << '\n';
  constexpr std::string_view option = "options.";
  for (const auto& [key, value] : file.metadata()) {  // with those of the index within this one
    const bool own = key.starts_with(option);
    if (!own && key.find('.') == std::string::npos) continue;
    out << printable(own ? key.substr(option.size()) : key) << " = " << printable(value) << '\n';
  }
}

void print_head(const SafetensorsFile& file, const HeadFile& head, std::ostream& out) {
  out << "a head file: " << printable(head.name()) << "\nlayer: V = " << head.vocab()
      << ", d = " << head.dim() << ", " << data_type_name(file.tensor("weight").type)
      << (file.contains("bias") ? ", with a bias" : ", without a bias")
      << "\ncontexts: " << head.train_count() << " to learn from, " << head.test_count()
      << " to judge on\ncounts: " << (file.contains("counts") ? "of every token" : "none") << '\n';
  if (file.metadata().contains("provenance")) {
    out << "provenance: " << printable(value_of(file, "provenance")) << '\n';
  }
}

std::string shape_of(const TensorView& tensor) {
  std::string text = "[";
  for (const std::size_t size : tensor.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

void print_tensors(const SafetensorsFile& file, std::ostream& out) {
  Table table({"tensor", "type", "shape", "bytes", ""});
  const std::size_t count = file.tensors().size();
  std::size_t bytes = 0;
  for (const TensorView& tensor : file.tensors()) {
    table.add({printable(tensor.name), std::string(data_type_name(tensor.type)), shape_of(tensor),
               std::to_string(tensor.bytes.size()), ""});
    bytes += tensor.bytes.size();
  }
  out << '\n';
  if (count > 0) table.print(out);
  out << count << (count == 1 ? " tensor, " : " tensors, ") << bytes << " bytes; the file has "
      << std::filesystem::file_size(file.path()) << '\n';
}

/// Loads the index for the head's layer, stored as the layer was that it was built for. Throws Error where it
/// does not fit.
void check_fit(const SafetensorsFile& index, const std::filesystem::path& path, const Registry& registry,
               std::ostream& out) {
  const HeadFile head = HeadFile::open(path);
  const std::string dtype = value_of(index, "dtype");
  load_index(index.path(), dtype == data_type_name(DataType::float32) ? head.layer() : head.stored_layer(),
             registry);
  out << "fits the layer of " << path.string() << ", as " << dtype << '\n';
}

void run_inspect(const Request& request, const Registry& registry, std::ostream& out, Progress& progress) {
  progress.show("reading " + request.file.string());
  const SafetensorsFile file = SafetensorsFile::open(request.file);
  const auto [head, reason] = open_head(request.file);
  progress.clear();
  out << request.file.string() << ": ";
  if (is_index(file)) {
    print_index(file, out);
  } else if (head) {
    print_head(file, *head, out);
  } else {
    out << "a safetensors file, neither an index nor a head file\n";
    if (file.contains("weight")) out << "no head file because " << printable(reason) << '\n';
  }
  print_tensors(file, out);
  if (request.verify) {
    verify_index(request.file);
    out << "the checksum holds\n";
  }
  if (!request.head.empty()) check_fit(file, request.head, registry, out);
}

}  // namespace

Action declare_inspect(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  app.add_option("file", request->file, "A safetensors file: an index, a head file, or any other")
      ->type_name("FILE")
      ->required();
  app.add_flag("--verify", request->verify, "Read all of an index and compare its checksum");
  app.add_option("--head", request->head, "A head file: whether the index is for its layer")
      ->type_name("FILE");
  return [request](const Registry& registry, std::ostream& out, Progress& progress) {
    run_inspect(*request, registry, out, progress);
  };
}

}  // namespace topksoftmax::bench
