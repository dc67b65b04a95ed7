# Objects of the programs and their libraries, for a tree that links them in another way: a folder
# with DERATE_OBJECTS compiles nothing of theirs again. Each has the paths of a target's objects in
# objects/TARGET.
foreach(folder . fakenvml fakedcgm progress apps)
  get_property(targets DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "^(STATIC_LIBRARY|SHARED_LIBRARY|EXECUTABLE)$" OR
        target MATCHES "_test$|^derate_(test_headers|fmt|fakenvml_path)$")
      continue()
    endif()
    if(NOT DERATE_OBJECTS)
      file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/objects/${target}
        CONTENT "$<TARGET_OBJECTS:${target}>")
      continue()
    endif()
    file(READ ${DERATE_OBJECTS}/objects/${target} objects)
    set_target_properties(${target} PROPERTIES SOURCES "${objects}" LINKER_LANGUAGE CXX)
  endforeach()
endforeach()
