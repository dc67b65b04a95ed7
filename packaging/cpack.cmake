# What `cmake --build build/PRESET --target package` makes: of portable programs a tarball, else a
# Debian package.
set(CPACK_PACKAGE_NAME derate)
set(CPACK_PACKAGE_VENDOR "Derate maintainers")
set(CPACK_PACKAGE_CONTACT "Derate maintainers <maintainers@derate.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs GPUs at the least energy that keeps the promised speed")
set(CPACK_PACKAGE_DESCRIPTION "Derate sets the clocks of NVIDIA GPUs while a command runs, or for good as a
service that at first only observes. It learns how the work responds to the clock, takes the cheapest
clock inside the promise, and gives every GPU back as it was found.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_PACKAGE_CHECKSUM SHA256)
if(DERATE_PORTABLE)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME derate-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
else()
  set(CPACK_GENERATOR DEB)
  # The configuration lies outside of the prefix.
  set(CPACK_SET_DESTDIR ON)
  set(CPACK_INSTALL_PREFIX /usr)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, man-db, bash-completion")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(scripts ${CMAKE_CURRENT_LIST_DIR}/debian)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${scripts}/conffiles
    ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)
endif()
include(CPack)
