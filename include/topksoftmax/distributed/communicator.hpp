// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/failure.hpp"
#include "topksoftmax/stopwatch.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a rank has done together with the others since it began, or since it was asked to forget.
struct CollectiveWork {
  std::size_t calls = 0;  ///< collective operations
  std::size_t bytes = 0;  ///< that this rank has received in them
  double seconds = 0.0;   ///< in them; waiting for the slowest rank is a part of it
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A communicator of its own, with the ranks of another one, so that no message of the program's meets ours.
/// Making it and deleting it is collective. Whatever goes wrong within MPI ends the program, as it does by
/// MPI's default: a rank that dies takes the others with it.
class Communicator {
 public:
  /// What every message is a multiple of, so that its length is an int.
  static constexpr std::size_t kUnit = 64;

  Communicator() = default;
  explicit Communicator(MPI_Comm of) {
    MPI_Comm_dup(of, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Type_contiguous(static_cast<int>(kUnit), MPI_BYTE, &unit_);
    MPI_Type_commit(&unit_);
  }
  ~Communicator() {
    int finalized = 0;
    if (comm_ != MPI_COMM_NULL) MPI_Finalized(&finalized);
    if (comm_ == MPI_COMM_NULL || finalized != 0) return;
    MPI_Type_free(&unit_);
    MPI_Comm_free(&comm_);
  }
  Communicator(Communicator&& other) noexcept { *this = std::move(other); }
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(unit_, other.unit_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    std::swap(work_, other.work_);
    return *this;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }

  /// all[r·bytes …] = what rank r has at `mine`, `bytes` a multiple of kUnit.
  void all_gather(const void* mine, void* all, std::size_t bytes) {
    const int units = static_cast<int>(bytes / kUnit);
    timed(bytes * ranks(), [&] { MPI_Allgather(mine, units, unit_, all, units, unit_, comm_); });
  }

  /// The sum of all ranks' values modulo 2⁶⁴.
  std::uint64_t sum(std::uint64_t value) {
    timed(sizeof(value), [&] { MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, comm_); });
    return value;
  }

  /// A failure that all ranks know of.
  struct Told {
    int rank;  ///< whose it is; size(): there is none
    Failure failure;
  };
  /// That of the lowest rank whose own is any.
  Told tell(const Failure& own) {
    int lowest = own.kind == Failure::Kind::none ? size_ : rank_;
    timed(sizeof(lowest), [&] { MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, comm_); });
    return lowest == size_ ? Told{size_, {}} : tell_of(lowest, own);
  }

  /// The same where every rank knows which one it is.
  Told tell_of(int failed, const Failure& own) {
    Told told{failed, own};
    const int bytes = static_cast<int>(sizeof(Failure));
    timed(sizeof(Failure), [&] { MPI_Bcast(&told.failure, bytes, MPI_BYTE, failed, comm_); });
    return told;
  }

  const CollectiveWork& work() const { return work_; }
  void forget_work() { work_ = {}; }

 private:
  template <class Call>
  void timed(std::size_t bytes, const Call& call) {
    {
      const Stopwatch watch(work_.seconds);
      call();
    }
    work_.bytes += bytes;
    ++work_.calls;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Datatype unit_ = MPI_DATATYPE_NULL;
  int rank_ = 0;
  int size_ = 1;
  CollectiveWork work_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
