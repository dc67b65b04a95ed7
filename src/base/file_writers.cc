#include "base/file_writers.h"

#include <endian.h>
#include <fmt/format.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace derate {
namespace {

// The attribute as linux/posix_acl_xattr.h lays it out; entries are in the order of their tags.
struct AccessList {
  posix_acl_xattr_header header;
  posix_acl_xattr_entry entries[5];
};

posix_acl_xattr_entry entry(int tag, int permissions, std::uint32_t id = ACL_UNDEFINED_ID) {
  return {.e_tag = htole16(static_cast<std::uint16_t>(tag)),
          .e_perm = htole16(static_cast<std::uint16_t>(permissions)),
          .e_id = htole32(id)};
}

Error failed(const std::string& path, uid_t user, int number) {
  const Errc code = number == ENOTSUP || number == ENOSYS ? Errc::not_supported
                    : number == ENOENT                    ? Errc::not_found
                    : number == EPERM || number == EACCES ? Errc::no_permission
                                                          : Errc::io;
  return Error{
      code, fmt::format("cannot let user {} write to '{}': {}", user, path, std::strerror(number))};
}

}  // namespace

Result<void> add_writer(const std::string& path, uid_t user) {
  if (::chmod(path.c_str(), 0600) != 0) return failed(path, user, errno);
  if (user == ::geteuid()) return {};
  constexpr int kBoth = ACL_READ | ACL_WRITE;
  const AccessList list{
      .header = {.a_version = htole32(POSIX_ACL_XATTR_VERSION)},
      .entries = {entry(ACL_USER_OBJ, kBoth), entry(ACL_USER, kBoth, user), entry(ACL_GROUP_OBJ, 0),
                  entry(ACL_MASK, kBoth), entry(ACL_OTHER, 0)}};
  if (::setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0)
    return failed(path, user, errno);
  return {};
}

}  // namespace derate
