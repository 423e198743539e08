// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/language_model/request.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"
#include "language_model_steps.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax::bench {
namespace {

using examples::BeamReader;
using examples::LstmModel;
using examples::TextReader;

constexpr std::size_t kTokens = 200;
constexpr std::size_t kSearchLength = 30;
constexpr std::size_t kRounds = 5;
constexpr std::size_t kDrafts = 4;

/// What a decoder did.
struct Decoded {
  double tokens = 0.0;
  double seconds = 0.0;
  double model_seconds = 0.0;
  double acceptance = 0.0;         ///< r, of speculative sampling
  double predicted_seconds = 0.0;  ///< likewise
  double spread = 0.0;             ///< of the times a token of all rounds

  double per_token() const { return seconds / tokens; }
  /// Of the time: all that is not the model's.
  double softmax_share() const { return 1.0 - model_seconds / seconds; }
};

Decoded write_greedily(const LstmModel& model, const TopKSoftmax& head) {
  Decoded decoded = {.tokens = kTokens};
  std::vector<TokenId> text = {model.token("<eos>")};
  TextReader reader(model);
  Workspace workspace;
  TopK top;
  {
    const Stopwatch watch(decoded.seconds);
    for (std::size_t n = 0; n < kTokens; ++n) {
      head.query(reader(text), head.layer().dim(), {.k = 1, .probabilities = false}, workspace, top);
      text.push_back(top.ids[0]);
    }
  }
  decoded.model_seconds = reader.seconds();
  return decoded;
}

/// Tokens are positions of the search, whatever the length of the best hypothesis.
Decoded search(const LstmModel& model, const TopKSoftmax& head, std::size_t beam) {
  Decoded decoded;
  const bool learned = head.log_z_error().has_value();
  const double tolerance = learned ? std::numeric_limits<double>::infinity() : 0.0;
  const BeamSearchOptions options = {.beam = beam,
                                     .n_best = beam,
                                     .max_length = kSearchLength,
                                     .end = model.token("<eos>"),
                                     .query = {.probabilities = false, .log_z_tolerance = tolerance}};
  for (const char* const first : {"the", "he", "it"}) {
    BeamReader reader(model, model.start(1));
    const TokenId start[] = {model.token(first)};
    {
      const Stopwatch watch(decoded.seconds);
      beam_search(
          head, start,
          [&](std::span<const BeamRow> rows) {
            decoded.tokens += 1.0;
            return reader(rows);
          },
          options);
    }
    decoded.model_seconds += reader.seconds();
  }
  return decoded;
}

Decoded sample(const LstmModel& model, const TopKSoftmax& head, const SamplingOptions& sampling) {
  Decoded decoded = {.tokens = kTokens};
  std::vector<TokenId> text = {model.token("<eos>")};
  TextReader reader(model);
  Sampler sampler(sampling);
  RandomStream random(1);
  {
    const Stopwatch watch(decoded.seconds);
    for (std::size_t n = 0; n < kTokens; ++n) {
      text.push_back(
          sampler.draw(head, reader(text), head.layer().dim(), random, {.probabilities = false}).id);
    }
  }
  decoded.model_seconds = reader.seconds();
  return decoded;
}

Decoded speculate(const LstmModel& model, const TopKSoftmax& head, const SamplingOptions& sampling) {
  Decoded decoded = {.tokens = kTokens};
  std::vector<TokenId> text = {model.token("<eos>")};
  TextReader reader(model);
  RandomStream random(1);
  const ContextModel contexts = [&](std::span<const TokenId> tokens, float* h) {
    std::copy_n(reader(tokens), model.dim(), h);
  };
  SpeculativeReport report;
  {
    const Stopwatch watch(decoded.seconds);
    report = self_draft(text, kTokens, head, contexts, random,
                        {.sampling = sampling, .speculative = {.drafts = kDrafts}});
  }
  decoded.model_seconds = reader.seconds();
  decoded.acceptance = report.acceptance_rate();
  decoded.predicted_seconds = report.predicted_seconds(kTokens);
  return decoded;
}

/// A head, as the table names it.
struct NamedHead {
  std::string name;
  std::shared_ptr<const TopKSoftmax> head;
};

struct Decoder {
  std::string name;
  std::function<Decoded(const LstmModel&, const TopKSoftmax&)> run;
  std::string baseline;  ///< the decoder, with an exact head, that it is compared with
  bool drafts = false;   ///< the head drafts
};

std::vector<Decoder> decoders() {
  const SamplingOptions nucleus = {.top_p = 0.9};
  std::vector<Decoder> all = {{"greedy", write_greedily, "greedy"}};
  for (const std::size_t beam : {5U, 12U}) {
    const std::string name = "beam " + std::to_string(beam);
    all.push_back(
        {name, [beam](const LstmModel& model, const TopKSoftmax& head) { return search(model, head, beam); },
         name});
  }
  for (const SamplingOptions& sampling : {SamplingOptions{}, nucleus}) {
    const std::string what = sampling.top_p < 1.0 ? ", top-p 0.9" : "";
    all.push_back({"sampling" + what,
                   [sampling](const LstmModel& model, const TopKSoftmax& head) {
                     return sample(model, head, sampling);
                   },
                   "sampling" + what});
    all.push_back({"speculative K=" + std::to_string(kDrafts) + what,
                   [sampling](const LstmModel& model, const TopKSoftmax& head) {
                     return speculate(model, head, sampling);
                   },
                   "sampling" + what, true});
  }
  return all;
}

/// The run of median speed, heads in turn.
std::vector<Decoded> measure(const LanguageModelRequest& request, const Decoder& decoder,
                             std::span<const NamedHead> heads) {
  const PinnedThread pinned;
  std::vector<std::vector<Decoded>> runs(heads.size());
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      request.progress.show(decoder.name + ", " + heads[i].name);
      runs[i].push_back(decoder.run(request.model, *heads[i].head));
    }
  }
  std::vector<Decoded> medians;
  for (std::vector<Decoded>& of_head : runs) {
    std::vector<double> times;
    for (const Decoded& run : of_head) times.push_back(run.per_token());
    std::nth_element(of_head.begin(), of_head.begin() + kRounds / 2, of_head.end(),
                     [](const Decoded& a, const Decoded& b) { return a.per_token() < b.per_token(); });
    medians.push_back(of_head[kRounds / 2]);
    medians.back().spread = detail::spread_of(times);
  }
  return medians;
}

/// The heads, and L2S once more if it is one of them: drafts are drawn, so lists that hold most of the
/// probability are worth more than the shortest that hold the five best tokens.
std::vector<NamedHead> with_long_lists(const LanguageModelRequest& request, std::vector<NamedHead> heads) {
  for (const Choice& choice : request.choices) {
    if (choice.backend->name != "l2s") continue;
    Choice longer = choice;
    for (const auto& [name, value] :
         {std::pair("clusters", "50"), std::pair("budget", "600"), std::pair("label_count", "64"),
          std::pair("label_depth", "256"), std::pair("rounds", "1")}) {
      longer.settings[name] = value;
    }
    heads.push_back({"l2s, long lists", build_backend(longer, request.head, request.progress)});
  }
  return heads;
}

}  // namespace

nlohmann::ordered_json run_decode(const LanguageModelRequest& request, std::ostream& out) {
  std::vector<NamedHead> heads;
  for (const Choice& choice : request.choices)
    heads.push_back({choice.backend->name, build_backend(choice, request.head, request.progress)});
  if (std::none_of(heads.begin(), heads.end(), [](const NamedHead& one) { return one.head->exhaustive(); })) {
    heads.insert(heads.begin(), {"fused", std::make_shared<const Fused>(request.head.layer)});
  }
  const std::vector<NamedHead> drafting = with_long_lists(request, heads);
  std::map<std::string, double> baselines;
  Table table({"decoder", "head", "tokens/s", "speedup", "softmax layer", "r", "predicted"});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  double spread = 0.0;
  for (const Decoder& decoder : decoders()) {
    const std::vector<NamedHead>& asked = decoder.drafts ? drafting : heads;
    const std::vector<Decoded> measured = measure(request, decoder, asked);
    if (decoder.name == decoder.baseline) {
      double fastest = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < heads.size(); ++i) {
        if (heads[i].head->exhaustive()) fastest = std::min(fastest, measured[i].per_token());
      }
      baselines[decoder.name] = fastest;
    }
    const double baseline = baselines[decoder.baseline];
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Decoded& one = measured[i];
      spread = std::max(spread, one.spread);
      const bool drafted = one.acceptance > 0.0;
      const double speedup = baseline / one.per_token();
      const double predicted = drafted ? baseline * kTokens / one.predicted_seconds : 0.0;
      table.add({decoder.name, asked[i].name, three_digits(1.0 / one.per_token()), three_digits(speedup),
                 three_digits(100.0 * one.softmax_share()) + " %", drafted ? fixed(one.acceptance, 2) : "",
                 drafted ? three_digits(predicted) : ""});
      rows.push_back({{"decoder", decoder.name},
                      {"backend", asked[i].name},
                      {"tokens_per_s", 1.0 / one.per_token()},
                      {"speedup", speedup},
                      {"softmax_share", one.softmax_share()}});
      if (drafted) {
        rows.back()["acceptance"] = one.acceptance;
        rows.back()["predicted_speedup"] = predicted;
      }
    }
  }
  request.progress.clear();
  table.print(out);
  out << "\nSpeedups are over the fastest exact head of the same decoder, for speculative sampling over "
         "sampling;\nr and the speedup that it predicts are the speculative-sampling paper's. Beam search "
         "counts positions,\nand compares by a head's learned log Z where it has one. The softmax layer's "
         "share of the time is all\nthat is not the model's.\n";
  const std::vector<std::string> notes = remarks_on_spread(spread);
  print_notes(notes, out);
  return {{"notes", notes}, {"decoding", std::move(rows)}};
}

}  // namespace topksoftmax::bench
