// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/cursors.hpp"

#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/beside_reads.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/report.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/decoding/token_cursor.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kSlice = 50;

/// One backend that gives so many tokens, on demand and at once.
struct Giver {
  std::shared_ptr<const TopKSoftmax> head;
  std::size_t tokens;
  TokenCursor cursor;
  Workspace workspace = {};
  TopK answer = {};

  void query(std::span<const float> h) {
    head->query(h, {.k = tokens, .probabilities = false}, workspace, answer);
  }

  /// How many of the answer's tokens are the cursor's, from the first one on.
  std::size_t step(std::span<const float> h) {
    cursor.start(h);
    std::size_t same = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      const std::optional<ScoredToken> token = cursor.next();
      same += token && same == i && i < answer.size() && token->id == answer.ids[i] ? 1U : 0U;
    }
    return same;
  }
};

}  // namespace

CursorMeasurement measure_cursors(const Head& head, std::span<const Choice> choices,
                                  std::span<const std::size_t> tokens, const MeasureOptions& measure,
                                  Progress& progress) {
  const RowMajorMatrix contexts = detail::evenly_spaced(Contexts::of(head.test), measure.timed);
  const auto count = static_cast<std::size_t>(contexts.rows());
  const auto context = [&contexts](std::size_t i) {
    return std::span(contexts.row(static_cast<Eigen::Index>(i)).data(),
                     static_cast<std::size_t>(contexts.cols()));
  };
  for (const std::size_t number : tokens) {
    if (number <= head.layer.vocab()) continue;
    throw Error(head.file + ": there are no " + std::to_string(number) + " tokens among " +
                std::to_string(head.layer.vocab()));
  }
  CursorMeasurement measurement = {.rows = {}, .contexts = count};
  std::vector<Giver> givers;
  for (const Choice& choice : choices) {
    const std::shared_ptr<const TopKSoftmax> built = build_backend(choice, head, progress);
    for (const std::size_t number : tokens) {
      givers.push_back({.head = built, .tokens = number, .cursor = TokenCursor(*built, context(0))});
      measurement.rows.push_back({.backend = choice.backend->name, .tokens = number});
    }
  }
  progress.show("asking");
  for (std::size_t g = 0; g < givers.size(); ++g) {
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) {
      givers[g].query(context(i));
      different += givers[g].step(context(i)) != givers[g].answer.size() ? 1U : 0U;
    }
    measurement.rows[g].different_share = static_cast<double>(different) / static_cast<double>(count);
  }

  std::vector<TimedWork> works;
  for (Giver& giver : givers) {
    works.emplace_back([&](std::size_t first, std::size_t number) {
      for (std::size_t i = first; i < first + number; ++i) giver.query(context(i));
    });
    works.emplace_back([&](std::size_t first, std::size_t number) {
      for (std::size_t i = first; i < first + number; ++i) giver.step(context(i));
    });
  }
  const TimedBesideReads timed =
      time_beside_reads(std::move(works), count, kSlice, head, measure, SerialExecutor(), progress);
  for (std::size_t g = 0; g < givers.size(); ++g) {
    measurement.rows[g].us_query = 1e6 * timed.timings[2 * g].seconds_per_item;
    measurement.rows[g].us_cursor = 1e6 * timed.timings[2 * g + 1].seconds_per_item;
  }
  measurement.read_gb_s = timed.read_gb_s;
  measurement.notes = timed.notes;
  return measurement;
}

void print_cursors(const Machine& machine, const Head& head, const CursorMeasurement& measurement,
                   std::ostream& out) {
  print_beside_reads(machine, measurement.read_gb_s, head, out);
  out << "; next best tokens after " << measurement.contexts << " of " << head.test.rows()
      << " test contexts, one thread\n";
  print_notes(measurement.notes, out);
  out << '\n';
  Table table({"backend", "tokens", "µs/query", "µs/cursor", "cursor/query"});
  for (const CursorRow& row : measurement.rows) {
    table.add({row.backend, std::to_string(row.tokens), three_digits(row.us_query),
               three_digits(row.us_cursor), fixed(row.us_cursor / row.us_query, 2)});
  }
  table.print(out);
  for (const CursorRow& row : measurement.rows) {
    if (row.different_share == 0.0) continue;
    out << '\n'
        << row.backend << ": of " << row.tokens
        << " tokens the cursor gave others than the query, or in another order, after "
        << fixed(100.0 * row.different_share, 2) << " % of the contexts\n";
  }
}

nlohmann::ordered_json cursors_to_json(const Machine& machine, const Head& head,
                                       const CursorMeasurement& measurement) {
  nlohmann::ordered_json json;
  json["machine"] = to_json(machine, measurement.read_gb_s);
  json["head"] = to_json(head);
  json["contexts"] = measurement.contexts;
  json["notes"] = measurement.notes;
  json["cursor"] = nlohmann::ordered_json::array();
  for (const CursorRow& row : measurement.rows) {
    json["cursor"].push_back({{"backend", row.backend},
                              {"tokens", row.tokens},
                              {"us_query", row.us_query},
                              {"us_cursor", row.us_cursor},
                              {"different_share", row.different_share}});
  }
  return json;
}

}  // namespace topksoftmax::bench
