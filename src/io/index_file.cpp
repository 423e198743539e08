// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/index_file.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "io/index_format.hpp"
#include "io/index_reader.hpp"
#include "io/safetensors_header.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/screeners/adaptive_softmax.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/screeners/certify.hpp"
#include "topksoftmax/screeners/fgd.hpp"
#include "topksoftmax/screeners/greedy_mips.hpp"
#include "topksoftmax/screeners/l2s.hpp"
#include "topksoftmax/screeners/lsh_mips.hpp"
#include "topksoftmax/screeners/pca_mips.hpp"
#include "topksoftmax/screeners/quantized.hpp"
#include "topksoftmax/screeners/shortlist.hpp"
#include "topksoftmax/screeners/svd_softmax.hpp"
#include "topksoftmax/screeners/wta_lsh.hpp"
#include "topksoftmax/screeners/wta_lsh_each.hpp"

namespace topksoftmax {
namespace {

struct Kind {
  std::string_view name;
  std::unique_ptr<TopKSoftmax> (*load)(const IndexReader& in);
};

template <class Backend>
std::unique_ptr<TopKSoftmax> load_as(const IndexReader& in) {
  return Backend::load(in);
}

constexpr Kind kKinds[] = {
    {"exact", &load_as<Exact>},
    {"fused", &load_as<Fused>},
    {"l2s", &load_as<L2S>},
    {"fgd", &load_as<Fgd>},
    {"svd", &load_as<SvdSoftmax>},
    {"adaptive", &load_as<AdaptiveSoftmax>},
    {"greedy-mips", &load_as<GreedyMips>},
    {"pca-mips", &load_as<PcaMips>},
    {"lsh-mips", &load_as<LshMips>},
    {"wta-lsh", &load_as<WtaLsh>},
    {"wta-lsh-each", &load_as<WtaLshEach>},
    {"shortlist", &load_as<Shortlist>},
    {"quantized", &load_as<Quantized>},
    {"certified", &load_as<Certified>},
    {"certify", &load_as<Certify>},
};

}  // namespace

std::unique_ptr<TopKSoftmax> load_any(const IndexReader& in) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == in.kind()) return kind.load(in);
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw Error(in.path().string() + ": holds an index of kind " + in_quotes(in.kind()) +
              ", which this library does not know; it knows " + known +
              "; load it with the library that wrote it, or build one of these");
}

std::unique_ptr<TopKSoftmax> load_index(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load_any(IndexReader::open(path, std::move(layer)));
}

void verify_index(const std::filesystem::path& path) {
  const SafetensorsFile file = open_index_file(path);
  const auto recorded = file.metadata().find(index_key::checksum);
  const std::string found = index_checksum(file.metadata(), file.tensors());
  if (recorded != file.metadata().end() && recorded->second == found) return;
  throw Error(path.string() + ": its checksum is " +
              (recorded == file.metadata().end() ? "missing" : in_quotes(recorded->second)) +
              ", that of what it holds " + in_quotes(found) + "; it is damaged" +
              build_it_again(file.metadata().find(index_key::kind)->second));
}

}  // namespace topksoftmax
