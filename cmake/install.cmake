# `make install`: the program, the backends, the public headers, libsluice with what others find it by
# (pkg-config, CMake), and the shared libraries that the system does not have, in a folder of our own
# where only our binaries look.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(own "${CMAKE_INSTALL_LIBDIR}/sluice")
file(RELATIVE_PATH from_bin "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/sluice")

# Where the installed program finds its backends and parts, seen from the folder it is in. In the
# build folder they are in backends/ and parts/ beside it.
target_compile_definitions(module_program_model_server PRIVATE
    SLUICE_BACKENDS_FROM_BIN="${from_bin}/backends" SLUICE_PARTS_FROM_BIN="${from_bin}/parts")
target_compile_definitions(module_program_gateway PRIVATE SLUICE_ENVOY_FROM_BIN="${from_bin}/envoy")
if(TARGET sluice)
    set_target_properties(sluice PROPERTIES INSTALL_RPATH "\$ORIGIN/${from_bin}")
    install(TARGETS sluice RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

install(DIRECTORY include/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

get_property(backends GLOBAL PROPERTY sluice_backends)
if(backends)
    install(TARGETS ${backends} LIBRARY DESTINATION "${own}/backends")
endif()
if(TARGET backend_python)
    install(DIRECTORY python/sluice_server/worker DESTINATION "${own}/backends/python"
        FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
endif()
get_property(parts GLOBAL PROPERTY sluice_parts)
if(parts)
    install(TARGETS ${parts} LIBRARY DESTINATION "${own}/parts")
endif()

if(TARGET sluice_envoy)
    set_target_properties(sluice_envoy PROPERTIES INSTALL_RPATH "\$ORIGIN/..")
    install(TARGETS sluice_envoy LIBRARY DESTINATION "${own}/envoy")
endif()

# Every name of a library: those that the loader may ask for (libNAME.so.0, libNAME.so.0.10.0), and
# the linker's, for programs with libsluice.a.
set(carried OFF)
foreach(library IN ITEMS "${yyjson_LIBRARY}" "${llhttp_LIBRARY}")
    if(library MATCHES "^${SLUICE_DEPS}/.*\\.so$")
        file(GLOB names "${library}" "${library}.*")
        install(FILES ${names} DESTINATION "${own}")
        set(carried ON)
    endif()
endforeach()
if(TARGET backend_onnxruntime)
    install(FILES "${onnxruntime_LIBRARY}" DESTINATION "${own}/backends"
        RENAME "libonnxruntime.so.1")
endif()
if(TARGET backend_openvino)
    install(FILES ${openvino_LIBRARIES} DESTINATION "${own}/backends/openvino")
endif()

# ---- libsluice -----------------------------------------------------------------------------------

if(TARGET sluice_shared)
    if(carried)
        set_target_properties(sluice_shared PROPERTIES INSTALL_RPATH "\$ORIGIN/sluice")
    endif()
    install(TARGETS sluice_shared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(FILES "${CMAKE_BINARY_DIR}/lib/libsluice.a" DESTINATION "${CMAKE_INSTALL_LIBDIR}")

    # Neither file holds a path of this machine: each says where things are seen from itself, so that
    # what is installed may be moved.
    set(pkgconfig "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
    set(package "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")
    file(RELATIVE_PATH prefix_from_pc
        "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
    file(RELATIVE_PATH include_from_pc
        "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
    file(RELATIVE_PATH include_from_package
        "${CMAKE_INSTALL_FULL_LIBDIR}/cmake/Sluice" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
    set(private_libs "-lllhttp -lnghttp2 -lyyjson -lz")
    set(static_libs llhttp nghttp2 yyjson z)
    if(SLUICE_CLIENT_TLS)
        string(APPEND private_libs " -lssl -lcrypto")
        list(APPEND static_libs ssl crypto)
    endif()
    if(SLUICE_CLIENT_CARES)
        string(APPEND private_libs " -lcares")
        list(APPEND static_libs cares)
    endif()
    list(JOIN static_libs " " static_libs)
    if(carried)
        string(PREPEND private_libs "-L\${libdir}/sluice -Wl,-rpath,\${libdir}/sluice ")
    endif()
    configure_file(cmake/sluice.pc.in lib/sluice.pc @ONLY)
    configure_file(cmake/sluice-backend.pc.in lib/sluice-backend.pc @ONLY)
    configure_file(cmake/SluiceConfig.cmake.in lib/SluiceConfig.cmake @ONLY)
    write_basic_package_version_file("${CMAKE_BINARY_DIR}/lib/SluiceConfigVersion.cmake"
        VERSION "${library_version}" COMPATIBILITY SameMajorVersion)
    install(FILES "${CMAKE_BINARY_DIR}/lib/sluice.pc" "${CMAKE_BINARY_DIR}/lib/sluice-backend.pc"
        DESTINATION "${pkgconfig}")
    install(FILES "${CMAKE_BINARY_DIR}/lib/SluiceConfig.cmake"
        "${CMAKE_BINARY_DIR}/lib/SluiceConfigVersion.cmake" DESTINATION "${package}")
endif()
