#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints which lines of include and src no test runs, and fails where more than 5 % are not. Tests that take a minute and
# reach no line of their own, those of whole heads and of distributions, are left out. Twenty minutes on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake/install-deps.sh gcovr
cmake --preset coverage
cmake --build --preset coverage --target topksoftmax-tests topksoftmax-c-test topksoftmax-mpi-tests
left_out='*RealHeads*:*SelfDraftOnTheModel*:*MatchesTheDistribution*:*DrawsFromTheBackends*:*AMillion*:*Guarded*:*KilledSave*:*KeepsItsPromise*:*ManyAnswersAreExact*'
find build/coverage -name '*.gcda' -delete
for shard in 0 1; do
  GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=2 build/coverage/tests/topksoftmax-tests \
    --gtest_filter="-$left_out" --gtest_brief=1 &
done
wait -n
wait -n
ctest --preset coverage --quiet -R '^Distributed.ranks-2$|^CInterface'
cmake --build --preset coverage-report
