// SPDX-License-Identifier: Apache-2.0
//
// Holds the backend to all that TopKSoftmax promises; GoogleTest's main() runs it.
#include <topksoftmax/certified/description.hpp>
#include <topksoftmax/conformance/suite.hpp>

#include "mine.hpp"

namespace topksoftmax {

conformance::Suite conformance::suite() {
  Suite suite;
  suite.registry.add<own_backend::Mine>().add(describe_certify());
  suite.subjects = {{"mine"},
                    {"mine", {{"kept", "100000"}}, "mine-all"},
                    {"mine", {{"order", "rising"}}, "mine-rising"},
                    {"certify:mine"}};
  return suite;
}

}  // namespace topksoftmax
