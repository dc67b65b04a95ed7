#define _GNU_SOURCE
#include "hand_over.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire/derate_beat.h" /* whose socket may be told what */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* of Linux 6.3 */
#endif
#define LOWEST_FILE 64 /* below are the numbers that programs count on */
#define ANNOUNCE_S 60

static int file_ = -1;
static dev_t device_; /* of the file: a program may have closed it and opened another there */
static ino_t inode_;
static time_t announced_;
static unsigned failures_;           /* to send, since it last went well */
static struct sockaddr_un listener_; /* read from the environment once: programs may change that */
static bool has_listener_;

/* A program with another user's rights does not do what this one's environment says, either. */
bool derate_is_switched_off(void) {
  const char* said = getenv("DERATE_PROGRESS");
  if (getuid() != geteuid()) return true;
  return said != NULL && (strcmp(said, "off") == 0 || strcmp(said, "0") == 0);
}

static bool is_still_ours(void) {
  struct stat found;
  return file_ >= 0 && fstat(file_, &found) == 0 && found.st_dev == device_ &&
         found.st_ino == inode_;
}

static void close_ours(void) {
  if (is_still_ours()) close(file_);
  file_ = -1;
}

/* A file that is longer than the limit ends the process with SIGXFSZ. */
static bool may_be_so_long(size_t size) {
  struct rlimit limit = {0, 0};
  return syscall(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, 0L, (long)&limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size);
}

/* As far up as there is room for. */
static int moved_up(int file) {
  const int high = fcntl(file, F_DUPFD_CLOEXEC, (long)LOWEST_FILE);
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

void* derate_make_page(size_t size) {
  struct stat made;
  void* page = MAP_FAILED;
  int file;
  close_ours(); /* a child's, of its parent */
  has_listener_ = address_of_listener(&listener_);
  failures_ = 0;
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
  if (fstat(file, &made) == 0 && ftruncate(file, (off_t)size) == 0)
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  /* Who reads it need not fear that it gets shorter. */
  if (page != MAP_FAILED &&
      fcntl(file, F_ADD_SEALS, (long)(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) == 0) {
    file_ = file;
    device_ = made.st_dev;
    inode_ = made.st_ino;
    return page;
  }
  if (page != MAP_FAILED) munmap(page, size);
  close(file);
  return NULL;
}

static bool send_file(const struct sockaddr_un* address) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  char text[] = "launches";
  struct iovec data = {text, sizeof text - 1};
  struct msghdr message;
  const int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool sent;
  if (socket_ < 0) return false;
  memset(&message, 0, sizeof message);
  memset(&control, 0, sizeof control);
  message.msg_name = (void*)address;
  message.msg_namelen = sizeof *address;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  control.head.cmsg_level = SOL_SOCKET;
  control.head.cmsg_type = SCM_RIGHTS;
  control.head.cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(&control.head), &file_, sizeof file_);
  sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  close(socket_);
  return sent;
}

void derate_announce_page(void) {
  const unsigned failures = __atomic_load_n(&failures_, __ATOMIC_RELAXED);
  bool sent = true; /* nobody listens: as often as if it had gone well */
  __atomic_store_n(&announced_, time(NULL), __ATOMIC_RELAXED);
  if (!has_listener_ || !is_still_ours()) return;
  if (derate_beat_doubt(listener_.sun_path) == NULL) sent = send_file(&listener_);
  __atomic_store_n(&failures_, sent ? 0 : failures + 1, __ATOMIC_RELAXED);
}

/* A queue that others keep full has room now and then: 1, 2, 4 ... s after each failure. */
static time_t pause_after(unsigned failures) {
  const unsigned doublings = failures - 1;
  return failures == 0 || doublings > 5 ? ANNOUNCE_S : (time_t)1 << doublings;
}

void derate_announce_page_again(void) {
  const time_t now = time(NULL), before = __atomic_load_n(&announced_, __ATOMIC_RELAXED);
  const unsigned failures = __atomic_load_n(&failures_, __ATOMIC_RELAXED);
  if (now >= before && now - before < pause_after(failures)) return;
  derate_announce_page();
}
