# The descriptors of proto/*.proto as a C array, for server reflection (src/serve/descriptors.h).
# `cmake -P` runs the second half of this file when they have changed.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    find_program(SLUICE_PROTOC protoc)
    if(NOT SLUICE_PROTOC)
        message(FATAL_ERROR "protoc was not found. tools/bootstrap build installs it.")
    endif()
    file(GLOB protos CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/proto/*.proto")
    list(FILTER protos EXCLUDE REGEX "/ext_proc\\.proto$") # a service of the endpoint picker's
    set(descriptors "${CMAKE_BINARY_DIR}/proto/descriptors")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/proto")
    add_custom_command(OUTPUT "${descriptors}.c"
        COMMAND "${SLUICE_PROTOC}" "-I${CMAKE_SOURCE_DIR}/proto" --include_imports
            "--descriptor_set_out=${descriptors}.pb" ${protos}
        COMMAND "${CMAKE_COMMAND}" "-DIN=${descriptors}.pb" "-DOUT=${descriptors}.c"
            -P "${CMAKE_CURRENT_LIST_FILE}"
        DEPENDS ${protos} "${CMAKE_CURRENT_LIST_FILE}" VERBATIM)
    target_sources(room_serve PRIVATE "${descriptors}.c")
    return()
endif()

file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "/* Made from proto/ by cmake/proto.cmake. */
#include \"serve/descriptors.h\"

static const unsigned char BYTES[] = {
${bytes}
};

struct str descriptors_all(void) {
    return str_make((const char *)BYTES, sizeof BYTES);
}
")
