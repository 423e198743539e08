# SPDX-License-Identifier: Apache-2.0
#
# How tests are run on several ranks: ${mpi_run} N ${MPIEXEC_PREFLAGS} program ${MPIEXEC_POSTFLAGS}, in mpi_environment.
#
# More ranks than cores take turns, one thread each. A container's root may run Open MPI where it is told so. What MPI
# itself never frees is not ours to judge.
set(mpi_run "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG})
set(mpi_environment OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "ASAN_OPTIONS=$ENV{ASAN_OPTIONS}:detect_leaks=0")
