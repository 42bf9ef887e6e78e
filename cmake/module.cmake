# Modules, the program made of them, their unit tests and the fuzzers.
#
# A module is a folder of src/ built as one static library, module_WING_NAME. Its include path is a folder
# with only a link to the module, so "core/base/arena.h" is found only by targets that link core/base: an include
# that cmake/modules.txt does not allow does not compile.

# The name of a module's target.
function(sluice_module_target out name)
    string(REPLACE "/" "_" id "${name}")
    set(${out} "module_${id}" PARENT_SCOPE)
endfunction()

# sluice_modules(FILE): all modules of the list.
function(sluice_modules file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" lines REGEX "^[a-z]")
    foreach(line IN LISTS lines)
        string(REGEX REPLACE ":.*" "" name "${line}")
        list(APPEND names "${name}")
    endforeach()
    set(SLUICE_MODULES "${names}" PARENT_SCOPE)
    set(SLUICE_MODULES "${names}")
    foreach(line IN LISTS lines)
        string(REGEX MATCH "^([a-z0-9_/]+):([^|]*)\\|?([^|]*)\\|?(.*)$" matched "${line}")
        set(name "${CMAKE_MATCH_1}")
        separate_arguments(deps UNIX_COMMAND "${CMAKE_MATCH_2}")
        separate_arguments(libs UNIX_COMMAND "${CMAKE_MATCH_3}")
        separate_arguments(test_deps UNIX_COMMAND "${CMAKE_MATCH_4}")
        sluice_module(${name} DEPS ${deps} LIBS ${libs} TEST_DEPS ${test_deps})
    endforeach()
endfunction()

# Modules and libraries as they are named in the list, as targets.
function(sluice_module_links out)
    set(targets "")
    foreach(name IN LISTS ARGN)
        if(name MATCHES "/" OR name IN_LIST SLUICE_MODULES)
            sluice_module_target(target ${name})
            list(APPEND targets ${target})
        elseif(name STREQUAL "m")
            list(APPEND targets m)
        else()
            list(APPEND targets dep_${name})
        endif()
    endforeach()
    set(${out} "${targets}" PARENT_SCOPE)
endfunction()

# sluice_module(NAME [DEPS module…] [LIBS library…] [TEST_DEPS module or library…])
# Each foo_test.c in the module becomes a program of its own, which ctest knows as NAME/foo. Folders in it belong to it,
# unless they are modules themselves. Files named in SLUICE_NOT_IN_MODULES are left out.
function(sluice_module name)
    cmake_parse_arguments(MODULE "" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
    set(path "src/${name}")
    set(shown "${name}")
    if(name MATCHES "^tests/")
        set(path "${name}")
        string(REGEX REPLACE "^tests/" "" shown "${name}")
    endif()
    set(folder "${CMAKE_SOURCE_DIR}/${path}")
    sluice_module_target(target ${name})

    set(inner "")
    foreach(other IN LISTS SLUICE_MODULES)
        if(other MATCHES "^${name}/")
            list(APPEND inner "${CMAKE_SOURCE_DIR}/src/${other}")
        endif()
    endforeach()

    set(include "${CMAKE_BINARY_DIR}/modules/include/${target}")
    if(inner)
        file(GLOB entries CONFIGURE_DEPENDS LIST_DIRECTORIES true "${folder}/*")
        if(IS_SYMLINK "${include}/${shown}") # from when no module was in it: links would be made in the sources
            file(REMOVE "${include}/${shown}")
        endif()
        file(MAKE_DIRECTORY "${include}/${shown}")
        foreach(entry IN LISTS entries)
            if(NOT entry IN_LIST inner)
                get_filename_component(file "${entry}" NAME)
                file(CREATE_LINK "${entry}" "${include}/${shown}/${file}" SYMBOLIC)
            endif()
        endforeach()
    else()
        get_filename_component(above "${include}/${shown}" DIRECTORY)
        file(MAKE_DIRECTORY "${above}")
        file(CREATE_LINK "${folder}" "${include}/${shown}" SYMBOLIC)
    endif()

    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.c")
    foreach(other IN LISTS inner)
        list(FILTER sources EXCLUDE REGEX "^${other}/")
    endforeach()
    foreach(file IN LISTS SLUICE_NOT_IN_MODULES)
        list(REMOVE_ITEM sources "${CMAKE_SOURCE_DIR}/${file}")
    endforeach()
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.c$")
    list(FILTER sources EXCLUDE REGEX "_test\\.c$")

    sluice_module_links(links ${MODULE_DEPS} ${MODULE_LIBS})
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources}) # built where it is linked
    string(REPLACE "module_" "sluice_" archive "${target}")
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${archive}")
    target_include_directories(${target} PUBLIC "${include}")
    target_link_libraries(${target} PUBLIC ${links} sluice_settings)
    if(SLUICE_TESTS AND NOT SLUICE_FUZZ)
        sluice_module_links(test_links ${MODULE_TEST_DEPS})
        sluice_unit_tests(${target} "${folder}" ${name} "${tests}" "${test_links}")
    endif()
endfunction()

function(sluice_unit_tests target folder name tests links)
    foreach(test IN LISTS tests)
        file(RELATIVE_PATH noun "${folder}" "${test}")
        string(REGEX REPLACE "_test\\.c$" "" noun "${noun}")
        string(REGEX REPLACE "[/-]" "_" id "${noun}")
        set(program "${target}_${id}_test")
        get_filename_component(file "${test}" NAME_WE)
        get_filename_component(where "${CMAKE_BINARY_DIR}/unit/${name}/${noun}" DIRECTORY)
        list(APPEND programs ${program})
        add_executable(${program} "${test}")
        sluice_test_program(${program})
        set_target_properties(${program} PROPERTIES
            OUTPUT_NAME "${file}" RUNTIME_OUTPUT_DIRECTORY "${where}")
        target_link_libraries(${program} PRIVATE ${target} ${links} PkgConfig::cmocka)
        sluice_add_test(${name}/${noun} ${program})
    endforeach()
    add_custom_target(${target}_tests DEPENDS ${programs})
endfunction()

# sluice_vectors(MODULE [file…]): a loop of the module under "#pragma omp simd" becomes vector instructions.
# In the files named gcc also unrolls what is short, as the end of such a loop, which -O2 leaves alone:
# a third of the instructions with a hundred endpoints. Where a loop stays as it is, as in a debug build
# or (where it finds the least) with clang, it is slower and nothing else.
function(sluice_vectors module)
    sluice_module_target(target ${module})
    target_compile_options(${target} PRIVATE -fopenmp-simd
        $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
    foreach(file IN LISTS ARGN)
        if(NOT EXISTS "${CMAKE_SOURCE_DIR}/src/${module}/${file}")
            message(FATAL_ERROR "sluice_vectors: src/${module}/${file} does not exist")
        endif()
        set_source_files_properties("${CMAKE_SOURCE_DIR}/src/${module}/${file}" PROPERTIES COMPILE_OPTIONS
            "$<$<AND:$<C_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-O3>")
    endforeach()
endfunction()

# sluice_fuzzer(NOUN library…): fuzz/NOUN_fuzz.c becomes fuzz/NOUN in the build folder.
function(sluice_fuzzer noun)
    add_executable(${noun}_fuzz "${CMAKE_SOURCE_DIR}/fuzz/${noun}_fuzz.c")
    set_target_properties(${noun}_fuzz PROPERTIES
        OUTPUT_NAME "${noun}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    target_link_libraries(${noun}_fuzz PRIVATE ${ARGN})
    target_link_options(${noun}_fuzz PRIVATE -fsanitize=fuzzer)
endfunction()

# sluice_fuzzers(DEPS module… [EXCEPT noun…]): all that are there, but those that need something else.
function(sluice_fuzzers)
    cmake_parse_arguments(FUZZ "" "" "DEPS;EXCEPT" ${ARGN})
    sluice_module_links(links ${FUZZ_DEPS})
    file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/fuzz/*_fuzz.c")
    foreach(source IN LISTS sources)
        get_filename_component(file "${source}" NAME_WE)
        string(REGEX REPLACE "_fuzz$" "" noun "${file}")
        if(NOT noun IN_LIST FUZZ_EXCEPT)
            sluice_fuzzer(${noun} ${links})
        endif()
    endforeach()
endfunction()
