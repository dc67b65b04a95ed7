// Nothing: its target holds the precompiled headers of the test programs (CMakeLists.txt).
