# A file of a module as a C array, for what the program shows (src/serve/admin/status_page.html). `cmake -P` runs
# the second half of this file when the other has changed.
#
# sluice_embed(MODULE FILE [PART…]): src/MODULE/FILE; a header of the module declares the function
# <FILE without its ending>, which returns its bytes. A part (src/PART) takes the place of the comment
# `/* here: <its name> */`.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(SLUICE_EMBED "${CMAKE_CURRENT_LIST_FILE}")
    function(sluice_embed module file)
        get_filename_component(name "${file}" NAME_WE)
        set(in "${CMAKE_SOURCE_DIR}/src/${module}/${file}")
        list(TRANSFORM ARGN PREPEND "${CMAKE_SOURCE_DIR}/src/" OUTPUT_VARIABLE parts)
        set(out "${CMAKE_BINARY_DIR}/embedded/${module}/${name}.c")
        file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/embedded/${module}")
        add_custom_command(OUTPUT "${out}"
            COMMAND "${CMAKE_COMMAND}" "-DIN=${in}" "-DOUT=${out}" "-DNAME=${name}"
                "-DPARTS=${parts}" -P "${SLUICE_EMBED}"
            DEPENDS "${in}" ${parts} "${SLUICE_EMBED}" VERBATIM)
        sluice_module_target(target ${module})
        target_sources(${target} PRIVATE "${out}")
    endfunction()
    return()
endif()

file(READ "${IN}" bytes HEX)
foreach(part IN LISTS PARTS)
    get_filename_component(name "${part}" NAME)
    string(HEX "/* here: ${name} */" place)
    string(FIND "${bytes}" "${place}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "${IN} has no place for ${name}")
    endif()
    file(READ "${part}" part_bytes HEX)
    string(REPLACE "${place}" "${part_bytes}" bytes "${bytes}")
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "/* Made by cmake/embed.cmake. */
#include \"core/base/str.h\"

struct str ${NAME}(void);

static const unsigned char BYTES[] = {
${bytes}
};

struct str ${NAME}(void) {
    return str_make((const char *)BYTES, sizeof BYTES);
}
")
