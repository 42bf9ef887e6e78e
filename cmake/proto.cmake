# The descriptors of some of proto/*.proto as a C array, for server reflection:
#     sluice_descriptors(MODULE NAME FILE …)    NAME(), which a header of the module declares
# `cmake -P` runs the second half of this file when they have changed.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    find_program(SLUICE_PROTOC protoc)
    if(NOT SLUICE_PROTOC)
        message(FATAL_ERROR "protoc was not found. tools/bootstrap build installs it.")
    endif()
    function(sluice_descriptors module name)
        list(TRANSFORM ARGN PREPEND "${CMAKE_SOURCE_DIR}/proto/" OUTPUT_VARIABLE protos)
        file(GLOB all CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/proto/*.proto") # some import others
        set(made "${CMAKE_BINARY_DIR}/proto/${name}")
        file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/proto")
        add_custom_command(OUTPUT "${made}.c"
            COMMAND "${SLUICE_PROTOC}" "-I${CMAKE_SOURCE_DIR}/proto" --include_imports
                "--descriptor_set_out=${made}.pb" ${protos}
            COMMAND "${CMAKE_COMMAND}" "-DIN=${made}.pb" "-DOUT=${made}.c" "-DNAME=${name}"
                -P "${CMAKE_CURRENT_FUNCTION_LIST_FILE}"
            DEPENDS ${all} "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" VERBATIM)
        sluice_module_target(target ${module})
        target_sources(${target} PRIVATE "${made}.c")
    endfunction()
    return()
endif()

file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "/* Made from proto/ by cmake/proto.cmake. */
#include \"core/base/str.h\"

struct str ${NAME}(void);

static const unsigned char BYTES[] = {
${bytes}
};

struct str ${NAME}(void) {
    return str_make((const char *)BYTES, sizeof BYTES);
}
")
