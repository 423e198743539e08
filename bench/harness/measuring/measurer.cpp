// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/measurer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/backends/build_backend.hpp"
#include "harness/measuring/peak_memory.hpp"
#include "topksoftmax/evaluation/bandwidth.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/registry/exhaustive_descriptions.hpp"
#include "topksoftmax/stopwatch.hpp"

namespace topksoftmax::bench {
namespace {

/// Contexts that are timed in one go: long against the clock's resolution, short against what disturbs a
/// machine.
constexpr std::size_t kSlice = 100;

/// The smallest multiple of `batch` that reaches `count`.
std::size_t whole_batches(std::size_t count, std::size_t batch) {
  return (count + batch - 1) / batch * batch;
}

/// About `count` of the contexts: evenly spread runs of consecutive ones, as batches of a real decoder are.
RowMajorMatrix spread_runs(const RowMajorMatrix& contexts, std::size_t count, std::size_t run) {
  const auto all = static_cast<std::size_t>(contexts.rows());
  if (count >= all) return contexts;
  run = std::min(run, count);
  const std::size_t runs = count / run;
  RowMajorMatrix chosen(static_cast<Eigen::Index>(runs * run), contexts.cols());
  for (std::size_t r = 0; r < runs; ++r) {
    chosen.middleRows(static_cast<Eigen::Index>(r * run), static_cast<Eigen::Index>(run)) =
        contexts.middleRows(static_cast<Eigen::Index>(r * (all - run) / std::max<std::size_t>(runs - 1, 1)),
                            static_cast<Eigen::Index>(run));
  }
  return chosen;
}

/// The size of the buffer that a query's reads are held against: the layer's own where it reads just that or
/// nobody knows what, otherwise two significant digits, so that rows that read about the same share a probe.
std::size_t footprint(double bytes, std::size_t layer_bytes) {
  if (std::isnan(bytes) || std::abs(bytes - static_cast<double>(layer_bytes)) < 1.0) return layer_bytes;
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(std::max(bytes, 1.0))) - 1.0));
  return static_cast<std::size_t>(std::round(bytes / unit) * unit);
}

/// Asks a contestant for contexts as the options say, with workspaces that stay warm.
class Asker {
 public:
  Asker(const Contestant& contestant, const RowMajorMatrix& contexts, const MeasureOptions& options,
        std::size_t k, const ThreadPool& pool)
      : system_(contestant.system.get()),
        pool_(&pool),
        contexts_(&contexts),
        query_({.k = k, .effort = contestant.effort}),
        workspaces_(options.threads),
        answers_(std::min(options.batch, static_cast<std::size_t>(contexts.rows()))) {}

  void ask(std::size_t first, std::size_t count) {
    const auto dim = static_cast<std::size_t>(contexts_->cols());
    const std::size_t batch = answers_.size();
    for (std::size_t i = first; i < first + count; i += batch) {
      const float* h = contexts_->data() + i * dim;
      if (batch == 1) {
        system_->query(std::span(h, dim), query_, workspaces_, answers_[0], *pool_);
      } else {
        const std::size_t size = std::min(batch, first + count - i);
        system_->query_batch(h, size, dim, dim, query_, workspaces_, std::span(answers_).first(size), *pool_);
      }
    }
  }

 private:
  const TopKSoftmax* system_;
  const ThreadPool* pool_;
  const RowMajorMatrix* contexts_;
  QueryOptions query_;
  std::vector<Workspace> workspaces_;
  std::vector<TopK> answers_;
};

/// Makes NaN of what a backend does not tell of its work. No answer comes from nothing: one without a byte
/// read, or without a row scored, is not accounted for.
void forget_untold_work(std::span<const TopK> answers, Precision& precision) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  const auto any = [answers](const auto& lacks) {
    return std::any_of(answers.begin(), answers.end(), [&](const TopK& one) { return lacks(one.work); });
  };
  if (any([](const QueryWork& work) { return work.bytes_read == 0; })) precision.bytes_read_mean = unknown;
  if (any([](const QueryWork& work) { return work.screened + work.candidates == 0; })) {
    precision.screened_mean = precision.candidates_mean = unknown;
  }
}

/// Descriptions are compared by name: two lookups of one backend give two objects.
bool are_built_alike(const Contestant& a, const Contestant& b) {
  return a.backend->name == b.backend->name && a.settings == b.settings;
}

}  // namespace

std::string describe(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

Measurer::Measurer(const Head& head, const MeasureOptions& options, Progress& progress)
    : head_(head), options_(options), progress_(progress), k_(options.largest_k()) {
  const auto all = static_cast<std::size_t>(head.test.rows());
  const std::size_t queries = options.queries == 0 ? all : std::min(options.queries, all);
  test_ = head.test.topRows(static_cast<Eigen::Index>(queries));
  timed_ = spread_runs(test_, options.timed, whole_batches(kSlice, options.batch));
  progress_.show("finding the contexts' leading directions");
  concentration_ = concentration_of(head_.train, head_.test);
  progress_.show("finding the exact answers");
  truth_ = find_ground_truth(head_.layer, test_, k_);
  fused_ = build({.backend = std::make_shared<const BackendDescription>(describe_fused()), .settings = {}});
}

Contestant Measurer::build(const Choice& choice) const {
  Contestant contestant;
  contestant.backend = choice.backend;
  contestant.settings = choice.settings;
  const PeakMemory memory;
  {
    const Stopwatch stopwatch(contestant.build_seconds);
    contestant.system = build_backend(choice, head_, progress_);
  }
  contestant.build_bytes = memory.growth();
  return contestant;
}

Precision Measurer::precision_of(const Contestant& contestant) const {
  progress_.show("measuring the precision of " + contestant.backend->name);
  const std::vector<TopK> answers =
      answer_contexts(*contestant.system, test_, {.k = k_, .effort = contestant.effort}, options_.batch);
  Precision precision = measure_precision(head_.layer, test_, truth_, answers);
  forget_untold_work(answers, precision);
  return precision;
}

Measurer::Times Measurer::time(std::span<const Contestant> contestants,
                               const std::set<std::size_t>& footprints) const {
  const ThreadPool pool(options_.threads);
  std::vector<Asker> askers;
  for (const Contestant& contestant : contestants)
    askers.emplace_back(contestant, timed_, options_, k_, pool);
  std::vector<ReadProbe> probes;
  for (const std::size_t bytes : footprints) probes.emplace_back(bytes);
  std::vector<TimedWork> works;
  for (Asker& asker : askers) {
    works.emplace_back([&asker](std::size_t first, std::size_t count) { asker.ask(first, count); });
  }
  for (ReadProbe& probe : probes) {
    works.emplace_back([this, &probe, &pool](std::size_t, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) probe.read(options_.threads, pool);
    });
  }
  std::optional<PinnedThread> pinned;
  if (options_.threads == 1) pinned.emplace();
  Times times;
  times.contestants =
      time_interleaved(works, static_cast<std::size_t>(timed_.rows()),
                       {.rounds = options_.rounds,
                        .slice = whole_batches(kSlice, options_.batch),
                        .progress = [this](double share) { progress_.show("timing", share); }});
  std::size_t next = contestants.size();
  for (const ReadProbe& probe : probes) {
    const std::size_t bytes =
        *std::next(footprints.begin(), static_cast<std::ptrdiff_t>(next - contestants.size()));
    times.read_gb_s[bytes] =
        static_cast<double>(probe.bytes()) / times.contestants[next].seconds_per_item * 1e-9;
    ++next;
  }
  times.contestants.resize(contestants.size());
  return times;
}

Measurement Measurer::measure(std::span<const Contestant> contestants) const {
  std::vector<Precision> precisions;
  std::vector<std::size_t> footprints;
  for (const Contestant& contestant : contestants) {
    precisions.push_back(precision_of(contestant));
    footprints.push_back(footprint(precisions.back().bytes_read_mean, head_.layer.bytes()));
  }
  std::set<std::size_t> distinct(footprints.begin(), footprints.end());
  distinct.insert(head_.layer.bytes());

  std::vector<Contestant> timed(contestants.begin(), contestants.end());
  const auto take_in = [&timed](const Contestant& contestant) {
    const auto is_it = [&](const Contestant& one) { return are_built_alike(one, contestant); };
    if (std::none_of(timed.begin(), timed.end(), is_it)) timed.push_back(contestant);
  };
  take_in(fused_);
  if (reference_) take_in(*reference_);
  const Times times = time(timed, distinct);

  Measurement measurement;
  measurement.read_gb_s = times.read_gb_s.at(head_.layer.bytes());
  double fused_seconds = 0.0;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Timing& timing = times.contestants[i];
    if (are_built_alike(timed[i], fused_)) fused_seconds = timing.seconds_per_item;
    if (reference_ ? !are_built_alike(timed[i], *reference_) : !timed[i].backend->traits.scans_all) continue;
    if (measurement.reference.empty() ||
        timing.seconds_per_item < measurement.reference_timing.seconds_per_item) {
      measurement.reference = timed[i].backend->name;
      measurement.reference_timing = timing;
    }
  }
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const Contestant& contestant = contestants[i];
    const Timing& timing = times.contestants[i];
    const double bytes_read = precisions[i].bytes_read_mean;
    measurement.rows.push_back(
        {.backend = contestant.backend->name,
         .params = values_of(*contestant.backend, contestant.settings),
         .settings = describe(contestant.settings),
         .timing = timing,
         .speedup = measurement.reference_timing.seconds_per_item / timing.seconds_per_item,
         .slower_than_fused = timing.seconds_per_item > fused_seconds,
         .precision = precisions[i],
         .index_bytes = contestant.system->index_bytes(),
         .build_seconds = contestant.build_seconds,
         .build_bytes = contestant.build_bytes,
         .read_gb_s = bytes_read / timing.seconds_per_item * 1e-9,
         .limit_gb_s = std::isnan(bytes_read) ? bytes_read : times.read_gb_s.at(footprints[i])});
  }
  return measurement;
}

}  // namespace topksoftmax::bench
