# Compiler settings that hold for all of our code: language, warnings, hardening, sanitizers.
include(CheckCCompilerFlag)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# No NDEBUG: cheap assertions stay on in every build.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/modules")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(sluice_settings INTERFACE)
target_compile_definitions(sluice_settings INTERFACE _GNU_SOURCE
    SLUICE_VERSION="${PROJECT_VERSION}")
target_compile_options(sluice_settings INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes
    -Wswitch-enum -Wvla -Werror -fno-omit-frame-pointer
    "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=") # assertions name files as the repository does
target_link_libraries(sluice_settings INTERFACE Threads::Threads)

# tools/release and tools/portable build twice: "make" has the program note where it goes; "use" lays it out by that.
# gcc's notes are files beside the objects of the build folder, clang's one file.
set(SLUICE_PROFILE "" CACHE STRING "make or use, by tools/release and tools/portable; empty: neither")
set(SLUICE_PROFILE_DATA "" CACHE FILEPATH "clang's notes, for SLUICE_PROFILE=use")
if(SLUICE_PROFILE AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
    if(SLUICE_PROFILE STREQUAL "make")
        target_compile_options(sluice_settings INTERFACE -fprofile-instr-generate -fprofile-update=atomic)
        target_link_options(sluice_settings INTERFACE -fprofile-instr-generate)
    elseif(SLUICE_PROFILE STREQUAL "use")
        target_compile_options(sluice_settings INTERFACE "-fprofile-instr-use=${SLUICE_PROFILE_DATA}"
            -Wno-profile-instr-unprofiled -Wno-profile-instr-out-of-date -Wno-backend-plugin)
    endif()
elseif(SLUICE_PROFILE STREQUAL "make")
    target_compile_options(sluice_settings INTERFACE -fprofile-generate -fprofile-update=atomic)
    target_link_options(sluice_settings INTERFACE -fprofile-generate)
elseif(SLUICE_PROFILE STREQUAL "use")
    # What was never run is built as otherwise. What is inlined is another thing each time, and with it what
    # gcc believes to see: the plain build has the last word on warnings.
    target_compile_options(sluice_settings INTERFACE
        -fprofile-use -fprofile-partial-training -Wno-missing-profile -Wno-error)
endif()
if(NOT SLUICE_PROFILE MATCHES "^(|make|use)$")
    message(FATAL_ERROR "SLUICE_PROFILE: expected make or use, got ${SLUICE_PROFILE}")
endif()

if(SLUICE_SANITIZE OR SLUICE_FUZZ)
    set(sanitizers "${SLUICE_SANITIZE}")
    if(SLUICE_FUZZ)
        if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
            message(FATAL_ERROR "SLUICE_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang")
        endif()
        set(sanitizers "address,undefined")
        target_compile_options(sluice_settings INTERFACE -fsanitize=fuzzer-no-link)
    endif()
    target_compile_options(sluice_settings INTERFACE
        "-fsanitize=${sanitizers}" -fno-sanitize-recover=all)
    target_link_options(sluice_settings INTERFACE
        "-fsanitize=${sanitizers}" -fno-sanitize-recover=all)
    # The slow assertions (base) run where time does not matter.
    target_compile_definitions(sluice_settings INTERFACE SLUICE_SLOW_ASSERTS=1)
    if(sanitizers MATCHES "address")
        # One allocation per arena request, so that the sanitizer sees overruns inside an arena.
        target_compile_definitions(sluice_settings INTERFACE SLUICE_ARENA_EMULATE=1)
        # A backend's library may throw, and the sanitizer must have found the thrower at the start.
        target_link_options(sluice_settings INTERFACE
            "SHELL:-Wl,--push-state,--no-as-needed -l:libstdc++.so.6 -Wl,--pop-state")
    endif()
else()
    target_compile_options(sluice_settings INTERFACE -fstack-protector-strong)
    target_link_options(sluice_settings INTERFACE -Wl,-z,relro,-z,now)
    # gcc would clear and copy structs by instructions that take longer to begin than most of them to
    # be copied: 3 to 5 % of a pick.
    foreach(operation memcpy memset)
        set(strategy "-m${operation}-strategy=unrolled_loop:256:noalign,libcall:-1:noalign")
        check_c_compiler_flag("${strategy}" SLUICE_HAS_STRATEGY_${operation})
        if(SLUICE_HAS_STRATEGY_${operation})
            target_compile_options(sluice_settings INTERFACE "${strategy}")
        endif()
    endforeach()
    if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
        target_compile_definitions(sluice_settings INTERFACE _FORTIFY_SOURCE=2)
    else()
        target_compile_definitions(sluice_settings INTERFACE SLUICE_SLOW_ASSERTS=1)
    endif()
endif()
