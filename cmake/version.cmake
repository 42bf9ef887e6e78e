# What `sluice --version` prints beside the version (src/program/version/version.h): the commit, how it was built, and the
# versions of the libraries that it was built with. The commit is read with each build, by `cmake -P` of the second half
# of this file; SLUICE_COMMIT is for sources without a repository.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(SLUICE_COMMIT "$ENV{SLUICE_COMMIT}" CACHE STRING "the commit of these sources; empty: git tells")

    # sluice_macro_version(OUT HEADER PREFIX): of PREFIX_MAJOR, _MINOR and _PATCH.
    function(sluice_macro_version out header)
        set(numbers "")
        foreach(macro IN LISTS ARGN)
            file(STRINGS "${header}" line REGEX "#define ${macro} +[0-9]+")
            string(REGEX MATCH "[0-9]+$" number "${line}")
            list(APPEND numbers "${number}")
        endforeach()
        list(JOIN numbers "." joined)
        set(${out} "${joined}" PARENT_SCOPE)
    endfunction()
    sluice_macro_version(llhttp_VERSION "${llhttp_INCLUDE}/llhttp.h"
        LLHTTP_VERSION_MAJOR LLHTTP_VERSION_MINOR LLHTTP_VERSION_PATCH)
    sluice_macro_version(yyjson_VERSION "${yyjson_INCLUDE}/yyjson.h"
        YYJSON_VERSION_MAJOR YYJSON_VERSION_MINOR YYJSON_VERSION_PATCH)
    string(REGEX REPLACE "[-_].*" "" jemalloc_SHORT "${jemalloc_VERSION}")
    set(libraries "libuv ${uv_VERSION}, llhttp ${llhttp_VERSION}, nghttp2 ${nghttp2_VERSION}, OpenSSL ${openssl_VERSION}, \
libcurl ${curl_VERSION}, c-ares ${cares_VERSION}, yyjson ${yyjson_VERSION}, libyaml ${yaml_VERSION}, \
xxHash ${xxhash_VERSION}, zlib ${zlib_VERSION}, jemalloc ${jemalloc_SHORT}, libarchive ${archive_VERSION}")

    set(kind "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, ${CMAKE_SYSTEM_PROCESSOR}")
    if(SLUICE_PROFILE STREQUAL "use")
        string(PREPEND kind "profile-guided, ")
    elseif(SLUICE_SANITIZE)
        string(PREPEND kind "sanitizers ${SLUICE_SANITIZE}, ")
    endif()
    if(SLUICE_PORTABLE)
        string(APPEND kind ", glibc ${SLUICE_PORTABLE} or later, libraries linked statically")
    endif()

    add_custom_target(sluice_commit
        COMMAND "${CMAKE_COMMAND}" "-DOUT=${CMAKE_BINARY_DIR}/version/commit.h" "-DSOURCE=${CMAKE_SOURCE_DIR}"
            "-DCOMMIT=${SLUICE_COMMIT}" -P "${CMAKE_CURRENT_LIST_FILE}"
        BYPRODUCTS "${CMAKE_BINARY_DIR}/version/commit.h" VERBATIM)
    target_compile_options(module_program_version PRIVATE -include "${CMAKE_BINARY_DIR}/version/commit.h")
    target_compile_definitions(module_program_version PRIVATE
        "SLUICE_BUILD_KIND=\"${kind}\"" "SLUICE_LIBRARIES=\"${libraries}\"")
    add_dependencies(module_program_version sluice_commit)
    return()
endif()

if(NOT COMMIT)
    execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 "--exclude=*"
        OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT)
    set(COMMIT "unknown")
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define SLUICE_COMMIT \"${COMMIT}\"\n") # unchanged content keeps its time
