// SPDX-License-Identifier: Apache-2.0
#include "c/guard.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

#include "topksoftmax/error.hpp"

namespace topksoftmax::c {
namespace {

/// As much of a text as there is room for, cut between two characters of UTF-8.
std::string_view cut(std::string_view text, std::size_t room) {
  if (text.size() <= room) return text;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (room > 0 && continues(room)) --room;
  return text.substr(0, room);
}

topk_status report(topk_status status, std::string_view message, topk_error* error) {
  if (error == nullptr) return status;
  message = cut(message, TOPK_MESSAGE_SIZE - 1);
  error->status = status;
  *std::copy(message.begin(), message.end(), error->message) = '\0';
  return status;
}

}  // namespace

topk_status report_exception(topk_error* error) noexcept {
  try {
    throw;
  } catch (const Stopped&) {
    return report(TOPK_STOPPED, "the progress callback has asked to stop", error);
  } catch (const ExecutorFailed& failure) {
    return report(TOPK_EXECUTOR_FAILED, failure.what(), error);
  } catch (const std::invalid_argument& failure) {
    return report(TOPK_INVALID_ARGUMENT, failure.what(), error);
  } catch (const Error& failure) {
    return report(TOPK_ERROR, failure.what(), error);
  } catch (const std::bad_alloc&) {
    return report(TOPK_OUT_OF_MEMORY, "there is not enough memory", error);
  } catch (const std::length_error&) {  // what a container throws before it even asks for so much
    return report(TOPK_OUT_OF_MEMORY, "there is not enough memory", error);
  } catch (const std::exception& failure) {
    return report(TOPK_OTHER_ERROR, failure.what(), error);
  } catch (...) {
    return report(TOPK_OTHER_ERROR, "an exception of an unknown type", error);
  }
}

}  // namespace topksoftmax::c

// Members are added at the end of a struct, where the older version has no byte, not even of padding.
#define TOPK_ENDS_WITH(type, member) \
  static_assert(offsetof(type, member) + sizeof(type::member) == sizeof(type))
TOPK_ENDS_WITH(topk_weights, bias);
TOPK_ENDS_WITH(topk_build_material, progress_user);
TOPK_ENDS_WITH(topk_query_options, allowed32_words);
TOPK_ENDS_WITH(topk_answer, confidence);
TOPK_ENDS_WITH(topk_flat_answers, certified);
TOPK_ENDS_WITH(topk_penalties, frequency);
TOPK_ENDS_WITH(topk_sampling_options, step_count);
TOPK_ENDS_WITH(topk_sampled_token, id);
TOPK_ENDS_WITH(topk_flat_tokens, log_prob_high);
TOPK_ENDS_WITH(topk_log_z_options, seed);
TOPK_ENDS_WITH(topk_sampled_log_z, rows_read);
