# Parts: parts/NAME becomes parts/libsluice_NAME.so in the build folder, a piece of a module that is
# loaded when it is present, because its library pulls many packages. A part sees the header that its
# module has for it, its own files and that library.

# sluice_part(NAME MODULE module [INSTEAD_OF part] LIBS dep_…): left out when one of the libraries is not
# here. INSTEAD_OF: where that part was left out, this one has its name; else it is for tests alone.
function(sluice_part name)
    cmake_parse_arguments(PART "" "MODULE;INSTEAD_OF" "LIBS" ${ARGN})
    set(output ${name})
    set(installed ON)
    if(PART_INSTEAD_OF AND TARGET part_${PART_INSTEAD_OF})
        set(installed OFF)
        if(NOT SLUICE_TESTS AND NOT SLUICE_FUZZ)
            return()
        endif()
    elseif(PART_INSTEAD_OF)
        set(output ${PART_INSTEAD_OF})
    endif()
    sluice_left_out_without("parts/${name}" ${output} ${PART_LIBS})
    file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/parts/${name}/*.c")
    if(SLUICE_FUZZ)
        add_library(part_${name} STATIC ${sources}) # fuzzers see into it
    else()
        add_library(part_${name} MODULE ${sources})
    endif()
    # Its own files are included as "NAME/file.h", as in the modules.
    set(include "${CMAKE_BINARY_DIR}/parts/include/${name}")
    file(MAKE_DIRECTORY "${include}")
    file(CREATE_LINK "${CMAKE_SOURCE_DIR}/parts/${name}" "${include}/${name}" SYMBOLIC)
    sluice_module_target(module ${PART_MODULE})
    target_include_directories(part_${name} PRIVATE
        "${include}" "${CMAKE_BINARY_DIR}/modules/include/${module}")
    target_link_libraries(part_${name} PRIVATE ${PART_LIBS} sluice_settings)
    set_target_properties(part_${name} PROPERTIES
        OUTPUT_NAME "sluice_${output}" PREFIX "lib"
        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/parts")
    if(SLUICE_FUZZ) # one program has them all
        target_compile_definitions(part_${name} PRIVATE
            sluice_pictures_entry=sluice_pictures_entry_of_${name})
        return()
    endif()
    set_target_properties(part_${name} PROPERTIES SUFFIX ".so")
    target_link_options(part_${name} PRIVATE "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/part.map")
    set_target_properties(part_${name} PROPERTIES LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/part.map")
    if(installed)
        set_property(GLOBAL APPEND PROPERTY sluice_parts part_${name})
    else()
        sluice_test_program(part_${name})
    endif()
endfunction()
