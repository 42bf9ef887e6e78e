# Rooms, the program made of them, their unit tests and the fuzzers.
#
# A room is src/NAME built as a static library. Its include path is a folder that holds nothing but
# a link to the room, so "base/arena.h" is found by those who link base and by nobody else: an
# include the layers forbid does not compile.

# sluice_room(NAME [DEPS room…] [LIBS dep_…] [EXCEPT file…] [FOLDERS folder…])
# Each foo_test.c in the room becomes a program of its own, which ctest knows as NAME/foo.
# FOLDERS: of the room, whose folders hold a part each; its test is NAME/part.
# A room without sources is its headers.
function(sluice_room name)
    cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;EXCEPT;FOLDERS" ${ARGN})
    set(folder "${CMAKE_SOURCE_DIR}/src/${name}")
    set(include "${CMAKE_BINARY_DIR}/rooms/${name}")
    file(MAKE_DIRECTORY "${include}")
    file(CREATE_LINK "${folder}" "${include}/${name}" SYMBOLIC)

    set(globs "${folder}/*.c")
    foreach(parts IN LISTS ROOM_FOLDERS)
        list(APPEND globs "${folder}/${parts}/*/*.c")
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS ${globs})
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.c$")
    list(FILTER sources EXCLUDE REGEX "_test\\.c$")
    foreach(file IN LISTS ROOM_EXCEPT)
        list(REMOVE_ITEM sources "${folder}/${file}")
    endforeach()

    list(TRANSFORM ROOM_DEPS PREPEND room_)
    if(sources)
        add_library(room_${name} STATIC ${sources})
        set(reach PUBLIC)
        set_target_properties(room_${name} PROPERTIES OUTPUT_NAME sluice_${name})
    else()
        add_library(room_${name} INTERFACE)
        set(reach INTERFACE)
    endif()
    target_include_directories(room_${name} ${reach} "${include}")
    target_link_libraries(room_${name} ${reach} ${ROOM_DEPS} ${ROOM_LIBS} sluice_settings)
    if(SLUICE_TESTS AND NOT SLUICE_FUZZ)
        sluice_unit_tests(${name} "${tests}")
    endif()
endfunction()

function(sluice_unit_tests room tests)
    foreach(test IN LISTS tests)
        get_filename_component(file "${test}" NAME_WE)
        if(NOT test MATCHES "/src/${room}/[^/]*$")
            get_filename_component(part "${test}" DIRECTORY)
            get_filename_component(part "${part}" NAME)
            set(file "${part}_test")
        endif()
        string(REGEX REPLACE "_test$" "" noun "${file}")
        add_executable(${room}_${file} "${test}")
        set_target_properties(${room}_${file} PROPERTIES
            OUTPUT_NAME "${file}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/unit/${room}")
        target_link_libraries(${room}_${file} PRIVATE room_${room} PkgConfig::cmocka)
        add_test(NAME ${room}/${noun} COMMAND ${room}_${file})
        set_tests_properties(${room}/${noun} PROPERTIES TIMEOUT 120
            WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    endforeach()
endfunction()

# sluice_vectors(ROOM [file…]): a loop of the room under "#pragma omp simd" becomes vector instructions.
# In the files named gcc also unrolls what is short, as the end of such a loop, which -O2 leaves alone:
# a third of the instructions with a hundred endpoints. Where a loop stays as it is, as in a debug build
# or (where it finds the least) with clang, it is slower and nothing else.
function(sluice_vectors room)
    if(TARGET room_${room})
        target_compile_options(room_${room} PRIVATE -fopenmp-simd
            $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
    endif()
    foreach(file IN LISTS ARGN)
        set_source_files_properties("${CMAKE_SOURCE_DIR}/src/${room}/${file}" PROPERTIES COMPILE_OPTIONS
            "$<$<AND:$<C_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-O3>")
    endforeach()
endfunction()

# sluice_program(NAME FILE DEPS room): the program in the root of the build folder. FILE is relative
# to src/.
function(sluice_program name file)
    cmake_parse_arguments(PROGRAM "" "" "DEPS" ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${file}")
    if(NOT found)
        message(STATUS "src/${file} is not here: the program ${name} is left out")
        return()
    endif()
    list(TRANSFORM PROGRAM_DEPS PREPEND room_)
    add_executable(${name} "${CMAKE_SOURCE_DIR}/src/${file}")
    target_link_libraries(${name} PRIVATE ${PROGRAM_DEPS})
endfunction()

# sluice_fuzzer(NOUN library…): fuzz/NOUN_fuzz.c becomes fuzz/NOUN in the build folder.
function(sluice_fuzzer noun)
    add_executable(${noun}_fuzz "${CMAKE_SOURCE_DIR}/fuzz/${noun}_fuzz.c")
    set_target_properties(${noun}_fuzz PROPERTIES
        OUTPUT_NAME "${noun}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    target_link_libraries(${noun}_fuzz PRIVATE ${ARGN})
    target_link_options(${noun}_fuzz PRIVATE -fsanitize=fuzzer)
endfunction()

# sluice_fuzzers(DEPS room… [EXCEPT noun…]): all that are there, but those that need something else.
function(sluice_fuzzers)
    cmake_parse_arguments(FUZZ "" "" "DEPS;EXCEPT" ${ARGN})
    list(TRANSFORM FUZZ_DEPS PREPEND room_)
    file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/fuzz/*_fuzz.c")
    foreach(source IN LISTS sources)
        get_filename_component(file "${source}" NAME_WE)
        string(REGEX REPLACE "_fuzz$" "" noun "${file}")
        if(NOT noun IN_LIST FUZZ_EXCEPT)
            sluice_fuzzer(${noun} ${FUZZ_DEPS})
        endif()
    endforeach()
endfunction()
