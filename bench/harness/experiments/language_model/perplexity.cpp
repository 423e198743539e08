// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/perplexity.hpp"

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/experiments/language_model/request.hpp"
#include "harness/reports/notes.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"
#include "lstm_model.hpp"
#include "topksoftmax/decoding/low_rank_log_prob.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kTokens = 20000;
constexpr std::size_t kTimed = 500;

/// The paper's rank for d = 200: a tenth of d.
std::size_t paper_rank(std::size_t dim) {
  return std::max<std::size_t>(1, dim / 10);
}

/// test.tokens of a file, or else text that the model writes.
std::vector<TokenId> read_text(const LanguageModelRequest& request) {
  std::vector<TokenId> tokens;
  if (!request.text.empty()) {
    const SafetensorsFile file = SafetensorsFile::open(request.text);
    constexpr std::size_t one_dimension[] = {SafetensorsFile::any_size};
    tokens.resize(file.tensor("test.tokens", one_dimension).shape[0]);
    file.read("test.tokens", std::span<std::int32_t>(tokens));
    tokens.resize(std::min(tokens.size(), kTokens + 1));
    for (const TokenId token : tokens) {
      if (token >= 0 && static_cast<std::size_t>(token) < request.model.vocab()) continue;
      throw file.error("test.tokens", "has a token " + std::to_string(token) + "; V is " +
                                          std::to_string(request.model.vocab()));
    }
    if (tokens.size() < 2) throw file.error("test.tokens", "has fewer than two tokens");
    return tokens;
  }
  request.progress.show("letting the model write a text");
  const Fused head(request.model.layer());
  examples::LstmModel::State state = request.model.start(1);
  Sampler sampler;
  RandomStream random(2);
  tokens.push_back(request.model.token("<eos>"));
  while (tokens.size() <= kTokens / 4) {
    const RowMajorMatrix& h = request.model.read(std::span(tokens).last(1), state);
    tokens.push_back(sampler.draw(head, h.data(), head.layer().dim(), random, {.probabilities = false}).id);
  }
  return tokens;
}

/// The context [count×d] of each token but the first, as the model reads the text.
RowMajorMatrix read_contexts(const examples::LstmModel& model, const std::vector<TokenId>& tokens,
                             std::size_t dim) {
  RowMajorMatrix contexts(static_cast<Eigen::Index>(tokens.size()) - 1, static_cast<Eigen::Index>(dim));
  examples::LstmModel::State state = model.start(1);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    contexts.row(i) = model.read(std::span(tokens).subspan(static_cast<std::size_t>(i), 1), state).row(0);
  }
  return contexts;
}

/// One way to a token's log-probability.
struct Scorer {
  std::string name;
  std::string outside;  ///< what counts the tokens that are no candidates
  std::function<double(const float* h, TokenId token, Workspace& workspace)> log_prob;
};

/// The exact one, and each of the chosen backends: by its own log Z if it has learned what is outside of its
/// candidates, or else, if it has candidates, with low-rank logits there. The others are named in `left_out`.
std::vector<Scorer> make_scorers(const LanguageModelRequest& request, const float* any_context,
                                 std::size_t rank, std::vector<std::string>& left_out) {
  const SoftmaxLayer& layer = request.head.layer;
  const std::size_t dim = layer.dim();
  std::vector<Scorer> scorers = {{"exact", "", [=](const float* h, TokenId token, Workspace& workspace) {
                                    return exact_log_prob(layer, h, dim, token, workspace);
                                  }}};
  for (const Choice& choice : request.choices) {
    const std::shared_ptr<const TopKSoftmax> head = build_backend(choice, request.head, request.progress);
    if (head->log_z_error()) {
      scorers.push_back(
          {choice.backend->name, "learned log Z", [=](const float* h, TokenId token, Workspace& workspace) {
             return log_prob_by(*head, h, dim, token, workspace);
           }});
      continue;
    }
    Workspace probing;
    if (!head->candidates(any_context, dim, {}, probing)) {
      left_out.push_back(choice.backend->name);
      continue;
    }
    scorers.push_back({choice.backend->name, "rank " + std::to_string(rank),
                       [=, low_rank = LowRankLogProb::build(head, rank)](const float* h, TokenId token,
                                                                         Workspace& workspace) {
                         return low_rank(h, dim, token, workspace);
                       }});
  }
  return scorers;
}

}  // namespace

nlohmann::ordered_json run_perplexity(const LanguageModelRequest& request, std::ostream& out) {
  const std::vector<TokenId> tokens = read_text(request);
  const std::size_t count = tokens.size() - 1;
  const std::size_t dim = request.head.layer.dim();
  const RowMajorMatrix contexts = read_contexts(request.model, tokens, dim);
  const std::size_t rank = paper_rank(dim);
  std::vector<std::string> left_out;
  const std::vector<Scorer> scorers = make_scorers(request, contexts.data(), rank, left_out);
  std::vector<Workspace> workspaces(scorers.size());
  const auto log_prob = [&](std::size_t scorer, std::size_t i) {
    return scorers[scorer].log_prob(contexts.row(static_cast<Eigen::Index>(i)).data(), tokens[i + 1],
                                    workspaces[scorer]);
  };

  std::vector<TimedWork> works;
  for (std::size_t s = 0; s < scorers.size(); ++s) {
    works.push_back([&, s](std::size_t first, std::size_t size) {
      for (std::size_t i = first; i < first + size; ++i) log_prob(s, i);
    });
  }
  std::vector<Timing> timings;
  {
    request.progress.show("timing");
    const PinnedThread pinned;
    timings = time_interleaved(works, std::min(kTimed, count), {});
  }
  Table table({"head", "perplexity", "of the exact", "µs/token", "speedup", "outside of the candidates"});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  double exact = 0.0;
  for (std::size_t s = 0; s < scorers.size(); ++s) {
    request.progress.show("scoring with " + scorers[s].name);
    Perplexity perplexity;
    for (std::size_t i = 0; i < count; ++i) perplexity.add(log_prob(s, i));
    if (s == 0) exact = perplexity.value();
    const double us_per_token = 1e6 * timings[s].seconds_per_item;
    const double speedup = timings[0].seconds_per_item / timings[s].seconds_per_item;
    table.add({scorers[s].name, fixed(perplexity.value(), 2), fixed(perplexity.value() / exact, 4),
               three_digits(us_per_token), three_digits(speedup), scorers[s].outside});
    rows.push_back({{"backend", scorers[s].name},
                    {"perplexity", perplexity.value()},
                    {"of_exact", perplexity.value() / exact},
                    {"us_per_token", us_per_token},
                    {"speedup", speedup},
                    {"tokens", count},
                    {"outside", scorers[s].outside}});
  }
  request.progress.clear();
  out << count
      << (request.text.empty() ? " tokens that the model wrote" : " tokens of " + request.text.string())
      << '\n';
  const std::vector<std::string> notes = remarks_on_spread(largest_spread(timings));
  print_notes(notes, out);
  out << '\n';
  table.print(out);
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    out << (i == 0 ? "\nWithout candidates of their own: " : ", ") << left_out[i];
  }
  if (!left_out.empty()) out << '\n';
  return {{"notes", notes}, {"perplexity", std::move(rows)}, {"left_out", left_out}};
}

}  // namespace topksoftmax::bench
