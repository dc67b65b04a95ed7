#include "integ/own_gpus.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/errc_word.h"

namespace derate {
namespace {

Environment with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

std::string cuda(const std::string& value) {
  const auto own = own_gpus(with({{"CUDA_VISIBLE_DEVICES", value}}));
  return own.ok() ? (*own)->choice : std::string(word_of(own.error().code));
}

TEST(OwnGpus, WhatCudaShowsIsOnesOwn) {
  EXPECT_EQ(cuda("1"), "1");
  EXPECT_EQ(cuda("2, 0"), "2,0");
  EXPECT_EQ(cuda("0,-1,3"), "0");  // what follows is hidden
  EXPECT_EQ(cuda("GPU-8932f937,1"), "GPU-8932f937,1");
  EXPECT_EQ(cuda("MIG-GPU-8932f937-d72c/1/0"), "GPU-8932f937-d72c");
  EXPECT_EQ(cuda("MIG-8932f937-d72c"), "MIG-8932f937-d72c");
}

TEST(OwnGpus, WhatHidesAllOrIsNoGpuIsAnError) {
  EXPECT_EQ(cuda(""), word_of(Errc::not_found));
  EXPECT_EQ(cuda("-1"), word_of(Errc::not_found));
  EXPECT_EQ(cuda("all"), word_of(Errc::invalid_argument));
}

TEST(OwnGpus, SlurmIsAskedNext) {
  const auto slurm = [](const std::string& value) {
    return own_gpus(with({{"SLURM_JOB_GPUS", value}}));
  };
  EXPECT_EQ((*slurm("0,2-4"))->choice, "0,2,3,4");
  EXPECT_EQ((*slurm("0"))->variable, "SLURM_JOB_GPUS");
  EXPECT_FALSE(slurm("")->has_value());
  EXPECT_FALSE(slurm("4-2").ok());
  EXPECT_FALSE(slurm("0-99999999").ok());
  EXPECT_EQ((*own_gpus(with({{"SLURM_JOB_GPUS", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}})))->choice,
            "0");
}

TEST(OwnGpus, WithoutEitherNobodySays) { EXPECT_FALSE(own_gpus(with({}))->has_value()); }

RC_GTEST_PROP(OwnGpus, AnyTextIsAnAnswerOrAnError, (const std::string& text)) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"}) {
    const auto own = own_gpus(with({{name, text}}));
    if (own.ok() && *own) RC_ASSERT(!(*own)->choice.empty());
    if (!own.ok()) RC_ASSERT(!own.error().message.empty());
  }
}

}  // namespace
}  // namespace derate
