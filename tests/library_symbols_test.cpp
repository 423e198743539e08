// SPDX-License-Identifier: Apache-2.0
//
// What a library of other people's programs must not do, read from the symbols of its object files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace topksoftmax {
namespace {

struct Symbol {
  std::string object;   ///< the file that has it
  std::string section;  ///< *UND* for one that is wanted from elsewhere
  std::string name;
  bool offered;  ///< to other object files and to users of a shared library
};

/// The symbols that `objdump --syms --demangle` prints: behind the address there are flags, the first of
/// which is l for what is local to the object; behind the section's name there is a tab, then the size,
/// perhaps the visibility, and the name.
std::vector<Symbol> parse_symbols(const std::string& listing) {
  std::vector<Symbol> symbols;
  std::istringstream lines(listing);
  std::string object;
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t end = line.find(":     file format"); end != std::string::npos) {
      object = line.substr(line.rfind('/', end) + 1, end - line.rfind('/', end) - 1);
      continue;
    }
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    std::string name = line.substr(std::min(line.find(' ', tab), line.size() - 1) + 1);
    bool offered = line[line.find(' ') + 1] != 'l';
    for (const std::string_view visibility : {".hidden ", ".protected ", ".internal "}) {
      if (!name.starts_with(visibility)) continue;
      name.erase(0, visibility.size());
      offered = false;
    }
    symbols.push_back(
        {object, line.substr(line.rfind(' ', tab) + 1, tab - line.rfind(' ', tab) - 1), name, offered});
  }
  return symbols;
}

bool is_writable(std::string_view section) {
  if (section.starts_with(".data.rel.ro")) return false;  // read-only once addresses are filled in
  for (const std::string_view writable : {".data", ".bss", ".tdata", ".tbss", "*COM*"}) {
    if (section.starts_with(writable)) return true;
  }
  return false;
}

const std::set<std::string_view>& forbidden_functions() {
  static const std::set<std::string_view> names = {
      // prints
      "std::cout", "std::cerr", "std::clog", "std::wcout", "std::wcerr", "std::wclog", "stdout", "stderr",
      "printf", "vprintf", "fprintf", "vfprintf", "dprintf", "vdprintf", "__printf_chk", "__vprintf_chk",
      "__fprintf_chk", "__vfprintf_chk", "puts", "putchar", "fputs", "fputc", "putc", "fwrite", "perror",
      "syslog",
      // ends the program
      "abort", "exit", "_exit", "_Exit", "quick_exit", "raise", "kill",
#ifdef NDEBUG  // assertions do
      "hwy::Abort(char const*, int, char const*, ...)", "__assert_fail",
#endif
#ifndef __clang__              // in whose code noexcept functions call it
#ifdef TOPKSOFTMAX_HAS_OPENMP  // and std::thread does where it takes the place of that
      "std::terminate()",
#endif
#endif
      // reads or changes what belongs to the whole program
      "getenv", "secure_getenv", "setenv", "unsetenv", "putenv", "environ", "setlocale", "signal",
      "sigaction", "rand", "srand", "atexit"};
  return names;
}

/// Memory that is written to and outlives a call, with the reason why it may.
bool is_accepted_state(std::string_view name) {
  constexpr std::array<std::string_view, 4> accepted = {
      // the kernels that this machine can run, found at the first use and constant from then on
      "topksoftmax::compiled::kernels::detail::(anonymous namespace)::list()::all",
      "guard variable for topksoftmax::compiled::kernels::detail::(anonymous namespace)::list()::all",
      // names of critical regions, which OpenMP's runtimes keep their locks in
      ".gomp_critical_user_", ".omp_"};
  return std::any_of(accepted.begin(), accepted.end(),
                     [name](std::string_view start) { return name.starts_with(start); }) ||
         name.starts_with("DW.ref.");  // a pointer that the linker fills in, for exceptions
}

/// A line for each: the object and the symbol.
std::string described(const std::vector<Symbol>& symbols) {
  std::string text;
  for (const Symbol& symbol : symbols) text += symbol.object + ": " + symbol.name + "\n";
  return text;
}

TEST(LibrarySymbols, AreReadAsObjdumpPrintsThem) {
  const std::vector<Symbol> symbols = parse_symbols(
      "\n/some where/certify.cpp.o:     file format elf64-x86-64\n\nSYMBOL TABLE:\n"
      "0000000000000000         *UND*\t0000000000000000 std::cerr\n"
      "0000000000000000 u     O .bss._ZZ1x\t0000000000000018 .hidden Eigen::f(long, int*)::m_cache\n"
      "0000000000000000 l    d  .text\t0000000000000000 .text\n"
      "0000000000000000 g     F .text\t0000000000000030 topksoftmax::f(long)\n");
  ASSERT_EQ(symbols.size(), 4U);
  EXPECT_EQ(symbols[0].object, "certify.cpp.o");
  EXPECT_EQ(symbols[0].section, "*UND*");
  EXPECT_EQ(symbols[0].name, "std::cerr");
  EXPECT_EQ(symbols[1].section, ".bss._ZZ1x");
  EXPECT_FALSE(symbols[1].offered);
  EXPECT_FALSE(symbols[2].offered);
  EXPECT_EQ(symbols[1].name, "Eigen::f(long, int*)::m_cache");
  EXPECT_TRUE(is_writable(symbols[1].section));
  EXPECT_FALSE(is_writable(symbols[2].section));
  EXPECT_FALSE(is_writable(".data.rel.ro.local"));
  EXPECT_EQ(symbols[3].name, "topksoftmax::f(long)");
  EXPECT_TRUE(symbols[3].offered);
}

/// The symbols of the library that was built, or a reason to skip.
class LibrarySymbolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef TOPKSOFTMAX_SYMBOLS_UNREADABLE
    GTEST_SKIP() << TOPKSOFTMAX_SYMBOLS_UNREADABLE;
#else
    struct Close {
      void operator()(std::FILE* pipe) const { pclose(pipe); }
    };
    const std::unique_ptr<std::FILE, Close> pipe(popen(TOPKSOFTMAX_LIST_SYMBOLS, "r"));
    ASSERT_NE(pipe, nullptr);
    std::string listing;
    std::array<char, 65536> part;
    for (std::size_t size = 0; (size = std::fread(part.data(), 1, part.size(), pipe.get())) > 0;) {
      listing.append(part.data(), size);
    }
    symbols_ = parse_symbols(listing);
    const bool readable = std::any_of(symbols_.begin(), symbols_.end(), [](const Symbol& symbol) {
      return symbol.section.starts_with(".text") &&
             symbol.name.starts_with("topksoftmax::compiled::TopKSoftmax::query(");
    });
    ASSERT_TRUE(readable) << "the library's own functions are not among its symbols: "
                          << TOPKSOFTMAX_LIST_SYMBOLS << "\n"
                          << listing.substr(0, 1000);
#endif
  }

  template <class Condition>
  std::vector<Symbol> which(const Condition& condition) const {
    std::vector<Symbol> found;
    std::copy_if(symbols_.begin(), symbols_.end(), std::back_inserter(found), condition);
    return found;
  }

  std::vector<Symbol> symbols_;
};

TEST_F(LibrarySymbolsTest, NothingPrintsEndsTheProgramOrReadsItsEnvironment) {
  const auto offending = which([](const Symbol& symbol) {
    return symbol.section == "*UND*" && forbidden_functions().contains(symbol.name);
  });
  EXPECT_TRUE(offending.empty()) << "these use what a library must not:\n" << described(offending);
}

TEST_F(LibrarySymbolsTest, NoneIsEigens) {
  // A program's own flags change what Eigen's functions do, and the linker keeps one of each.
  const auto offending =
      which([](const Symbol& symbol) { return symbol.name.find("Eigen::") != std::string::npos; });
  EXPECT_TRUE(offending.empty()) << "these are Eigen's, or take what is:\n" << described(offending);
}

TEST_F(LibrarySymbolsTest, NothingIsRememberedBetweenCalls) {
  const auto offending = which([](const Symbol& symbol) {
    const bool is_section = symbol.name == symbol.section;
    return is_writable(symbol.section) && !is_section && !is_accepted_state(symbol.name);
  });
  EXPECT_TRUE(offending.empty()) << "these are mutable global state:\n" << described(offending);
}

}  // namespace
}  // namespace topksoftmax
