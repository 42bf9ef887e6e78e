# What only tests need is not built by default, but by the target test_programs: unit tests, examples, and the parts and
# programs that tests drive.
#
# ctest builds it first, also when it runs one test: else a test would be run as it was before the last change. The
# Makefile leaves that fixture out (ctest -FS), because it has built test_programs, or what it needs of them.
add_custom_target(test_programs)
if(SLUICE_TESTS AND NOT SLUICE_FUZZ)
    add_test(NAME test_programs COMMAND "${CMAKE_COMMAND}" --build "${CMAKE_BINARY_DIR}" --target all test_programs)
    set_tests_properties(test_programs PROPERTIES FIXTURES_SETUP test_programs TIMEOUT 7200)
endif()

# sluice_test_program(TARGET): a program, a part or a library that only tests need.
function(sluice_test_program target)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(test_programs ${target})
endfunction()

# sluice_add_test(NAME command [argument…]): a test of a program in test_programs, which ctest knows as NAME.
function(sluice_add_test name)
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${SLUICE_TEST_TIMEOUT_S} FIXTURES_REQUIRED test_programs
        WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
endfunction()
