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

  // Whether that file is a page. It is another process's: it has to lie in memory, sealed against
  // being cut, so that reading it cannot fail. Nothing of its content is read here, as memory may
  // be swapped out, and no file system is queried but that of memory. Errors: invalid_argument for
  // any other file.
  static Result<void> check(int file);
  // Takes it where it is one. Errors: the same.
  static Result<LaunchPage> open(UniqueFd& file);

  // Of its file; as long as that is open no other has it.
  std::uint64_t inode() const { return inode_; }

  // The sums of all threads, by GPU. A process that writes nonsense there is answered nonsense.
  // May wait for memory that is swapped out. Errors: invalid_argument for a page of another
  // version, io.
  Result<std::vector<GpuLaunches>> read() const;

 private:
  LaunchPage(UniqueFd file, std::uint64_t inode) : file_(std::move(file)), inode_(inode) {}

  UniqueFd file_;
  std::uint64_t inode_ = 0;
};

}  // namespace derate
