// SPDX-License-Identifier: Apache-2.0
//
// Every rank runs the same tests in the same order. Rank 0 prints; the others print what fails.
#include <gtest/gtest.h>
#include <mpi.h>

#include <iostream>

namespace {

/// The failures of a rank whose other output is left out.
class FailuresOfRank final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOfRank(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cout << "rank " << rank_ << ": " << (result.file_name() == nullptr ? "" : result.file_name()) << ":"
              << result.line_number() << ": " << result.message() << std::endl;
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::cout << "rank " << rank_ << ": " << test.test_suite_name() << "." << test.name() << " failed"
              << std::endl;
  }

  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOfRank(rank));
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
