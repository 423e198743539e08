// SPDX-License-Identifier: Apache-2.0
#include "harness/files/numpy_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <regex>
#include <span>
#include <type_traits>
#include <utility>

#ifdef TOPKSOFTMAX_BENCH_LIBZIP
#include <zip.h>
#endif

#include "harness/files/first_bytes.hpp"
#include "harness/files/open_file.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::string_view kArray = "\x93NUMPY";
constexpr std::string_view kArchive = "PK\x03\x04";

/// NumPy's own headers have 118 bytes or little more.
constexpr std::size_t kLongestHeader = 4096;

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  std::ifstream file = open_file(path);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw Error(path.string() + ": cannot be read");
  return bytes;
}

/// What stands before an array's values.
struct Header {
  std::string type;
  bool column_major = false;
  std::vector<std::size_t> shape;
  std::size_t size = 0;  ///< of all that stands before
};

/// Nothing where it breaks the format.
std::optional<Header> parse_header(std::string_view file) {
  if (!file.starts_with(kArray) || file.size() < 10) return std::nullopt;
  const bool short_length = file[6] == 1;
  Header header;
  header.size = short_length ? 10 : 12;
  if (file.size() < header.size) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = header.size; i-- > 8;) length = length << 8U | static_cast<unsigned char>(file[i]);
  if (length > kLongestHeader || length > file.size() - header.size) return std::nullopt;
  const std::string text(file.substr(header.size, length));
  header.size += length;
  // As NumPy writes it: the keys in this order.
  static const std::regex form(
      R"(\{'descr': *'([^']*)', *'fortran_order': *(True|False), *'shape': *\(([0-9, ]*)\),? *\}\s*)");
  std::smatch parts;
  if (!std::regex_match(text, parts, form)) return std::nullopt;
  header.type = parts[1];
  header.column_major = parts[2] == "True";
  const std::string shape = parts[3];
  for (const char *at = shape.data(), *const end = at + shape.size(); at != end;) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    std::size_t size = 0;
    const auto [behind, failure] = std::from_chars(at, end, size);
    if (failure != std::errc()) return std::nullopt;
    header.shape.push_back(size);
    at = behind;
  }
  return header;
}

std::optional<DataType> data_type_of_numpy(std::string_view type) {
  struct Name {
    std::string_view numpy;
    DataType type;
  };
  constexpr std::array<Name, 13> names = {{{"f2", DataType::float16},
                                           {"f4", DataType::float32},
                                           {"f8", DataType::float64},
                                           {"b1", DataType::boolean},
                                           {"i1", DataType::int8},
                                           {"u1", DataType::uint8},
                                           {"V2", DataType::bfloat16},  // of ml_dtypes
                                           {"i2", DataType::int16},
                                           {"u2", DataType::uint16},
                                           {"i4", DataType::int32},
                                           {"u4", DataType::uint32},
                                           {"i8", DataType::int64},
                                           {"u8", DataType::uint64}}};
  constexpr char kOwnOrder = std::endian::native == std::endian::little ? '<' : '>';
  if (type.empty() || (type[0] != kOwnOrder && type[0] != '|')) return std::nullopt;
  const auto* const found = std::find_if(names.begin(), names.end(),
                                         [&](const Name& name) { return name.numpy == type.substr(1); });
  return found == names.end() ? std::nullopt : std::optional(found->type);
}

/// The bytes of this many values of this size; nothing where that, or a size of Eigen's, overflows.
std::optional<std::size_t> bytes_in(std::span<const std::size_t> shape, std::size_t value_bytes) {
  std::size_t bytes = value_bytes;
  for (const std::size_t size : shape) {
    if (size > PTRDIFF_MAX || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Values in row-major order, of an array [R,C] that lies in column-major order.
std::vector<std::byte> transposed(std::span<const std::byte> values, std::size_t rows, std::size_t columns) {
  const std::size_t value_bytes = values.size() / (rows * columns);
  std::vector<std::byte> out(values.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(out.data() + (row * columns + column) * value_bytes,
                  values.data() + (column * rows + row) * value_bytes, value_bytes);
    }
  }
  return out;
}

template <class T>
void convert(const NumpyFile& file, const TensorView& array, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value{};
    std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, double>) {
      if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
        throw file.error(array.name,
                         "has " + detail::number_text(value) + ", which is beyond float32's range");
      }
    }
    out[i] = static_cast<float>(value);
  }
}

void read_floats(const NumpyFile& file, const TensorView& array, std::size_t rank, std::span<float> out) {
  switch (array.type) {
    case DataType::float16:
      return convert<Eigen::half>(file, array, out);
    case DataType::bfloat16:
      return convert<Eigen::bfloat16>(file, array, out);
    case DataType::float32:
      return convert<float>(file, array, out);
    case DataType::float64:
      return convert<double>(file, array, out);
    default:
      throw file.error(array.name, "is of " + std::string(data_type_name(array.type)) +
                                       ", expected floats of " + std::to_string(rank) + " dimensions");
  }
}

}  // namespace

bool NumpyFile::recognises(const std::filesystem::path& path) {
  const std::string begin = first_bytes(path, kArray.size());
  return begin == kArray || begin.starts_with(kArchive);
}

NumpyFile NumpyFile::open(const std::filesystem::path& path) {
  NumpyFile file;
  file.path_ = path;
  if (first_bytes(path, kArchive.size()) == kArchive) {
    file.is_archive_ = true;
    file.read_archive();
  } else {
    file.add(path.stem().string(), bytes_of(path));
  }
  return file;
}

NumpyFile NumpyFile::read(std::istream& stream, const std::string& name) {
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  NumpyFile file;
  file.path_ = name;
  file.add(name, {bytes.begin(), bytes.end()});
  return file;
}

#ifdef TOPKSOFTMAX_BENCH_LIBZIP

void NumpyFile::read_archive() {
  struct Discard {
    void operator()(zip_t* archive) const { zip_discard(archive); }
    void operator()(zip_file_t* entry) const { zip_fclose(entry); }
  };
  int failure = 0;
  const std::unique_ptr<zip_t, Discard> archive(zip_open(path_.c_str(), ZIP_RDONLY, &failure));
  if (!archive) throw Error(path_.string() + ": is not a whole .npz file");
  // Deflate makes 1,032 bytes of one at most. (Entries that share bytes of the file would have more of them.)
  std::uintmax_t left = std::filesystem::file_size(path_) * 1032;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<zip_uint64_t>(i);
    zip_stat_t status = {};
    zip_stat_init(&status);
    if (zip_stat_index(archive.get(), place, 0, &status) != 0 || (status.valid & ZIP_STAT_SIZE) == 0 ||
        (status.valid & ZIP_STAT_NAME) == 0 || status.size > left) {
      throw Error(path_.string() + ": entry " + std::to_string(i) + " is damaged");
    }
    left -= status.size;
    std::string name = status.name;
    if (!name.ends_with(".npy")) continue;
    name.resize(name.size() - 4);
    const std::unique_ptr<zip_file_t, Discard> entry(zip_fopen_index(archive.get(), place, 0));
    std::vector<std::byte> bytes(entry ? status.size : 0);
    const auto size = static_cast<zip_int64_t>(bytes.size());
    std::byte beyond{};
    // The checksum is compared at the end alone: by a read of nothing more.
    if (!entry || zip_fread(entry.get(), bytes.data(), bytes.size()) != size ||
        zip_fread(entry.get(), &beyond, 1) != 0) {
      throw error(name, "cannot be unpacked");
    }
    add(std::move(name), std::move(bytes));
  }
}

#else

void NumpyFile::read_archive() {
  throw Error(path_.string() + ": this build reads .npy but not .npz; it was made without libzip");
}

#endif

void NumpyFile::add(std::string name, std::vector<std::byte> file) {
  const auto header = parse_header({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!header) throw error(name, "has no header that NumPy writes for plain numbers");
  const auto type = data_type_of_numpy(header->type);
  if (!type) throw error(name, "is of type " + detail::in_quotes(header->type) + ", which is not read");
  const std::size_t held = file.size() - header->size;
  const auto bytes = bytes_in(header->shape, data_type_size(*type));
  if (!bytes || *bytes != held) {
    throw error(name, "has the shape " + shape_text(header->shape) + " of " +
                          std::string(data_type_name(*type)) + ", and " + std::to_string(held) + " bytes");
  }
  if (!index_.emplace(name, tensors_.size()).second) throw error(name, "is there twice");
  std::span<const std::byte> values(file.data() + header->size, held);
  if (header->column_major && header->shape.size() > 1 && held > 0) {
    if (header->shape.size() != 2) throw error(name, "is in column-major order and not a matrix");
    storage_->push_back(transposed(values, header->shape[0], header->shape[1]));
    values = storage_->back();
  } else {
    storage_->push_back(std::move(file));
  }
  tensors_.push_back({.name = std::move(name), .type = *type, .shape = header->shape, .bytes = values});
}

const TensorView& NumpyFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw Error(path_.string() + ": has no array " + detail::in_quotes(name));
  return tensors_[found->second];
}

RowMajorMatrix NumpyFile::matrix(std::string_view name) const {
  const TensorView& array = tensor(name);
  if (array.shape.size() != 2) throw error(name, "shape is " + shape_text(array.shape) + ", expected [*, *]");
  RowMajorMatrix out(static_cast<Eigen::Index>(array.shape[0]), static_cast<Eigen::Index>(array.shape[1]));
  read_floats(*this, array, 2, std::span(out.data(), static_cast<std::size_t>(out.size())));
  return out;
}

Eigen::VectorXf NumpyFile::vector(std::string_view name) const {
  const TensorView& array = tensor(name);
  if (array.shape.size() != 1) throw error(name, "shape is " + shape_text(array.shape) + ", expected [*]");
  Eigen::VectorXf out(static_cast<Eigen::Index>(array.shape[0]));
  read_floats(*this, array, 1, std::span(out.data(), static_cast<std::size_t>(out.size())));
  return out;
}

Error NumpyFile::error(std::string_view name, std::string_view what) const {
  return Error(path_.string() + ": array " + detail::in_quotes(name) + " " + std::string(what));
}

}  // namespace topksoftmax::bench
