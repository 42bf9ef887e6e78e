# The libraries from outside, each as one target dep_NAME. They are looked for in .deps/sysroot
# (where tools/bootstrap unpacks what the release does not have) and in the system.

find_package(PkgConfig REQUIRED)
list(PREPEND CMAKE_PREFIX_PATH "${SLUICE_DEPS}/sysroot/usr")

# A library without a usable pkg-config file of its own: dep_NAME from header and library names.
function(sluice_find_library name header library)
    find_path(${name}_INCLUDE ${header} PATH_SUFFIXES ${name})
    find_library(${name}_LIBRARY ${library})
    if(NOT ${name}_INCLUDE OR NOT ${name}_LIBRARY)
        message(FATAL_ERROR
            "${name} (${header}, lib${library}) was not found. tools/bootstrap build installs it.")
    endif()
    add_library(dep_${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(dep_${name} PROPERTIES
        IMPORTED_LOCATION "${${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE}")
endfunction()

function(sluice_find_pkg name module)
    pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
    add_library(dep_${name} INTERFACE)
    target_link_libraries(dep_${name} INTERFACE PkgConfig::${name})
endfunction()

# Of what not everyone has: the function that says this returns when one of the libraries is not here.
macro(sluice_left_out_without what profile)
    foreach(library IN ITEMS ${ARGN})
        if(NOT TARGET ${library})
            message(STATUS "${what} is left out: ${library} was not found "
                "(tools/bootstrap ${profile} installs it)")
            return()
        endif()
    endforeach()
endmacro()

sluice_find_library(yyjson yyjson.h yyjson)
sluice_find_library(llhttp llhttp.h llhttp)
sluice_find_pkg(yaml yaml-0.1)
sluice_find_pkg(uv libuv)
sluice_find_pkg(zlib zlib)
sluice_find_pkg(nghttp2 libnghttp2)
sluice_find_pkg(openssl openssl>=3.0)
sluice_find_pkg(curl libcurl>=7.88)
sluice_find_pkg(cares libcares>=1.18)
sluice_find_pkg(xxhash libxxhash>=0.8)
sluice_find_pkg(jemalloc jemalloc>=5.2)
sluice_find_pkg(archive libarchive>=3.6)
# For parts/pictures only, which is left out without it.
pkg_check_modules(vips IMPORTED_TARGET GLOBAL vips>=8.13)
if(vips_FOUND)
    add_library(dep_vips INTERFACE)
    target_link_libraries(dep_vips INTERFACE PkgConfig::vips)
endif()
# For parts/codecs only, likewise.
foreach(library IN ITEMS libjpeg libpng libwebpdemux)
    pkg_check_modules(${library} IMPORTED_TARGET GLOBAL ${library})
    if(${library}_FOUND)
        add_library(dep_${library} INTERFACE)
        target_link_libraries(dep_${library} INTERFACE PkgConfig::${library})
    endif()
endforeach()
if(SLUICE_TESTS)
    pkg_check_modules(cmocka IMPORTED_TARGET GLOBAL cmocka)
    if(NOT cmocka_FOUND)
        message(STATUS "cmocka is not here: no unit tests (tools/bootstrap test installs it)")
        set(SLUICE_TESTS OFF)
    endif()
endif()

# The public headers, as code outside the project sees them.
add_library(dep_public INTERFACE)
target_include_directories(dep_public INTERFACE "${CMAKE_SOURCE_DIR}/include")

# ONNX Runtime: Debian's header, which the backend is compiled with. The backend loads any library with that API; the
# wheel's is linked beside it, under the library's own name, libonnxruntime.so.1, which the wheel's file does not have.
find_path(onnxruntime_INCLUDE onnxruntime_c_api.h PATH_SUFFIXES onnxruntime)
if(NOT onnxruntime_INCLUDE)
    message(FATAL_ERROR "onnxruntime_c_api.h was not found. tools/bootstrap build installs it.")
endif()
add_library(dep_onnxruntime_header INTERFACE)
target_include_directories(dep_onnxruntime_header SYSTEM INTERFACE "${onnxruntime_INCLUDE}")
target_link_libraries(dep_onnxruntime_header INTERFACE ${CMAKE_DL_LIBS})
file(GLOB onnxruntime_LIBRARY
    "${SLUICE_DEPS}/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*")
if(onnxruntime_LIBRARY)
    list(GET onnxruntime_LIBRARY 0 onnxruntime_LIBRARY)
    set(onnxruntime_LINK "${CMAKE_BINARY_DIR}/backends/libonnxruntime.so.1")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/backends")
    file(CREATE_LINK "${onnxruntime_LIBRARY}" "${onnxruntime_LINK}" SYMBOLIC)
    add_library(dep_onnxruntime SHARED IMPORTED GLOBAL) # for bench/inproc
    set_target_properties(dep_onnxruntime PROPERTIES IMPORTED_LOCATION "${onnxruntime_LINK}"
        INTERFACE_INCLUDE_DIRECTORIES "${onnxruntime_INCLUDE}")
else()
    message(FATAL_ERROR "The library of ONNX Runtime was not found. tools/bootstrap build installs it.")
endif()

# OpenVINO: headers and libraries are the wheel's; without it backends/openvino is left out. It looks
# for its parts in the folder that it was loaded from, and asks every one of them that can read models.
# What ours needs is linked (copied, on another file system) into a folder of its own: other formats
# are not read.
file(GLOB openvino_FOLDER "${SLUICE_DEPS}/venv/lib/python3*/site-packages/openvino")
set(openvino_LIBRARIES "")
foreach(name IN ITEMS openvino_c openvino openvino_onnx_frontend openvino_ir_frontend
        openvino_intel_cpu_plugin tbb)
    file(GLOB found "${openvino_FOLDER}/libs/lib${name}.so*")
    list(APPEND openvino_LIBRARIES ${found})
endforeach()
list(LENGTH openvino_LIBRARIES n_found)
if(n_found EQUAL 6 AND EXISTS "${openvino_FOLDER}/include/openvino/c/ov_core.h")
    set(openvino_OWN "${CMAKE_BINARY_DIR}/backends/openvino")
    file(MAKE_DIRECTORY "${openvino_OWN}")
    file(GLOB stale "${openvino_OWN}/*")
    foreach(library IN LISTS openvino_LIBRARIES)
        get_filename_component(name "${library}" NAME)
        list(REMOVE_ITEM stale "${openvino_OWN}/${name}")
        file(CREATE_LINK "${library}" "${openvino_OWN}/${name}" COPY_ON_ERROR)
    endforeach()
    if(stale) # of another version
        file(REMOVE ${stale})
    endif()
    list(GET openvino_LIBRARIES 0 library)
    get_filename_component(name "${library}" NAME)
    add_library(dep_openvino SHARED IMPORTED GLOBAL)
    set_target_properties(dep_openvino PROPERTIES IMPORTED_LOCATION "${openvino_OWN}/${name}"
        INTERFACE_INCLUDE_DIRECTORIES "${openvino_FOLDER}/include")
endif()
