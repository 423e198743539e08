// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/registry/option_table.hpp"
#include "topksoftmax/registry/option_value.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;

enum class Colour : std::uint8_t { red, green };
constexpr OptionChoices<Colour, 2> colours = {.type = "Colour",
                                              .all = {{{"red", Colour::red}, {"green", Colour::green}}}};

struct Inner {
  std::size_t bands = 500;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("bands", options.bands, "W", between(1, 65535));
  }
};

struct Sample {
  std::size_t whole = 16;
  double real = 3e-4;
  std::optional<std::size_t> open = std::nullopt;
  Inner inner = {};
  Colour colour = Colour::red;
  bool flag = false;
  std::string text = "a";
  int whole_or_below = -1;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("whole", options.whole, "a whole number", at_least(2).and_at_most(1024));
    visit("real", options.real, "a real one", above(0).and_below(1));
    visit("open", options.open, "left to the backend", at_least(1));
    visit("inner", options.inner);
    visit("colour", options.colour, "one of two", colours);
    visit("flag", options.flag, "yes or no");
    visit("text", options.text, "anything");
    visit("whole_or_below", options.whole_or_below, "below 0 too");
  }
};

TEST(OptionLimits, AreWordedAsErrorsHaveThem) {
  EXPECT_EQ(at_least(1).text(), "at least 1");
  EXPECT_EQ(at_most(24).text(), "at most 24");
  EXPECT_EQ(at_least(2).and_at_most(1024).text(), "at least 2 and at most 1024");
  EXPECT_EQ(above(0).and_below(1).text(), "above 0 and below 1");
  EXPECT_EQ(above(0).and_at_most(1e6).text(), "above 0 and at most 1e6");
  EXPECT_EQ(from_to(1e-6, 1e6).text(), "from 1e-6 to 1e6");
  EXPECT_EQ(from_to(4, 4096).or_0().text(), "0 or from 4 to 4096");
  EXPECT_EQ(between(0.5, 65535).text(), "between 0.5 and 65535");
  EXPECT_EQ(OptionLimits().text(), "");
}

TEST(OptionLimits, AllowWhatTheySay) {
  EXPECT_TRUE(at_least(1).allow(1));
  EXPECT_FALSE(at_least(1).allow(0));
  EXPECT_FALSE(above(0).and_below(1).allow(0));
  EXPECT_FALSE(above(0).and_below(1).allow(1));
  EXPECT_TRUE(from_to(4, 8).or_0().allow(0));
  EXPECT_FALSE(from_to(4, 8).or_0().allow(3));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(at_least(1).allow(nan));
  EXPECT_TRUE(OptionLimits().allow(nan));
}

TEST(CheckOptions, NamesTheOptionItsValueAndItsLimits) {
  EXPECT_EQ(error_of([] { check_options("fgd", Sample{}); }), "");
  EXPECT_EQ(error_of([] { check_options("fgd", Sample{.whole = 1}); }),
            "fgd: whole is 1; it must be at least 2 and at most 1024");
  EXPECT_EQ(error_of([] { check_options("l2s", Sample{.real = 1.0}); }),
            "l2s: real is 1; it must be above 0 and below 1");
  EXPECT_EQ(error_of([] { check_options("svd", Sample{.open = 0}); }),
            "svd: open is 0; it must be at least 1");
  EXPECT_EQ(error_of([] { check_options("wta", Sample{.inner = {.bands = 0}}); }),
            "wta: bands is 0; it must be between 1 and 65535");
}

TEST(OptionTable, HasEveryOptionInOrderWithItsDefault) {
  const std::vector<OptionDescription> table = detail::option_table<Sample>();
  ASSERT_EQ(table.size(), 8U);
  const auto expect = [&](std::size_t at, const std::string& name, OptionType type, bool optional,
                          const std::string& value) {
    EXPECT_EQ(table[at].name, name);
    EXPECT_EQ(table[at].type, type) << name;
    EXPECT_EQ(table[at].optional, optional) << name;
    EXPECT_EQ(table[at].default_value, value) << name;
    EXPECT_FALSE(table[at].help.empty()) << name;
  };
  expect(0, "whole", OptionType::whole, false, "16");
  expect(1, "real", OptionType::real, false, "3e-04");
  expect(2, "open", OptionType::whole, true, "");
  expect(3, "bands", OptionType::whole, false, "500");
  expect(4, "colour", OptionType::choice, false, "red");
  expect(5, "flag", OptionType::boolean, false, "false");
  expect(6, "text", OptionType::text, false, "a");
  expect(7, "whole_or_below", OptionType::integer, false, "-1");
  EXPECT_EQ(table[0].limits.high, 1024.0);
  EXPECT_EQ(table[4].choices, (std::vector<std::string>{"red", "green"}));
  EXPECT_EQ(table[4].help, "one of two: red, green");
}

TEST(OptionTable, ReadsSettings) {
  const Settings settings = {{"whole", "3"},      {"real", "2.5e1"}, {"open", "7"}, {"bands", "60"},
                             {"colour", "green"}, {"flag", "true"},  {"text", "b"}, {"whole_or_below", "-4"}};
  const auto options = detail::options_of<Sample>("sample", settings);
  EXPECT_EQ(options.whole, 3U);
  EXPECT_EQ(options.real, 25.0);
  EXPECT_EQ(options.open, 7U);
  EXPECT_EQ(options.inner.bands, 60U);
  EXPECT_EQ(options.colour, Colour::green);
  EXPECT_TRUE(options.flag);
  EXPECT_EQ(options.text, "b");
  EXPECT_EQ(options.whole_or_below, -4);
}

TEST(OptionTable, RefusesWhatItCannotRead) {
  const auto refusal = [](const std::string& name, const std::string& text) {
    return error_of([&] { detail::options_of<Sample>("sample", {{name, text}}); });
  };
  EXPECT_EQ(refusal("hole", "1"),
            "backend sample has no parameter \"hole\"; it has whole, real, open, bands, colour, flag, text, "
            "whole_or_below");
  for (const char* wrong : {"", "1.5", "-1", "12x", "0x10", " 1"}) {
    EXPECT_EQ(refusal("whole", wrong),
              "sample.whole must be a whole number from 0 on, not \"" + std::string(wrong) + "\"");
  }
  EXPECT_EQ(refusal("whole_or_below", "a"), "sample.whole_or_below must be a whole number, not \"a\"");
  EXPECT_EQ(refusal("real", "fast"), "sample.real must be a number, not \"fast\"");
  EXPECT_EQ(refusal("flag", "yes"), "sample.flag must be true or false, not \"yes\"");
  EXPECT_EQ(refusal("colour", "blue"), "sample.colour must be one of red, green, not \"blue\"");
}

TEST(OptionCode, WritesSettingsAsCpp) {
  const auto code = [](const Settings& settings) {
    detail::OptionCode written(settings);
    const Sample defaults;
    Sample::visit(defaults, written);
    return written.text;
  };
  EXPECT_EQ(code({}), "");
  EXPECT_EQ(code({{"bands", "60"}, {"whole", "3"}, {"colour", "green"}, {"text", "b"}}),
            ".whole = 3, .inner = {.bands = 60}, .colour = Colour::green, .text = \"b\"");
}

}  // namespace
}  // namespace topksoftmax
