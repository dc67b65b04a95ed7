#define _GNU_SOURCE
#include "hand_over.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "elf_lookup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* of Linux 6.3 */
#endif
#define LOWEST_FILE 64 /* below are the numbers that programs count on */
#define ANNOUNCE_S 60

/* A file descriptor of the library. The program may have closed it and opened another file there.
 * */
typedef struct {
  int number; /* -1: there is none */
  dev_t device;
  ino_t inode;
} File;

static File page_ = {-1, 0, 0}, socket_ = {-1, 0, 0};
static long announced_, wait_s_ = ANNOUNCE_S;
static long again_s_;                /* after a queue that was full; 0: it was not */
static struct sockaddr_un listener_; /* read from the environment once: programs may change that */
static bool has_listener_;
static int (*clock_)(int clock, void* time); /* the kernel's own object's; NULL: it has none */

/* A program with another user's rights does not do what this one's environment says, either. */
bool derate_is_switched_off(void) {
  const char* said = getenv("DERATE_PROGRESS");
  if (getuid() != geteuid()) return true;
  return said != NULL && (strcmp(said, "off") == 0 || strcmp(said, "0") == 0);
}

static bool is_still_ours(const File* file) {
  struct stat found;
  return file->number >= 0 && fstat(file->number, &found) == 0 && found.st_dev == file->device &&
         found.st_ino == file->inode;
}

static void keep(File* file, int number) {
  struct stat found;
  if (number < 0 || fstat(number, &found) != 0) return;
  *file = (File){number, found.st_dev, found.st_ino};
}

static void close_ours(File* file) {
  if (is_still_ours(file)) close(file->number);
  file->number = -1;
}

/* A file that is longer than the limit ends the process with SIGXFSZ. */
static bool may_be_so_long(size_t size) {
  struct rlimit limit = {0, 0};
  return syscall(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, 0L, (long)&limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size);
}

/* As far up as there is room for. */
static int moved_up(int file) {
  const int high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, (long)LOWEST_FILE);
  if (high < 0) return file;
  close(file);
  return high;
}

static bool address_of_listener(struct sockaddr_un* address) {
  static const char name[] = "/launches.sock";
  const char* whole = getenv("DERATE_LAUNCHES_SOCKET");
  const char* run = getenv("DERATE_RUN_DIR");
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  if (whole != NULL && *whole != '\0') {
    if (strlen(whole) >= sizeof address->sun_path) return false;
    memcpy(address->sun_path, whole, strlen(whole));
    return true;
  }
  if (run == NULL || *run == '\0') run = "/run/derate";
  if (strlen(run) + sizeof name > sizeof address->sun_path) return false;
  memcpy(address->sun_path, run, strlen(run));
  memcpy(address->sun_path + strlen(run), name, sizeof name);
  return true;
}

static bool is_trusted(const struct stat* of) { return of->st_uid == 0 || of->st_uid == geteuid(); }

/* Whether root and this user alone can put a socket there, now or later: the path is checked only
 * once. Each folder on the path has to be theirs. If others may write to it, it has to be sticky
 * and the next part of the path has to exist and be theirs. The kernel does not report who reads a
 * datagram socket. */
static bool is_safe_for_good(const char* path) {
  char part[sizeof listener_.sun_path];
  struct stat folder, found;
  size_t end;
  if (path[0] != '/') return false; /* the program may go elsewhere */
  for (size_t begin = 0; path[begin] != '\0'; begin = end) {
    begin += strspn(path + begin, "/");
    end = begin + strcspn(path + begin, "/");
    memcpy(part, path, begin);
    part[begin] = '\0';
    if (stat(part, &folder) != 0) return false;
    memcpy(part, path, end);
    part[end] = '\0';
    const bool is_there = lstat(part, &found) == 0, is_open = (folder.st_mode & 0022) != 0;
    if (!is_trusted(&folder)) return false;
    if (is_open && ((folder.st_mode & 01000) == 0 || !is_there || !is_trusted(&found)))
      return false;
    const bool is_last = path[end] == '\0';
    if (!is_there || is_last) {
      const bool is_link = is_there && (found.st_mode & 0170000) == 0120000;
      return !is_there || (is_trusted(&found) && !is_link);
    }
  }
  return false;
}

/* Makes all system calls that sending needs beforehand: a filter may forbid them later. */
static void prepare_to_send(void) {
  has_listener_ = address_of_listener(&listener_) && is_safe_for_good(listener_.sun_path);
  clock_ = (int (*)(int, void*))derate_first_symbol("__vdso_clock_gettime");
  if (clock_ == NULL) clock_ = (int (*)(int, void*))derate_first_symbol("__kernel_clock_gettime");
  if (!has_listener_ || is_still_ours(&socket_)) return; /* a child's, of its parent */
  socket_.number = -1;
  keep(&socket_, moved_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

void* derate_make_page(size_t size) {
  void* page = MAP_FAILED;
  int file;
  close_ours(&page_); /* a child's, of its parent */
  prepare_to_send();
  if (!may_be_so_long(size)) return NULL;
  /* Without MFD_NOEXEC_SEAL a hardened kernel (vm.memfd_noexec=2) refuses and others log a warning;
   * with it those before 6.3 refuse. */
  file = (int)syscall(SYS_memfd_create, (long)"derate-launches",
                      (long)(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (file < 0)
    file = (int)syscall(SYS_memfd_create, (long)"derate-launches",
                        (long)(MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file < 0) return NULL;
  file = moved_up(file);
  keep(&page_, file);
  if (page_.number >= 0 && ftruncate(file, (off_t)size) == 0)
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  /* Who reads it need not fear that it gets shorter. */
  if (page != MAP_FAILED &&
      fcntl(file, F_ADD_SEALS, (long)(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) == 0)
    return page;
  if (page != MAP_FAILED) munmap(page, size);
  close(file);
  page_.number = -1;
  return NULL;
}

/* Returns 0 or -errno. */
static long send_page(void) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  char text[] = "launches";
  struct iovec data = {text, sizeof text - 1};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  memset(&control, 0, sizeof control);
  message.msg_name = &listener_;
  message.msg_namelen = sizeof listener_;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  control.head.cmsg_level = SOL_SOCKET;
  control.head.cmsg_type = SCM_RIGHTS;
  control.head.cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(&control.head), &page_.number, sizeof page_.number);
  return derate_send_message(socket_.number, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Several threads may run this at once: then the page is sent twice, or the next wait is longer. */
void derate_announce_page(void) {
  long again = 0;
  if (has_listener_ && is_still_ours(&page_) && is_still_ours(&socket_)) {
    const long before = __atomic_load_n(&again_s_, __ATOMIC_RELAXED);
    if (send_page() == -EAGAIN) /* its queue is full: a flood, mostly */
      again = before == 0 ? 1 : before * 2 < ANNOUNCE_S ? before * 2 : ANNOUNCE_S;
  }
  __atomic_store_n(&again_s_, again, __ATOMIC_RELAXED);
  __atomic_store_n(&wait_s_, again != 0 ? again : ANNOUNCE_S, __ATOMIC_RELAXED);
  __atomic_store_n(&announced_, derate_seconds_now(clock_), __ATOMIC_RELAXED);
}

void derate_announce_page_again(void) {
  const long now = derate_seconds_now(clock_);
  const long before = __atomic_load_n(&announced_, __ATOMIC_RELAXED);
  if (now >= before && now - before < __atomic_load_n(&wait_s_, __ATOMIC_RELAXED)) return;
  derate_announce_page();
}
