// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/ranks.hpp"

#include <ostream>

#include "harness/command_line/usage_error.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/report.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"

#if defined(TOPKSOFTMAX_BENCH_MPI)
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "harness/backends/build_backend.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/distributed/description.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/numeric/quantile.hpp"
#include "topksoftmax/stopwatch.hpp"
#endif

namespace topksoftmax::bench {

#if defined(TOPKSOFTMAX_BENCH_MPI)
namespace {

/// Contexts that are timed in one go, and those before them that warm caches up.
constexpr std::size_t kSlice = 100;
constexpr std::size_t kWarmUp = 20;

/// Waits for all ranks, and leaves the processor to those that work.
void sleep_until_all_are_here() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int here = 0; here == 0;) {
    MPI_Test(&request, &here, MPI_STATUS_IGNORE);
    if (here == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

double over_ranks(double value, MPI_Op operation) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
  return value;
}

/// A backend over slices and, on the first rank, over the whole layer, with its times: of each round,
/// seconds.
struct Contender {
  std::string name;
  QueryOptions options;
  std::shared_ptr<TopKSoftmax> sharded;
  std::shared_ptr<TopKSoftmax> whole;
  std::vector<double> one, all, screens, collectives, waiting;
  CollectiveWork work;      ///< of the last slice that was timed …
  double worked_for = 1.0;  ///< … and of how many contexts it was

  ShardedSoftmax& over_ranks() const { return static_cast<ShardedSoftmax&>(*sharded); }
};

/// Asks a head for some of the contexts, `batch` at a time.
class Asking {
 public:
  Asking(const RowMajorMatrix& contexts, std::size_t batch)
      : contexts_(contexts), batch_(batch), workspaces_(1), answers_(batch) {}

  std::size_t count() const { return static_cast<std::size_t>(contexts_.rows()); }
  std::size_t batch() const { return batch_; }

  double seconds_for(const TopKSoftmax& head, const QueryOptions& options, std::size_t first,
                     std::size_t count) {
    const auto begin = std::chrono::steady_clock::now();
    const auto dim = static_cast<std::size_t>(contexts_.cols());
    for (std::size_t i = first; i < first + count; i += batch_) {
      const std::size_t size = std::min(batch_, first + count - i);
      const float* const h = contexts_.data() + i * dim;
      if (batch_ == 1) {
        head.query(h, dim, options, workspaces_[0], answers_[0]);
      } else {
        head.query_batch(h, size, dim, dim, options, workspaces_, std::span(answers_).first(size),
                         SerialExecutor());
      }
    }
    return seconds_since(begin);
  }

  std::vector<TokenId> tokens_for(const TopKSoftmax& head, const QueryOptions& options, std::size_t context) {
    const auto dim = static_cast<std::size_t>(contexts_.cols());
    head.query(contexts_.data() + context * dim, dim, options, workspaces_[0], answers_[0]);
    return answers_[0].ids;
  }

 private:
  const RowMajorMatrix& contexts_;
  std::size_t batch_;
  std::vector<Workspace> workspaces_;
  std::vector<TopK> answers_;
};

/// Adds the times of one slice to the last round's.
void time_slice(Contender& contender, Asking& asking, std::size_t first, std::size_t count) {
  ShardedSoftmax& sharded = contender.over_ranks();
  const std::size_t warm =
      std::min(std::max(kWarmUp / asking.batch(), std::size_t{1}) * asking.batch(), count);
  asking.seconds_for(sharded, contender.options, first, warm);
  MPI_Barrier(MPI_COMM_WORLD);
  sharded.forget_collective_work();
  const double seconds = asking.seconds_for(sharded, contender.options, first, count);
  contender.work = sharded.collective_work();
  contender.worked_for = static_cast<double>(count);
  const double within = contender.work.seconds;
  const double least = over_ranks(within, MPI_MIN);
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  contender.all.back() += over_ranks(seconds, MPI_MAX);
  contender.screens.back() += over_ranks(seconds - within, MPI_MAX);
  contender.collectives.back() += least;
  contender.waiting.back() += over_ranks(within, MPI_SUM) / ranks - least;
  if (contender.whole != nullptr) {
    asking.seconds_for(*contender.whole, contender.options, first, warm);
    contender.one.back() += asking.seconds_for(*contender.whole, contender.options, first, count);
  }
  sleep_until_all_are_here();
}

/// The same slices, which do not tell each other of thresholds.
std::shared_ptr<TopKSoftmax> with_own_thresholds(const std::shared_ptr<TopKSoftmax>& sharded) {
  const auto& head = static_cast<const ShardedSoftmax&>(*sharded);
  return ShardedSoftmax::make(MPI_COMM_WORLD, head.slice(),
                              [&] { return std::shared_ptr<const TopKSoftmax>(sharded, head.local()); },
                              {.share_thresholds = false});
}

std::vector<Contender> build(const Head& head, std::span<const Choice> choices, std::size_t k, bool first,
                             Progress& progress) {
  std::vector<Contender> contenders;
  for (const Choice& choice : choices) {
    Contender contender;
    contender.name = choice.backend->name;
    contender.options.k = k;
    progress.show("building " + choice.backend->name);
    contender.sharded =
        describe_sharded(MPI_COMM_WORLD, *choice.backend).build(material_of(head), choice.settings);
    if (first) contender.whole = build_backend(choice, head, progress);
    sleep_until_all_are_here();
    contenders.push_back(contender);
    if (choice.backend->kind != Certified::kind) continue;
    contender.name += ", ids alone";
    contender.options.probabilities = false;
    contenders.push_back(contender);
    contender.name += ", own thresholds";
    contender.sharded = with_own_thresholds(contender.sharded);
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

}  // namespace

Ranks::Ranks() : exceptions_(std::uncaught_exceptions()) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
}

Ranks::~Ranks() {
  // A rank that has failed ends without, and its exit code ends the others.
  if (std::uncaught_exceptions() == exceptions_) MPI_Finalize();
}

RanksMeasurement Ranks::measure(const Head& head, std::span<const Choice> choices,
                                const MeasureOptions& measure, Progress& progress) const {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1)
    throw UsageError("--ranks needs at least two ranks: mpirun -n 2 topksoftmax measure --ranks");
  const std::size_t k = measure.largest_k();
  const RowMajorMatrix contexts = detail::evenly_spaced(Contexts::of(head.test), measure.timed);
  Asking asking(contexts, measure.batch);
  std::vector<Contender> contenders = build(head, choices, k, first(), progress);
  RanksMeasurement found = {
      .ranks = static_cast<std::size_t>(ranks), .k = k, .batch = measure.batch, .contexts = asking.count()};
  for (std::size_t round = 0; round < measure.rounds; ++round) {
    progress.show("timing", static_cast<double>(round) / static_cast<double>(measure.rounds));
    for (Contender& contender : contenders) {
      for (auto* const times :
           {&contender.one, &contender.all, &contender.screens, &contender.collectives, &contender.waiting}) {
        times->push_back(0.0);
      }
    }
    const std::size_t size = std::max(kSlice / measure.batch, std::size_t{1}) * measure.batch;
    for (std::size_t at = 0; at < asking.count(); at += size) {
      for (Contender& contender : contenders) {
        time_slice(contender, asking, at, std::min(size, asking.count() - at));
      }
    }
  }
  const auto count = static_cast<double>(asking.count());
  const auto us = [count](const std::vector<double>& seconds) {
    return 1e6 * detail::quantile(seconds, 0.5) / count;
  };
  double spread = 0.0;
  for (Contender& contender : contenders) {
    spread = std::max({spread, detail::spread_of(contender.one), detail::spread_of(contender.all)});
    std::size_t different = 0;
    for (std::size_t i = 0; i < asking.count(); ++i) {
      const std::vector<TokenId> tokens = asking.tokens_for(*contender.sharded, contender.options, i);
      different += first() && tokens != asking.tokens_for(*contender.whole, contender.options, i) ? 1U : 0U;
    }
    found.rows.push_back({.backend = contender.name,
                          .one_us = us(contender.one),
                          .ranks_us = us(contender.all),
                          .screens_us = us(contender.screens),
                          .collectives_us = us(contender.collectives),
                          .waiting_us = us(contender.waiting),
                          .calls = static_cast<double>(contender.work.calls) / contender.worked_for,
                          .bytes = static_cast<double>(contender.work.bytes) / contender.worked_for,
                          .different_share = static_cast<double>(different) / count});
  }
  found.notes = remarks_on_spread(spread);
  return found;
}
#else
Ranks::Ranks() {
  throw UsageError("--ranks: this program was built without MPI");
}

Ranks::~Ranks() = default;

RanksMeasurement Ranks::measure(const Head&, std::span<const Choice>, const MeasureOptions&,
                                Progress&) const {
  return {};
}
#endif

void print_ranks(const Machine& machine, const Head& head, const RanksMeasurement& measurement,
                 std::ostream& out) {
  out << machine.cpu << ", " << machine.cores << " cores, " << machine.simd << "\n"
      << head.name << ": V = " << head.layer.vocab() << ", d = " << head.layer.dim() << "; the "
      << measurement.k << " best of " << measurement.contexts << " test contexts";
  if (measurement.batch > 1) out << " in batches of " << measurement.batch;
  out << ", one thread a rank\n1.0 is the same backend over the whole layer on one rank; µs a context\n";
  print_notes(measurement.notes, out);
  out << '\n';
  Table table({"backend", "one rank", std::to_string(measurement.ranks) + " ranks", "speedup", "in screens",
               "in collectives", "waiting", "collectives", "bytes"});
  for (const RanksRow& row : measurement.rows) {
    table.add({row.backend, three_digits(row.one_us), three_digits(row.ranks_us), three_digits(row.speedup()),
               three_digits(row.screens_us), three_digits(row.collectives_us), three_digits(row.waiting_us),
               fixed(row.calls, 2), fixed(row.bytes, 0)});
  }
  table.print(out);
  for (const RanksRow& row : measurement.rows) {
    if (row.different_share == 0.0) continue;
    out << '\n'
        << row.backend << " had other tokens than over the whole layer for "
        << fixed(100.0 * row.different_share, 2) << " % of the contexts\n";
  }
}

nlohmann::ordered_json ranks_to_json(const Machine& machine, const Head& head,
                                     const RanksMeasurement& measurement) {
  nlohmann::ordered_json json;
  json["machine"] = to_json(machine);
  json["head"] = to_json(head);
  json["contexts"] = measurement.contexts;
  json["notes"] = measurement.notes;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RanksRow& row : measurement.rows) {
    json["ranks"].push_back({{"backend", row.backend},
                             {"ranks", measurement.ranks},
                             {"k", measurement.k},
                             {"batch", measurement.batch},
                             {"us_on_one", row.one_us},
                             {"us", row.ranks_us},
                             {"speedup", row.speedup()},
                             {"us_in_screens", row.screens_us},
                             {"us_in_collectives", row.collectives_us},
                             {"us_waiting", row.waiting_us},
                             {"collectives", row.calls},
                             {"bytes", row.bytes},
                             {"different_share", row.different_share}});
  }
  return json;
}

}  // namespace topksoftmax::bench
