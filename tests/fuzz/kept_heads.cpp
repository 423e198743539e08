// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "conformance/backends.hpp"
#include "fuzz/choices.hpp"
#include "fuzz/fuzzed_head.hpp"
#include "fuzz/targets.hpp"

namespace topksoftmax::fuzz {
namespace {

constexpr std::size_t kLayers = 32;

/// The backend over a layer of random choices: the first that is accepted.
std::unique_ptr<FuzzedHead> random_head(const testing::Backend& backend, std::size_t layer) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(layer));
  for (;;) {
    std::array<std::uint8_t, 64> bytes;
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
    Choices choices(bytes);
    auto head = std::make_unique<FuzzedHead>(backend, choices);
    if (head->accepted()) return head;
  }
}

const FuzzedHead& kept_head(std::size_t backend, std::size_t layer) {
  const std::vector<testing::Backend>& backends = testing::all_backends();
  static std::vector<std::unique_ptr<FuzzedHead>> kept(backends.size() * kLayers);
  std::unique_ptr<FuzzedHead>& head = kept[backend * kLayers + layer];
  if (head == nullptr) head = random_head(backends[backend], layer);
  return *head;
}

}  // namespace

void kept_heads(Bytes input) {
  Choices choices(input);
  const std::size_t backend = choices.place(testing::all_backends().size());
  kept_head(backend, choices.place(kLayers)).ask(choices);
}

}  // namespace topksoftmax::fuzz
