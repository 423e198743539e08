// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/tuner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/screened_softmax.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;

constexpr Eigen::Index kVocab = 400;
constexpr Eigen::Index kDim = 16;

const SoftmaxLayer& layer() {
  static const SoftmaxLayer one = random_layer(kVocab, kDim, 1);
  return one;
}

const RowMajorMatrix& contexts() {
  static const RowMajorMatrix ones = clustered_contexts(400, kDim, 6, 3);
  return ones;
}

/// A target that 80 contexts can prove.
TuneOptions easy_options() {
  TuneOptions options;
  options.target = {.k = 3, .precision = 0.8};
  return options;
}

std::set<std::string> names_of(const TuneResult& result) {
  std::set<std::string> names;
  for (const TuneRow& row : result.rows) names.insert(row.backend);
  return names;
}

const TuneRow& row_of(const TuneResult& result, const std::string& backend) {
  return *std::find_if(result.rows.begin(), result.rows.end(),
                       [&](const TuneRow& row) { return row.backend == backend; });
}

/// What holds for every result.
void expect_consistent(const TuneResult& result, const TuneOptions& options) {
  ASSERT_NE(result.backend, nullptr);
  const TuneRow& chosen = result.row();
  EXPECT_EQ(chosen.backend, result.backend->name());
  EXPECT_EQ(chosen.effort, result.effort);
  EXPECT_EQ(result.backend->usual_effort(), result.effort);
  EXPECT_EQ(chosen.index_bytes, result.backend->index_bytes());
  EXPECT_EQ(chosen.reason, "");
  EXPECT_GE(chosen.lower_bound, options.target.precision);
  EXPECT_EQ(row_of(result, "fused").index_bytes, 0U);
  for (const char* always : {"fused", "certified", "quantized"})
    EXPECT_TRUE(names_of(result).contains(always));
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const TuneRow& row = result.rows[i];
    EXPECT_NE(row.code, "");
    EXPECT_EQ(row.reason.empty(), i == result.chosen) << row.backend;
    if (std::isnan(row.precision)) continue;
    if (row.reason.ends_with("× the time of the one taken")) {
      EXPECT_GE(row.microseconds, chosen.microseconds) << row.backend << " was measured to be faster";
    }
    if (row.exact) {
      EXPECT_EQ(row.precision, 1.0) << row.backend;
      EXPECT_EQ(row.lower_bound, 1.0) << row.backend;
    } else {
      EXPECT_LT(row.lower_bound, row.precision) << row.backend;
    }
  }
}

/// The share of the exact top-k that a result's backend finds in other contexts.
double precision_of(const TuneResult& result, const RowMajorMatrix& others) {
  const auto exact = Exact::make(result.backend->layer());
  std::size_t hits = 0;
  for (Eigen::Index i = 0; i < others.rows(); ++i) {
    const TopK right = exact->query(others.row(i), {.k = result.k});
    for (const TokenId id : result.backend->query(others.row(i), result.query()).ids)
      hits += std::count(right.ids.begin(), right.ids.end(), id) > 0 ? 1U : 0U;
  }
  return static_cast<double>(hits) / static_cast<double>(result.k * static_cast<std::size_t>(others.rows()));
}

/// What a run told of its progress.
struct Told {
  std::vector<double> shares;
  std::set<std::string> steps;
};

/// One that several tests look at.
struct EasyRun {
  Told told;
  TuneResult result;
};

const EasyRun& easy_run() {
  static const EasyRun run = [] {
    EasyRun made;
    TuneOptions options = easy_options();
    options.progress = [&made](std::string_view step, double done) {
      made.told.steps.emplace(step);
      made.told.shares.push_back(done);
    };
    made.result = tune(layer(), contexts(), options);
    return made;
  }();
  return run;
}

TEST(Tuner, TakesOneThatMeetsTheTarget) {
  const TuneOptions options = easy_options();
  const TuneResult& result = easy_run().result;
  expect_consistent(result, options);
  EXPECT_TRUE(result.finished);
  EXPECT_TRUE(result.within_budget);
  EXPECT_EQ(result.k, 3U);
  EXPECT_EQ(result.validation, 80U);
  EXPECT_EQ(result.fit, 320U);
  EXPECT_GE(result.provable, options.target.precision);
  EXPECT_LE(result.validation_needed, result.validation);
  EXPECT_GE(precision_of(result, clustered_contexts(200, kDim, 6, 3)), 0.8);
}

TEST(Tuner, TriesAllThatTheLayerAndContextsSufficeFor) {
  std::set<std::string> names = names_of(easy_run().result);
  names.erase("l2s");  // which learns only where k-means is worth it
  EXPECT_EQ(names, (std::set<std::string>{"adaptive", "certified", "certify:l2s-kmeans", "fgd", "fused",
                                          "greedy-mips", "l2s-kmeans", "lsh-mips", "pca-mips", "quantized",
                                          "row-clusters", "svd", "wta-lsh", "wta-lsh-each"}));
}

TEST(Tuner, TriesShortlistsWhereCountsAreGiven) {
  TuneOptions options = easy_options();
  options.counts.resize(kVocab);
  std::iota(options.counts.rbegin(), options.counts.rend(), 1);
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  ASSERT_TRUE(names_of(result).contains("shortlist"));
  EXPECT_NE(row_of(result, "shortlist").code.find(".counts = counts"), std::string::npos);
}

TEST(Tuner, MeasuresTheSameAgain) {
  const TuneResult again = tune(layer(), contexts(), easy_options());
  std::size_t in_both = 0;  // times decide which settings are
  for (const TuneRow& a : easy_run().result.rows) {
    for (const TuneRow& b : again.rows) {
      if (a.backend != b.backend || a.settings != b.settings || std::isnan(a.precision + b.precision))
        continue;
      ++in_both;
      EXPECT_EQ(a.code, b.code);
      EXPECT_EQ(a.effort, b.effort);
      EXPECT_EQ(a.precision, b.precision);
      EXPECT_EQ(a.lower_bound, b.lower_bound);
      EXPECT_EQ(a.bytes_read, b.bytes_read);
    }
  }
  EXPECT_GE(in_both, 3U);
}

TEST(Tuner, LearnsWhereKMeansCameClosestAndGivesUpWhatIsTooSlow) {
  TuneOptions options;  // a target that lists of ten tokens miss, on a layer that takes long to scan
  options.target = {.k = 5, .precision = 0.85};
  options.max_seconds = 3600.0;  // however slow the machine
  const TuneResult result = tune(random_layer(4000, 32, 1), clustered_contexts(1000, 32, 100, 3), options);
  expect_consistent(result, options);
  ASSERT_TRUE(names_of(result).contains("l2s"));
  const std::string learned = row_of(result, "l2s").settings;
  const std::string clusters = learned.substr(0, learned.find(' ') + 1);
  EXPECT_TRUE(std::any_of(result.rows.begin(), result.rows.end(), [&](const TuneRow& row) {
    return row.backend == "l2s-kmeans" && row.settings.starts_with(clusters) && row.precision > 0.0;
  })) << learned;

  const auto slow = std::find_if(result.rows.begin(), result.rows.end(),
                                 [](const TuneRow& row) { return row.reason.ends_with("at a glance"); });
  ASSERT_NE(slow, result.rows.end());
  EXPECT_TRUE(std::isnan(slow->precision));
  EXPECT_TRUE(std::isnan(slow->microseconds));
  EXPECT_GT(slow->index_bytes, 0U);
}

TEST(Tuner, DoesNotMeasureWhatIsTooLarge) {
  TuneOptions options = easy_options();
  options.budget.index_bytes = 30000;
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  EXPECT_LE(result.row().index_bytes, 30000U);
  const TuneRow& large = row_of(result, "wta-lsh");
  EXPECT_EQ(large.reason, "an index of more than 0.03 MB");
  EXPECT_TRUE(std::isnan(large.precision));
}

TEST(Tuner, AsksForProofWhereTheTargetIsOne) {
  TuneOptions options;
  options.target = {.k = 5, .precision = 1.0};
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  EXPECT_TRUE(result.row().exact);
  EXPECT_EQ(names_of(result),
            (std::set<std::string>{"certified", "certify:l2s-kmeans", "fused", "quantized"}));
  EXPECT_EQ(row_of(result, "quantized").reason, "not exact by proof");
  EXPECT_EQ(result.validation_needed, 0U);
  EXPECT_TRUE(result.backend->query(contexts().row(0), result.query()).certified);
}

TEST(Tuner, AsksForProofWhereTheContextsAreTooFewToShowMore) {
  TuneOptions options;
  options.target.precision = 0.999;
  const TuneResult result = tune(layer(), contexts().topRows(100), options);
  expect_consistent(result, options);
  EXPECT_TRUE(result.row().exact);
  EXPECT_EQ(names_of(result),
            (std::set<std::string>{"certified", "certify:l2s-kmeans", "fused", "quantized"}));
  EXPECT_LT(result.provable, 0.999);
  // What n right answers prove is a power of 1/n.
  const auto provable_from = [&](std::size_t count) {
    return std::pow(result.provable, static_cast<double>(result.validation) / static_cast<double>(count));
  };
  EXPECT_GE(provable_from(result.validation_needed), 0.999 - 1e-9);
  EXPECT_LT(provable_from(result.validation_needed - 2), 0.999);
}

TEST(Tuner, TakesFusedWhereNoIndexIsAllowed) {
  TuneOptions options = easy_options();
  options.max_seconds = 0.0;
  options.budget.index_bytes = 0;
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  EXPECT_EQ(result.backend->name(), "fused");
  EXPECT_NE(row_of(result, "certified").reason.find("an index of more than 0.00 MB"), std::string::npos);
}

TEST(Tuner, SaysThatNoneIsFastEnough) {
  TuneOptions options = easy_options();
  options.budget.microseconds = 1e-9;
  options.max_seconds = 0.0;
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  EXPECT_FALSE(result.within_budget);
}

TEST(Tuner, StopsWhenTheTimeIsOver) {
  TuneOptions options = easy_options();
  options.max_seconds = 0.0;
  const TuneResult result = tune(layer(), contexts(), options);
  expect_consistent(result, options);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.rows.size(), 3U);
}

TEST(Tuner, TellsOfItsProgress) {
  const auto& [shares, steps] = easy_run().told;
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GE(shares.front(), 0.0);
  EXPECT_EQ(shares.back(), 1.0);
  EXPECT_TRUE(steps.contains("trying svd"));
  EXPECT_TRUE(steps.contains("trying l2s-kmeans: spherical k-means"));
  EXPECT_TRUE(steps.contains("timing"));
}

TEST(Tuner, PassesOnWhatTheProgressThrows) {
  for (const std::string unwanted : {"trying svd", "trying l2s-kmeans: spherical k-means"}) {
    TuneOptions options = easy_options();
    options.progress = [&](std::string_view step, double) {
      if (step == unwanted) throw std::domain_error("enough");
    };
    EXPECT_THROW(tune(layer(), contexts(), options), std::domain_error) << unwanted;
  }
}

TEST(Tuner, PassesOnAnErrorOfTheProgressToo) {
  // Not to be taken for a backend's own refusal.
  TuneOptions options = easy_options();
  options.progress = [](std::string_view step, double) {
    if (step.starts_with("trying l2s-kmeans: ")) throw Error("enough");
  };
  EXPECT_EQ(error_of([&] { tune(layer(), contexts(), options); }), "enough");
}

TEST(Tuner, TakesTheHighestConfidence) {
  TuneOptions options = easy_options();
  options.confidence = 1.0 - 1e-9;
  options.max_seconds = 0.0;
  expect_consistent(tune(layer(), contexts(), options), options);
}

TEST(Tuner, TakesStridedContextsAFewOfThemAndAKBeyondV) {
  TuneOptions options;
  options.target = {.k = 50, .precision = 0.05};
  options.confidence = 0.5;
  const RowMajorMatrix wide = clustered_contexts(10, kDim + 3, 2, 1);
  const TuneResult result = tune(random_layer(12, kDim, 7), wide.leftCols(kDim), options);
  expect_consistent(result, options);
  EXPECT_EQ(result.k, 12U);
  EXPECT_EQ(result.backend->query(wide.row(0).head(kDim), result.query()).size(), 12U);
}

TEST(Tuner, TakesNoMoreContextsThanItMay) {
  TuneOptions options = easy_options();
  options.max_fit = 100;
  options.max_validation = 50;
  options.max_seconds = 0.0;
  const TuneResult result = tune(layer(), contexts(), options);
  EXPECT_EQ(result.fit, 100U);
  EXPECT_EQ(result.validation, 50U);
}

TEST(Tuner, JudgesOnAContextAsOftenAsItComes) {
  RowMajorMatrix half = contexts();
  half.bottomRows(half.rows() / 2).rowwise() = half.row(0).eval();
  const detail::Division division = detail::divide_contexts(Contexts::of(half), easy_options());
  for (const Contexts& part : {division.fit.view(), division.validation.view()}) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < part.count; ++i) {
      equal += std::equal(part.row(i), part.row(i) + kDim, half.data()) ? 1U : 0U;
    }
    EXPECT_NEAR(static_cast<double>(equal) / static_cast<double>(part.count), 0.5, 0.2);
  }
}

TEST(Tuner, ChoosesAmongExactBackendsAlone) {
  Registry registry;
  registry.add(Registry::standard().find("fused"));
  const TuneResult result = tune(layer(), contexts(), easy_options(), registry);
  EXPECT_EQ(result.backend->name(), "fused");
  EXPECT_EQ(result.rows.size(), 1U);
}

/// Answers nothing, and keeps what it was asked for.
struct Listening {
  std::vector<float>* heard;

  Candidates screen(const Query& query, Workspace& /*workspace*/) const {
    heard->push_back(query.h[0]);
    return Candidates::all();
  }
  std::string_view name() const { return "listening"; }
  std::size_t index_bytes() const { return 0; }
};

TEST(Tuner, TimesContextsFromAllOverTheText) {
  RowMajorMatrix numbered = RowMajorMatrix::Zero(10, kDim);
  for (Eigen::Index i = 0; i < numbered.rows(); ++i) numbered(i, 0) = static_cast<float>(i);
  std::vector<float> heard;
  const ScreenedSoftmax<Listening> head(layer(), {&heard});
  detail::Asker asker(head, Contexts::of(numbered), {.k = 1});
  asker.ask(0, 2, 4);
  asker.ask(2, 2, 4);
  EXPECT_EQ(heard, (std::vector<float>{0.0F, 2.0F, 5.0F, 7.0F}));
}

TEST(Tuner, RefusesWhatItCannotUse) {
  const auto refusal = [](const RowMajorMatrix& learned, const std::function<void(TuneOptions&)>& change) {
    TuneOptions options;
    change(options);
    return error_of([&] { tune(layer(), learned, options); });
  };
  const auto nothing = [](TuneOptions&) {};
  EXPECT_EQ(refusal(RowMajorMatrix(0, kDim), nothing), "tune: there are 0 contexts; at least 10 are needed");
  EXPECT_EQ(refusal(contexts().topRows(9), nothing), "tune: there are 9 contexts; at least 10 are needed");
  EXPECT_EQ(refusal(clustered_contexts(20, kDim + 1, 2, 1), nothing),
            "tune: contexts have 17 values, the layer's dimension is 16");
  RowMajorMatrix broken = contexts().topRows(20);
  broken(4, 2) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(broken, nothing), "tune: context 4 has a value that is not finite");

  const RowMajorMatrix& good = contexts();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.target.k = 0; }),
            "tune: target.k is 0; it must be at least 1");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.target.precision = 1.5; }),
            "tune: target.precision is 1.5; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(good, [&](TuneOptions& o) { o.target.precision = nan; }),
            "tune: target.precision is NaN; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.confidence = 1.0; }),
            "tune: confidence is 1; it must be above 0 and at most 1 - 1e-9");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.confidence = std::nextafter(1.0, 0.0); }),
            "tune: confidence is 0.9999999999999999; it must be above 0 and at most 1 - 1e-9");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.max_seconds = -1.0; }),
            "tune: max_seconds is -1; it must be at least 0");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.budget.microseconds = 0.0; }),
            "tune: budget.microseconds is 0; it must be above 0");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.max_fit = 0; }),
            "tune: max_fit is 0; it must be at least 1");
  EXPECT_EQ(refusal(good, [](TuneOptions& o) { o.max_validation = 0; }),
            "tune: max_validation is 0; it must be at least 1");
  EXPECT_EQ(refusal(good,
                    [](TuneOptions& o) {
                      o.counts = {1, 2};
                    }),
            "tune: the number of counts is 2; it must be V = 400, or 0");
  EXPECT_EQ(refusal(good,
                    [](TuneOptions& o) {
                      o.counts.resize(kVocab);
                      o.counts[3] = -1;
                    }),
            "tune: counts[3] is -1; it must be at least 0");
}

}  // namespace
}  // namespace topksoftmax
