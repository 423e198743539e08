// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fused.hpp"

#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "topksoftmax/exhaustive.hpp"

namespace topksoftmax {

void Fused::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  answer_from_all(layer(), query, workspace, answer);
}

void Fused::do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                           TopK* answers) const {
  answer_batch_from_all(layer(), query, stride, batch, workspace, answers);
}

void Fused::do_save(IndexWriter& out) const {
  out.kind(name());
}

std::unique_ptr<Fused> Fused::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), "fused"));
}

std::unique_ptr<Fused> Fused::load(const IndexReader& in) {
  return make(in.layer());
}

}  // namespace topksoftmax
