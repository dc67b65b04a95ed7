// Counts of a program's kernel launches on each GPU, read from the page that libderate_progress.so
// counts on in its process (wire/launch_page.h) and has handed over as a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "signal/launches.h"

namespace derate {

class LaunchPage {
 public:
  // Kernels of a GPU that are told apart, as a process may write any number of them; the others are
  // counted with those that had no room.
  static constexpr std::size_t kMostKernels = derate::kMostKernels;

  // Checks that the file is a page. It belongs to another process, so it must be in memory and
  // sealed against truncation: reading it then cannot fail. Its content is not read here, because
  // memory may be swapped out, and no file system but that of memory is queried. Errors:
  // invalid_argument for any other file.
  static Result<void> check(int file);
  // Takes the file if it is a page. Errors: those of check().
  static Result<LaunchPage> open(UniqueFd& file);

  // Of its file; as long as that is open no other has it.
  std::uint64_t inode() const { return inode_; }

  // The sums of all threads, by GPU. If a process writes nonsense to its page, the sums are
  // nonsense. May wait for memory that is swapped out. Errors: invalid_argument for a page of
  // another version, io.
  Result<std::vector<GpuLaunches>> read() const;

 private:
  LaunchPage(UniqueFd file, std::uint64_t inode) : file_(std::move(file)), inode_(inode) {}

  UniqueFd file_;
  std::uint64_t inode_ = 0;
};

}  // namespace derate
