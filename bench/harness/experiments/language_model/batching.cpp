// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/batching.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/language_model/request.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/stopwatch.hpp"

namespace topksoftmax::bench {
namespace {

using examples::LstmModel;
using examples::LstmState;

constexpr std::size_t kSentences = 600;
constexpr std::size_t kBatch = 32;
constexpr std::size_t kMaxi = 320;
constexpr std::size_t kRounds = 3;

/// Lengths of sentences in sub-words, as the paper's Table 1 tells of them.
struct LengthDistribution {
  std::string name;
  double mean;
  double deviation;
};

/// Log-normal lengths of this mean and deviation, at least 1.
std::vector<std::size_t> draw_lengths(const LengthDistribution& distribution) {
  RandomStream random(5);
  const double variance = std::log1p(std::pow(distribution.deviation / distribution.mean, 2.0));
  const double median = std::log(distribution.mean) - 0.5 * variance;
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < kSentences; ++i) {
    const double radius = std::sqrt(-2.0 * std::log1p(-random.uniform()));
    const double normal = radius * std::cos(2.0 * std::numbers::pi * random.uniform());
    lengths.push_back(
        static_cast<std::size_t>(std::max(1.0, std::round(std::exp(median + std::sqrt(variance) * normal)))));
  }
  return lengths;
}

/// A language model that writes each sentence greedily to the length it is given, the batch's states packed
/// row by row.
class Writer {
 public:
  Writer(const LstmModel& model, const TopKSoftmax& head, std::span<const std::size_t> lengths)
      : model_(model), head_(head), lengths_(lengths), written_(lengths.size(), 0), workspaces_(1) {}

  BatchWork work() {
    return {.encode = [](std::span<const std::size_t>) {},
            .decode = [this](std::span<const std::size_t> batch,
                             std::span<bool> finished) { decode(batch, finished); },
            .emit = [](std::size_t) {}};
  }

 private:
  void decode(std::span<const std::size_t> batch, std::span<bool> finished) {
    if (!std::equal(batch.begin(), batch.end(), rows_.begin(), rows_.end())) repack(batch);
    const RowMajorMatrix& H = model_.read(tokens_, state_);
    answers_.resize(batch.size());
    head_.query_batch(H, {.k = 1, .probabilities = false}, workspaces_, answers_);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      tokens_[i] = answers_[i].ids[0];
      finished[i] = ++written_[batch[i]] == lengths_[batch[i]];
    }
  }

  /// The rows of those that stay move up, those that come in begin.
  void repack(std::span<const std::size_t> batch) {
    LstmModel::State packed = model_.start(static_cast<Eigen::Index>(batch.size()));
    std::vector<TokenId> tokens(batch.size(), 0);
    std::size_t old = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      tokens[i] = static_cast<TokenId>(batch[i] % std::min<std::size_t>(100, model_.vocab()));
      while (old < rows_.size() && rows_[old] != batch[i]) ++old;
      if (old == rows_.size()) continue;
      for (std::size_t l = 0; l < packed.size(); ++l) {
        const auto from = static_cast<Eigen::Index>(old);
        const auto to = static_cast<Eigen::Index>(i);
        packed[l].hidden.row(to) = state_[l].hidden.row(from);
        packed[l].cell.row(to) = state_[l].cell.row(from);
      }
      tokens[i] = tokens_[old];
    }
    rows_.assign(batch.begin(), batch.end());
    state_ = std::move(packed);
    tokens_ = std::move(tokens);
  }

  const LstmModel& model_;
  const TopKSoftmax& head_;
  std::span<const std::size_t> lengths_;
  std::vector<std::size_t> written_;
  std::vector<std::size_t> rows_;
  LstmModel::State state_;
  std::vector<TokenId> tokens_;
  std::vector<TopK> answers_;
  std::vector<Workspace> workspaces_;
};

struct Way {
  std::string name;
  std::function<BatchReport(std::span<const std::size_t> lengths, const BatchWork& work)> run;
};

std::vector<Way> ways() {
  return {
      {"mini", [](std::span<const std::size_t> lengths,
                  const BatchWork& work) { return mini_batching(lengths.size(), work, {.batch = kBatch}); }},
      {"maxi",
       [](std::span<const std::size_t> lengths, const BatchWork& work) {
         return maxi_batching(lengths, work, {.batch = kBatch, .maxi = kMaxi});
       }},
      {"top-up", [](std::span<const std::size_t> lengths, const BatchWork& work) {
         return top_up_batching(lengths.size(), work,
                                {.batch = kBatch, .encode = kBatch, .queue = kSentences});
       }}};
}

/// The share of steps whose batch was so large: at most an eighth, a quarter, a half, and all of the most.
std::vector<double> histogram(const BatchReport& report) {
  std::vector<double> shares;
  std::size_t from = 1;
  for (const std::size_t to : {kBatch / 8, kBatch / 4, kBatch / 2, kBatch}) {
    std::size_t steps = 0;
    for (; from <= to; ++from) steps += report.steps_at[from];
    shares.push_back(static_cast<double>(steps) / static_cast<double>(report.steps));
  }
  return shares;
}

}  // namespace

nlohmann::ordered_json run_batching(const LanguageModelRequest& request, std::ostream& out) {
  static const std::array<LengthDistribution, 2> distributions = {
      {{"Europarl", 26.3, 14.9}, {"OpenSubtitles", 9.4, 6.1}}};
  Table table({"head", "lengths", "batching", "sentences/s", "time saved", "steps", "mean batch",
               "batch 1-" + std::to_string(kBatch / 8), "-" + std::to_string(kBatch / 4),
               "-" + std::to_string(kBatch / 2), "-" + std::to_string(kBatch)});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  double spread = 0.0;
  for (const Choice& choice : request.choices) {
    const std::shared_ptr<const TopKSoftmax> head = build_backend(choice, request.head, request.progress);
    for (const LengthDistribution& distribution : distributions) {
      const std::vector<std::size_t> lengths = draw_lengths(distribution);
      const std::vector<Way> all = ways();
      std::vector<std::vector<double>> seconds(all.size());
      std::vector<BatchReport> reports(all.size());
      const PinnedThread pinned;
      for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t w = 0; w < all.size(); ++w) {
          request.progress.show(choice.backend->name + ", " + distribution.name + ", " + all[w].name);
          Writer writer(request.model, *head, lengths);
          const Stopwatch watch(seconds[w].emplace_back(0.0));
          reports[w] = all[w].run(lengths, writer.work());
        }
      }
      double mini = 0.0;
      for (std::size_t w = 0; w < all.size(); ++w) {
        const double median = detail::quantile(seconds[w], 0.5);
        spread = std::max(spread, detail::spread_of(seconds[w]));
        if (w == 0) mini = median;
        std::vector<std::string> cells = {choice.backend->name,
                                          distribution.name,
                                          all[w].name,
                                          three_digits(kSentences / median),
                                          three_digits(100.0 * (1.0 - median / mini)) + " %",
                                          std::to_string(reports[w].steps),
                                          fixed(reports[w].mean_batch(), 1)};
        const std::vector<double> shares = histogram(reports[w]);
        for (const double share : shares) cells.push_back(fixed(100.0 * share, 0) + " %");
        table.add(std::move(cells));
        rows.push_back({{"backend", choice.backend->name},
                        {"lengths", distribution.name},
                        {"batching", all[w].name},
                        {"sentences_per_s", kSentences / median},
                        {"time_saved", 1.0 - median / mini},
                        {"steps", reports[w].steps},
                        {"mean_batch", reports[w].mean_batch()},
                        {"step_shares", shares}});
      }
    }
  }
  request.progress.clear();
  out << kSentences << " sentences of log-normal lengths (mean and deviation of the paper's Table 1), "
      << "at most " << kBatch << " at a time;\nshares of the decoding steps by their batch (Figure 8)\n";
  const std::vector<std::string> notes = remarks_on_spread(spread);
  print_notes(notes, out);
  out << '\n';
  table.print(out);
  return {{"notes", notes}, {"batching", std::move(rows)}};
}

}  // namespace topksoftmax::bench
