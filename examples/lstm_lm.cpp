// SPDX-License-Identifier: Apache-2.0
//
// A real language model, its softmax layer answered in full and by faster heads: how right they are, how
// fast, and what they write.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lstm_model.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax::examples {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A line that counts up while something takes long; nothing where the output is no terminal.
void show_progress(const std::string& step, double done) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K  %s … %.0f %%", step.c_str(), 100.0 * done);
  if (done >= 1.0) std::fprintf(stderr, "\r\033[K");
}

/// A number from 0 to 1, the same on every platform.
double uniform(std::mt19937_64& engine) {
  return static_cast<double>(engine() >> 11) * 0x1p-53;
}

/// A token drawn from the full softmax: from the exact head's answer if the draw falls into its mass, else
/// from all.
TokenId sample(const TopK& answer, const SoftmaxLayer& layer, const Eigen::VectorXf& h,
               std::mt19937_64& engine) {
  double left = uniform(engine);
  for (std::size_t i = 0; i < answer.size(); ++i) {
    left -= std::exp(answer.log_prob(i));
    if (left < 0.0) return answer.ids[i];
  }
  const TopK all = Fused(layer).query(h, {.k = layer.vocab()});
  for (std::size_t i = answer.size(); i < all.size(); ++i) {
    left -= std::exp(all.log_prob(i));
    if (left < 0.0) return all.ids[i];
  }
  return all.ids.back();  // what rounding leaves
}

/// Contexts [count×d] that the model meets while it writes, drawing every token from the full softmax.
RowMajorMatrix write_contexts(const LstmModel& model, Eigen::Index count) {
  constexpr Eigen::Index streams = 256;
  std::mt19937_64 engine(1);
  const SoftmaxLayer layer = model.layer();
  const Fused exact(layer);
  LstmModel::State state = model.start(streams);
  std::vector<TokenId> tokens(streams, model.token("<eos>"));
  RowMajorMatrix contexts(count, model.dim());
  for (Eigen::Index filled = 0; filled < count; filled += streams) {
    show_progress("letting the model write", static_cast<double>(filled) / static_cast<double>(count));
    const RowMajorMatrix& H = model.read(tokens, state);
    const Eigen::Index taken = std::min(streams, count - filled);
    contexts.middleRows(filled, taken) = H.topRows(taken);
    const std::vector<TopK> answers = exact.query_batch(H, {.k = 64});
    for (Eigen::Index i = 0; i < streams; ++i) {
      const auto stream = static_cast<std::size_t>(i);
      tokens[stream] = sample(answers[stream], layer, H.row(i), engine);
    }
  }
  show_progress("letting the model write", 1.0);
  return contexts;
}

/// The largest difference between the model's log-probabilities and those stored in its file.
double check(const LstmModel& model) {
  std::vector<std::int32_t> tokens(65);
  std::vector<float> expected(64);
  model.file().read("check.tokens", std::span<std::int32_t>(tokens));
  model.file().read("check.log_probs", std::span<float>(expected));
  const Exact exact(model.layer());
  LstmModel::State state = model.start(1);
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Eigen::VectorXf h = model.read({tokens[i]}, state).row(0);
    const TopK all = exact.query(h, {.k = model.vocab()});
    const auto at = std::find(all.ids.begin(), all.ids.end(), tokens[i + 1]) - all.ids.begin();
    worst = std::max(worst,
                     std::abs(all.log_prob(static_cast<std::size_t>(at)) - static_cast<double>(expected[i])));
  }
  return worst;
}

void print_table(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                 const std::vector<const TopKSoftmax*>& heads) {
  const GroundTruth truth = find_ground_truth(layer, contexts, 5, 200);
  std::vector<TimedWork> works;
  std::vector<Workspace> workspaces(heads.size());
  TopK answer;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    works.push_back([&, i](std::size_t first, std::size_t count) {
      for (std::size_t q = first; q < first + count; ++q) {
        heads[i]->query(contexts.row(static_cast<Eigen::Index>(q)).data(), layer.dim(), {.k = 5},
                        workspaces[i], answer);
      }
    });
  }
  std::vector<Timing> timings;
  {
    const PinnedThread pinned;
    timings = time_interleaved(works, std::min<std::size_t>(1000, static_cast<std::size_t>(contexts.rows())),
                               {.rounds = 5, .progress = [](double done) { show_progress("timing", done); }});
  }
  show_progress("timing", 1.0);
  double baseline = timings[0].seconds_per_item;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (heads[i]->name() == "exact" || heads[i]->name() == "fused") {
      baseline = std::min(baseline, timings[i].seconds_per_item);
    }
  }
  std::printf("  %-10s %8s %8s %12s %9s %14s %10s\n", "head", "P@1", "P@5", "µs/query", "speedup",
              "KB read/query", "certified");
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::vector<TopK> answers = answer_contexts(*heads[i], contexts, {.k = 5});
    const Precision precision = measure_precision(layer, contexts, truth, answers);
    std::printf("  %-10s %8.4f %8.4f %11.2f %8.1f× %14.0f %9.0f%%\n", std::string(heads[i]->name()).c_str(),
                precision.at[0], precision.at[4], 1e6 * timings[i].seconds_per_item,
                baseline / timings[i].seconds_per_item, precision.bytes_read_mean / 1e3,
                100.0 * precision.certified_rate);
  }
}

/// Text as people write it: no blank before punctuation, a capital after a full stop.
class Typesetter {
 public:
  void add(const std::string& word) {
    const bool closes = word.size() == 1 && std::string(".,;:!?)").find(word) != std::string::npos;
    const bool clitic = word.size() > 1 && word[0] == '\'';
    std::string shown = word;
    if (capital_ && !shown.empty())
      shown[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(shown[0])));
    if (shown == "i") shown = "I";
    if (!closes && !clitic && !line_.empty()) {
      if (line_.size() + shown.size() + 1 > 96) {
        text_ += "  " + line_ + "\n";
        line_.clear();
      } else {
        line_ += ' ';
      }
    }
    line_ += shown;
    capital_ = word == "." || word == "!" || word == "?";
  }
  std::string text() const { return text_ + "  " + line_ + "\n"; }

 private:
  std::string text_;
  std::string line_;
  bool capital_ = true;
};

struct Written {
  std::string text;
  double words_per_second = 0.0;
};

/// Lets the model write through a head: each word is drawn from the head's 20 most probable ones, never
/// `<unk>`.
Written write_text(const LstmModel& model, const TopKSoftmax& head, std::size_t shown, std::size_t timed) {
  TokenMask mask(model.vocab());
  for (std::size_t id = 0; id < model.vocab(); ++id) mask.allow(static_cast<TokenId>(id));
  mask.forbid(model.token("<unk>"));
  const TokenId end = model.token("<eos>");
  mask.forbid(end);
  const QueryOptions options = {.k = 20, .allowed = mask};
  std::mt19937_64 engine(7);
  LstmModel::State state = model.start(1);
  Workspace workspace;
  TopK top;
  Typesetter text;
  std::vector<TokenId> token = {end};
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t n = 0; n < timed; ++n) {
    const Eigen::VectorXf h = model.read(token, state).row(0);
    head.query(h, options, workspace, top);
    double mass = 0.0;
    for (std::size_t i = 0; i < top.size(); ++i) mass += std::exp(top.log_prob(i));
    double left = mass * uniform(engine);
    std::size_t chosen = 0;
    while (chosen + 1 < top.size() && (left -= std::exp(top.log_prob(chosen))) >= 0.0) ++chosen;
    token[0] = top.ids[chosen];
    if (n < shown) text.add(model.word(token[0]));
  }
  return {text.text(), static_cast<double>(timed) / seconds_since(start)};
}

int run(const std::string& path) {
  const LstmModel model(path);
  const SoftmaxLayer layer = model.layer();
  std::printf("A language model of two LSTM layers: V = %zu words, d = %zu, a softmax layer of %.1f MB.\n",
              layer.vocab(), layer.dim(), static_cast<double>(layer.bytes()) / 1e6);
  std::printf("Its log-probabilities agree with those stored in the file to %.0e.\n\n", check(model));

  auto start = std::chrono::steady_clock::now();
  const RowMajorMatrix training = write_contexts(model, 60000);
  std::printf("The model wrote 60,000 words of its own in %.1f s: the contexts that the heads learn from.\n",
              seconds_since(start));
  start = std::chrono::steady_clock::now();
  L2SOptions options;
  options.budget = 40;
  options.progress = [](std::string_view step, double done) {
    show_progress("L2S: " + std::string(step), done);
  };
  const auto l2s = L2S::train(layer, training, options);
  show_progress("L2S", 1.0);
  std::printf("L2S learned %zu clusters and their candidate words in %.1f s.\n", options.clusters,
              seconds_since(start));
  start = std::chrono::steady_clock::now();
  const auto certified = Certified::build(layer, training);
  std::printf("Certified was built in %.1f s.\n\n", seconds_since(start));

  const RowMajorMatrix test = model.file().matrix("contexts.test");
  std::printf("Top-5 queries for %td contexts of real text that the model has never seen, one thread:\n\n",
              test.rows());
  const Exact exact(layer);
  const Fused fused(layer);
  print_table(layer, test, {&exact, &fused, l2s.get(), certified.get()});

  std::printf("\nWhat the model writes, each word drawn from the head's 20 best:\n");
  const std::vector<const TopKSoftmax*> writers = {&exact, l2s.get(), certified.get()};
  for (const TopKSoftmax* head : writers) {
    const Written written = write_text(model, *head, 90, 3000);
    std::printf("\n%s, %.0f words a second:\n%s", std::string(head->name()).c_str(), written.words_per_second,
                written.text.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace topksoftmax::examples

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: lstm_lm [MODEL.safetensors]   (without a model: the embedded one)\n");
    return 2;
  }
  try {
    return topksoftmax::examples::run(argc == 2 ? argv[1] : TOPKSOFTMAX_EXAMPLE_DATA);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lstm_lm: %s\n", error.what());
    return 1;
  }
}
