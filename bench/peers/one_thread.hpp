// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

namespace topksoftmax::bench {

/// While it lives, OpenMP has one thread to offer: a row of the table is one thread's work.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

}  // namespace topksoftmax::bench
