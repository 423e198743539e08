// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/call.hpp"
#include "topksoftmax/distributed/communicator.hpp"
#include "topksoftmax/distributed/failure.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What every rank found for a question, brought to all of them: one collective where it fits into the room
/// that messages have at the time, which is what the question before needed, and two where it does not.
///
/// All that can fail comes before the first of them, and what it says is whether it did and what was asked:
/// so no rank waits for one that has given up, and ranks that were asked different questions find out.
class Exchange {
 public:
  /// Between so many ranks, whose communicator it is given later: what may fail comes before.
  explicit Exchange(std::size_t count) : count_(count) { make_room(0); }
  void connect(Communicator ranks) noexcept { ranks_ = std::move(ranks); }

  Communicator& ranks() { return ranks_; }

  /// One question. `pack` writes the `bytes` that this rank has to say, the same number on all ranks, to
  /// where it is called with; it may throw. Then take(said_by) is called, with what rank r has said at
  /// said_by(r); it must not throw. Throws what pack did; on the other ranks what was told of it; and on all
  /// ranks std::invalid_argument where they were asked for different things.
  template <class Pack, class Take>
  void ask(const Call& call, std::size_t bytes, const Pack& pack, const Take& take);

  /// In place of a question that was refused on this rank, while what it threw is being handled.
  void refuse();

 private:
  struct Header {
    std::uint64_t call = 0;
    std::uint64_t bytes = 0;
    std::uint64_t failed = 0;
  };
  static constexpr std::size_t kHeader = 32;
  static_assert(sizeof(Header) <= kHeader);
  static constexpr std::size_t kLeastRoom = 4 * Communicator::kUnit;
  static constexpr std::size_t kMostRoom = std::size_t{1} << 16;

  static std::size_t in_units(std::size_t bytes) {
    return (bytes + Communicator::kUnit - 1) / Communicator::kUnit * Communicator::kUnit;
  }

  void make_room(std::size_t bytes);
  void exchange_headers(const Header& header);
  Header header_of(std::size_t rank);
  int first_failed();
  void check_calls();

  std::size_t count_;
  std::mutex one_at_a_time_;
  Communicator ranks_;
  std::size_t room_ = kLeastRoom;  ///< of every rank's first message; the same on all ranks
  ScratchBuffer sent_;
  ScratchBuffer received_;
};

/// Room for a question of so many bytes, and for what the next one's first messages are then.
inline void Exchange::make_room(std::size_t bytes) {
  const std::size_t message = std::max(room_, in_units(kHeader + bytes));
  sent_.get<std::byte>(message);
  received_.get<std::byte>(message * count_);
}

inline void Exchange::exchange_headers(const Header& header) {
  auto* const sent = sent_.get<std::byte>(room_);
  std::memcpy(sent, &header, sizeof(header));
  ranks_.all_gather(sent, received_.get<std::byte>(room_ * count_), room_);
}

inline Exchange::Header Exchange::header_of(std::size_t rank) {
  Header header;
  std::memcpy(&header, received_.get<std::byte>(room_ * count_) + rank * room_, sizeof(header));
  return header;
}

/// The lowest rank that something has failed on; their number where there is none.
inline int Exchange::first_failed() {
  int rank = 0;
  while (rank < ranks_.size() && header_of(static_cast<std::size_t>(rank)).failed == 0) ++rank;
  return rank;
}

inline void Exchange::check_calls() {
  const Header first = header_of(0);
  for (std::size_t r = 1; r < count_; ++r) {
    const Header other = header_of(r);
    if (other.call == first.call && other.bytes == first.bytes) continue;
    throw std::invalid_argument(
        "sharded: rank " + std::to_string(r) +
        " was asked something else than rank 0; every rank must be asked the same, in "
        "the same order, by one thread at a time");
  }
}

template <class Pack, class Take>
void Exchange::ask(const Call& call, std::size_t bytes, const Pack& pack, const Take& take) {
  const std::lock_guard lock(one_at_a_time_);
  Failure failure;
  std::exception_ptr own;
  try {
    make_room(bytes);
    pack(sent_.get<std::byte>(kHeader + bytes) + kHeader);
  } catch (...) {
    own = std::current_exception();
    failure = Failure::current();
  }
  exchange_headers({call.hash(), bytes, own ? std::uint64_t{1} : 0});
  if (const int failed = first_failed(); failed != ranks_.size()) {
    const Communicator::Told told = ranks_.tell_of(failed, failure);
    if (own) std::rethrow_exception(own);
    told.failure.raise(told.rank);
  }
  check_calls();
  const std::size_t message = in_units(kHeader + bytes);
  const std::size_t apart = std::max(message, room_);
  auto* const received = received_.get<std::byte>(apart * count_);
  if (message > room_) ranks_.all_gather(sent_.get<std::byte>(message), received, message);
  room_ = std::clamp(message, kLeastRoom, kMostRoom);
  take([=](std::size_t r) -> const std::byte* { return received + r * apart + kHeader; });
}

inline void Exchange::refuse() {
  const std::lock_guard lock(one_at_a_time_);
  exchange_headers({0, 0, 1});
  ranks_.tell_of(first_failed(), Failure::current());
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
