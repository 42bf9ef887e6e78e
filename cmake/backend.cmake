# Backends: backends/NAME becomes backends/libsluice_NAME.so in the build folder. A backend sees the
# public headers, what it names itself and, where it says so, backends/common, which is compiled into
# it; and none of the modules.

# sluice_backend(NAME [COMMON] [LIBS dep_…]): left out when one of the libraries is not here.
function(sluice_backend name)
    cmake_parse_arguments(BACKEND "COMMON" "" "LIBS" ${ARGN})
    set(folder "${CMAKE_SOURCE_DIR}/backends/${name}")
    file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.c")
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.c$")
    list(FILTER sources EXCLUDE REGEX "_test\\.c$")
    if(NOT sources)
        message(STATUS "backends/${name} has no sources: left out")
        return()
    endif()
    sluice_left_out_without("backends/${name}" ${name} ${BACKEND_LIBS})

    add_library(backend_${name} MODULE ${sources})
    target_link_libraries(backend_${name} PRIVATE dep_public ${BACKEND_LIBS} sluice_settings)
    # Its own files are included as "NAME/file.h", as in the modules.
    target_include_directories(backend_${name} PRIVATE "${CMAKE_BINARY_DIR}/backends/include/${name}")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/backends/include/${name}")
    file(CREATE_LINK "${folder}" "${CMAKE_BINARY_DIR}/backends/include/${name}/${name}" SYMBOLIC)
    if(BACKEND_COMMON)
        file(GLOB common CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/backends/common/*.c")
        target_sources(backend_${name} PRIVATE ${common})
        list(APPEND sources ${common})
        file(CREATE_LINK "${CMAKE_SOURCE_DIR}/backends/common"
            "${CMAKE_BINARY_DIR}/backends/include/${name}/common" SYMBOLIC)
    endif()
    set_target_properties(backend_${name} PROPERTIES
        OUTPUT_NAME "sluice_${name}" PREFIX "lib" SUFFIX ".so"
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/backends"
        BUILD_RPATH "\$ORIGIN;\$ORIGIN/${name}" INSTALL_RPATH "\$ORIGIN;\$ORIGIN/${name}")
    # Hides what comes from static libraries, too.
    target_link_options(backend_${name} PRIVATE "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/backend.map")
    set_property(GLOBAL APPEND PROPERTY sluice_backends backend_${name})

    if(SLUICE_TESTS AND NOT SLUICE_FUZZ)
        foreach(test IN LISTS tests)
            get_filename_component(file "${test}" NAME_WE)
            string(REGEX REPLACE "_test$" "" noun "${file}")
            add_executable(${name}_${file} "${test}" ${sources})
            sluice_test_program(${name}_${file})
            target_include_directories(${name}_${file} PRIVATE
                "${CMAKE_BINARY_DIR}/backends/include/${name}")
            set_target_properties(${name}_${file} PROPERTIES OUTPUT_NAME "${file}"
                RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/unit/${name}")
            target_link_libraries(${name}_${file} PRIVATE
                dep_public ${BACKEND_LIBS} sluice_settings PkgConfig::cmocka)
            sluice_add_test(${name}/${noun} ${name}_${file})
        endforeach()
    endif()
endfunction()

# sluice_backend_file(TARGET NAME FILE): a library of one file of a backend, for a fuzzer.
function(sluice_backend_file target name file)
    add_library(${target} STATIC "${CMAKE_SOURCE_DIR}/backends/${name}/${file}")
    target_include_directories(${target} PUBLIC "${CMAKE_BINARY_DIR}/backends/include/${name}")
    target_link_libraries(${target} PUBLIC dep_public sluice_settings)
endfunction()

# The program of Python workers, beside the python backend as an installation has it: python/worker in the folder of
# backends. A link, so that a change of it needs no build.
function(sluice_python_worker)
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/backends/python")
    file(CREATE_LINK "${CMAKE_SOURCE_DIR}/python/sluice_server/worker"
        "${CMAKE_BINARY_DIR}/backends/python/worker" SYMBOLIC)
endfunction()

# sluice_backend_common(TARGET): a library of backends/common, for what includes it outside of a backend.
function(sluice_backend_common target)
    file(GLOB common CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/backends/common/*.c")
    add_library(${target} STATIC ${common})
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/backends/include/of-common")
    file(CREATE_LINK "${CMAKE_SOURCE_DIR}/backends/common"
        "${CMAKE_BINARY_DIR}/backends/include/of-common/common" SYMBOLIC)
    target_include_directories(${target} PUBLIC "${CMAKE_BINARY_DIR}/backends/include/of-common")
    target_link_libraries(${target} PUBLIC dep_public sluice_settings)
endfunction()
