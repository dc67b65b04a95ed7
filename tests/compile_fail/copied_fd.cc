// EXPECT: use of deleted function
#include "base/unique_fd.h"

derate::UniqueFd use(derate::UniqueFd& fd) {
#ifdef MISUSE
  return derate::UniqueFd(fd);
#else
  return derate::UniqueFd(std::move(fd));
#endif
}
