# libsluice, for programs outside: libsluice.so and libsluice.a from one and the same object, which is
# the module client and what it uses of those that it sees, linked into one. Of the modules' names none is left in
# either: the public ones are all that a program can meet or clash with. What the two need besides is libc, llhttp,
# nghttp2, yyjson, zlib and, unless SLUICE_CLIENT_TLS and SLUICE_CLIENT_CARES are off, OpenSSL and c-ares (tests/interop/client/test_client_library.py).

# The library's version is that of its header; the file VERSION is of the programs.
set(library_version "")
foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${CMAKE_SOURCE_DIR}/include/sluice/client.h" line REGEX "^#define SLUICE_VERSION_${part} [0-9]+$")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND library_version "${number}")
endforeach()
list(GET library_version 0 library_major)
list(JOIN library_version "." library_version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/sluice/client.h)

# What the library has in place of parts of core that are for a whole process.
add_library(library_own OBJECT src/client/library/replacements.c)
target_link_libraries(library_own PRIVATE module_core_base module_core_event)

# What client sees, each before what it sees itself.
foreach(name IN ITEMS net/client/grpc_session net/transport codec/mip codec/kserve codec/json codec/grpc codec/protobuf
        codec/http1 core/tensor core/event core/base)
    sluice_module_target(target ${name})
    list(APPEND below_targets ${target})
    list(APPEND below "$<TARGET_FILE:${target}>")
endforeach()

set(library "${CMAKE_BINARY_DIR}/lib")
file(MAKE_DIRECTORY "${library}")
separate_arguments(flags UNIX_COMMAND "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${CMAKE_BUILD_TYPE}}")
add_custom_command(
    OUTPUT "${library}/modules.o"
    COMMAND "${CMAKE_C_COMPILER}" ${flags} -r -nostdlib -o "${library}/modules.o"
        "$<TARGET_OBJECTS:library_own>"
        -Wl,--whole-archive "$<TARGET_FILE:module_client>" -Wl,--no-whole-archive
        ${below}
    DEPENDS library_own "$<TARGET_OBJECTS:library_own>" module_client ${below_targets}
    COMMENT "Linking the modules of libsluice"
    COMMAND_EXPAND_LISTS VERBATIM)

# The version script is the list of what is exported, by both forms.
set(exports "${CMAKE_SOURCE_DIR}/cmake/library.map")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${exports}")
file(STRINGS "${exports}" exported REGEX "^ +sluice_")
list(TRANSFORM exported REPLACE "[ ;]" "")
list(JOIN exported "\n" exported)
file(CONFIGURE OUTPUT "${library}/exported.txt" CONTENT "${exported}\n")

# Shared.
add_library(sluice_shared SHARED "${library}/modules.o")
set_target_properties(sluice_shared PROPERTIES
    OUTPUT_NAME sluice LINKER_LANGUAGE C LINK_DEPENDS "${exports}"
    VERSION "${library_version}" SOVERSION "${library_major}"
    LIBRARY_OUTPUT_DIRECTORY "${library}")
target_include_directories(sluice_shared INTERFACE "${CMAKE_SOURCE_DIR}/include")
target_link_libraries(sluice_shared PRIVATE dep_llhttp dep_nghttp2 dep_yyjson dep_zlib sluice_settings)
if(SLUICE_CLIENT_TLS)
    target_link_libraries(sluice_shared PRIVATE dep_openssl)
endif()
if(SLUICE_CLIENT_CARES)
    target_link_libraries(sluice_shared PRIVATE dep_cares)
endif()
target_link_options(sluice_shared PRIVATE -Wl,--as-needed "-Wl,--version-script=${exports}")
if(NOT SLUICE_SANITIZE) # with clang a sanitizer's runtime is the program's, not the library's
    target_link_options(sluice_shared PRIVATE -Wl,--no-undefined)
endif()

# Static.
add_custom_command(
    OUTPUT "${library}/libsluice.a"
    COMMAND "${CMAKE_OBJCOPY}" "--keep-global-symbols=${library}/exported.txt"
        "${library}/modules.o" "${library}/sluice.o"
    COMMAND "${CMAKE_COMMAND}" -E rm -f "${library}/libsluice.a"
    COMMAND "${CMAKE_AR}" rcsD "${library}/libsluice.a" "${library}/sluice.o"
    BYPRODUCTS "${library}/sluice.o"
    DEPENDS "${library}/modules.o" "${library}/exported.txt"
    COMMENT "Linking C static library lib/libsluice.a" VERBATIM)
add_custom_target(sluice_static ALL DEPENDS "${library}/libsluice.a")
add_dependencies(sluice_static sluice_shared) # one of them makes modules.o, not both at once
